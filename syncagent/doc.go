// Package syncagent publishes APIs of a service cluster into workspaces and syncs their objects (docs/adr/0044-sync-agent.md).
//
// The agent creates an APIResourceSchema for every PublishedResource and adds these to one APIExport. It copies objects that consumers
// create in workspaces that bind the export to the service cluster, and copies their status and related objects back.
package syncagent
