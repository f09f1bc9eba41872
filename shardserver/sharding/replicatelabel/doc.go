// Package marks marks the objects that other shards have to know of: RBAC by which they decide who may bind an export,
// use a workspace type or enter a workspace, and the LogicalClusters that such things are found in. Other kinds travel
// without a mark.
//
// It says what travels, not how: copying to the cache is not its matter.
package replicatelabel
