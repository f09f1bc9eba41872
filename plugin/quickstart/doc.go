// Package quickstart is the library behind "kubectl kcp quickstart": it fills an installation with example content, an
// API that one workspace exports and another one uses, or a tree of workspaces, and removes it again. All content is
// below one organization, and repeating a scenario completes what is missing.
package quickstart
