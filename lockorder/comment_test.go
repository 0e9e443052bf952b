package lockorder_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/bursarhq/bursar/lockorder"
)

// wantWaitFor fails the test unless the text of a waiting statement names the lock.
func wantWaitFor(t testing.TB, query string, l lockorder.Lock) {
	t.Helper()
	class, identity, path, ok := lockorder.ParseWaitComment(query)
	if !ok || class != l.Class().Name || !slices.Equal(identity, l.Identity()) || path != "test" {
		t.Errorf("the waiting statement does not name %s on the path test: %s", l, query)
	}
}

// TestWaitComment reads any identity and path back from the comment that holds them, and nothing from a part of it.
func TestWaitComment(t *testing.T) {
	t.Parallel()
	fixed := lockorder.WaitComment(lockorder.DesiredStateKey("farm:one", "organization", "a/b*"), "site move")
	if want := "/* lockorder: desired-state:farm%3Aone:organization:a%2Fb%2A path=site+move */ "; fixed != want {
		t.Errorf("the comment is %q, want %q", fixed, want)
	}
	text := rapid.OneOf(rapid.StringMatching(`[^\x00]+`), rapid.StringMatching(`([*/:% +='"\\]|path=|\*/|/\*|\$1|--|\n)+`))
	rapid.Check(t, func(t *rapid.T) {
		l := lockorder.DesiredStateKey(text.Draw(t, "connection"), text.Draw(t, "kind"), text.Draw(t, "id"))
		if l.Err() != nil {
			t.Fatal(l.Err())
		}
		path := text.Draw(t, "path")
		comment := lockorder.WaitComment(l, path)
		class, identity, gotPath, ok := lockorder.ParseWaitComment(comment + "SELECT '*/' /* lockorder: pool:a path=b */")
		if !ok || class != "desired-state" || !slices.Equal(identity, l.Identity()) || gotPath != path {
			t.Fatalf("%q is read as %q %q path %q, %t", comment, class, identity, gotPath, ok)
		}
		whole := strings.TrimSuffix(comment, " ")
		if _, _, _, ok := lockorder.ParseWaitComment(whole[:rapid.IntRange(0, len(whole)-1).Draw(t, "cut")]); ok {
			t.Error("a comment that is cut off was read")
		}
	})
	if class, identity, path, ok := lockorder.ParseWaitComment(lockorder.WaitComment(lockorder.DomainsKey(), "p")); !ok || class != "domains" || len(identity) != 0 || path != "p" {
		t.Errorf("a class without an identity is read as %q %q %q", class, identity, path)
	}
	for _, query := range []string{"", "SELECT 1", "/* lockorder: */", "/* lockorder: pool:a */ SELECT 1", "/* lockorder: pool:%zz path=a */", "/* lockorder:  path=a */",
		"SELECT 1 /* lockorder: pool:a path=b */"} {
		if class, _, _, ok := lockorder.ParseWaitComment(query); ok {
			t.Errorf("%q is read as a wait for %q", query, class)
		}
	}
}
