// Package quickstart is the library behind "kubectl kcp quickstart": it fills an installation with something to look at,
// an API that one workspace offers and another one uses, or a tree of workspaces, and takes it away again. Everything
// lies below one organization, and repeating a scenario completes what is missing.
package quickstart
