// Command lockdoc holds what paths do against what they say they do, and makes lockorder/LOCKS.md of it. It joins three things: the classes of package
// lockorder, the paths of package lockpath, and the edges "held A, took B" that the tests' processes leave. Edges that were once
// seen are kept in edges.json, the record, so that the page can be made without running the tests.
//
//	lockdoc check [-part] DIR   after the tests: judges the edges in DIR, and shows which path ran how often. With -part not all
//	                            tests ran, so that a path nobody ran is no mistake.
//	lockdoc record [-anew] DIR  adds the edges in DIR to the record, drops what the table does not allow any more, and writes
//	                            the page. With -anew nothing that DIR does not show is kept.
//	lockdoc page                writes the page.
//	lockdoc drift               fails where the record or the page is not what the table says.
//
// make test runs check, make locks runs record or page, make check runs drift.
//
// # Why the record only grows
//
// Which locks a test takes may hang on who was first. So an edge of the record that a run did not show is told and no failure;
// one that a run showed and the record has not is a failure that make locks mends, once for all, unless it hangs on
// circumstances by what its path's entry says: then it is told too.
package main
