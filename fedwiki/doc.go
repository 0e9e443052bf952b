// Package fedwiki is where workspaces, sites and their lifecycle on a Federated Wiki farm are kept: which sites
// are active, which hold a slot of the workspace's allowance, and what was asked of the farm.
//
// Nothing of it exists yet. When it does, calls to the farm will happen outside every transaction, a slot will be held on the
// site's row and counted with it in one transaction, and a site's content will only be destroyed by an
// explicit hard delete.
package fedwiki
