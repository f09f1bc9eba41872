// Package seed contains the Templates that the provider ships, and reconciles them in its workspace.
//
// Each file contains one shipped Template. A Template created from a file has a label, and an annotation with the hash of the shipped spec.
// As long as its spec has this hash, the provider updates it to later versions of the file. A Template that somebody has edited, or that
// lacks the label, belongs to the platform operator, and the provider never changes it.
package seed
