// Package workspace is the library behind "kubectl ws" and "kubectl create workspace": moving through the tree of
// workspaces the way a shell moves through directories, showing the tree, and creating workspaces.
//
// A switch is a change of the kubeconfig: the entry "workspace.kcp.io/current" points to where the user is, and
// "workspace.kcp.io/previous" to where "-" goes back to. Contexts made by the user are never modified.
//
// What an argument means (target.go), what happens to the kubeconfig (kubeconfig.go) and how a tree looks (tree.go) are
// pure functions; command.go binds all of it to cobra.
package workspace
