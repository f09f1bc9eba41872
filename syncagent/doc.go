// Package syncagent publishes APIs of a service cluster into workspaces and syncs their objects (docs/adr/0044-sync-agent.md).
//
// The agent keeps an APIResourceSchema for every PublishedResource, and these in one APIExport. Objects that consumers create
// in workspaces that bind the export are copied to the service cluster; status and related objects are copied back.
package syncagent
