// Package instance is what backends share to serve the instances that tenants create: it watches the kinds of their Templates in all
// workspaces that have bound the export, owns finalizer, status and conditions, retries after errors, and removes the remains of deleted
// workspaces. A backend only implements Handler.
//
// There is one watch for each kind and shard, and one queue for all, which is fair between tenants. No goroutine, watch or cache exists per
// workspace.
package instance
