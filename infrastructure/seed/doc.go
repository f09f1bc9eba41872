// Package seed has the Templates that the provider ships, and keeps them in its workspace.
//
// What is shipped is in files, one Template in each. A Template that was created from one has a label and an annotation with the hash of
// what was shipped: as long as its spec has this hash, it follows later versions of the file; one that somebody has edited, or that has not
// the label, belongs to the platform operator and is never changed.
package seed
