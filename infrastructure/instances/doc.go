// Package instances is what all backends need to serve the instances that tenants create: it watches the kinds of their Templates in all
// workspaces that have bound the export, owns finalizer, status and conditions, repeats what fails, and finds what workspaces left that
// are gone. A backend only implements Handler.
//
// There is one watch for each kind and shard, and one queue for all, in which tenants have their turns. Nothing exists because a
// workspace exists.
package instances
