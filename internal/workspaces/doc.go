// Package workspaces contains what controllers of "all workspaces behind an export" share. Each shard with consumers has one URL, which
// serves all workspaces of the shard that bind the export. A controller runs one watch for each resource and URL, and nothing for each
// workspace: the logical cluster of a request is in its context, and that of an object in its key.
//
// The package must not know what callers synchronize: no kind of the sync agent or of the infrastructure provider.
package workspaces
