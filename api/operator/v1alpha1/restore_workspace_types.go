package v1alpha1

// RestoreWorkspace is a workspace that was deleted, and comes back into its place while its installation runs.
type RestoreWorkspace struct {
	// path is the path of the workspace, such as root:acme:team. Its parent must be the one of the backup, and on the
	// same shard. Workspaces below it are not restored: one that has any is refused.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^root(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`
	Path string `json:"path"`
}
