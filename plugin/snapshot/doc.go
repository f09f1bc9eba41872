// Package snapshot is the library behind "kubectl kcp crd snapshot": it converts CustomResourceDefinitions to the
// APIResourceSchemas of an APIExport. Schemas are immutable, so each one is a snapshot of a definition, identified by
// the prefix of its name. The conversion needs no server.
package snapshot
