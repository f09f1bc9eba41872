// Package catalogue brings up the provider's workspace: the CRD of Templates, the export, the permission to bind it, and the publication of
// Templates to workspaces that have bound it.
package catalogue
