// Package replicatelabel sets the replicate annotation on objects that other shards need: RBAC that grants the binding
// of exports, the use of workspace types or access to workspaces, and the LogicalClusters that contain such exports and
// types. Other kinds are replicated without it.
//
// Copying objects to the cache server does not belong here.
package replicatelabel
