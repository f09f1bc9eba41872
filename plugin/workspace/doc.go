// Package workspace is the library behind "kubectl ws" and "kubectl create workspace": moving through the tree of
// workspaces as a shell moves through directories, showing the tree, and creating workspaces.
//
// A switch is a change of the kubeconfig: the entry "workspace.kcp.io/current" is the current workspace, and
// "workspace.kcp.io/previous" the one that "-" returns to. Contexts created by the user are never modified.
//
// The interpretation of arguments (target.go), the changes of the kubeconfig (kubeconfig.go) and the rendering of a
// tree (tree.go) are pure functions; command.go binds all of it to cobra.
package workspace
