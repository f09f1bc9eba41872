// Package sync syncs the objects of publications. Controller runs a publicationSync for each publication, which runs an endpointSync for each
// endpoint of the export: one watch of the primary objects in all workspaces behind the URL, and workers that call the syncer.
package sync
