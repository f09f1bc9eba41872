// Package snapshot is the library behind "kubectl kcp crd snapshot": it turns CustomResourceDefinitions into the
// APIResourceSchemas that an APIExport offers. A schema never changes, so each one is the picture of a definition at a
// time; the prefix of its name says of which. No server is asked.
package snapshot
