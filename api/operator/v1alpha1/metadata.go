package v1alpha1

// Labels of the objects of a custom resource. The value is the name of the custom resource.
const (
	LabelRootShard        = "operator.kcp.io/rootshard"
	LabelShard            = "operator.kcp.io/shard"
	LabelFrontProxy       = "operator.kcp.io/front-proxy"
	LabelCacheServer      = "operator.kcp.io/cache-server"
	LabelVirtualWorkspace = "operator.kcp.io/virtual-workspace"
	// LabelKubeconfig contains the name of the Kubeconfig on Secrets of its namespace, and its UID on those of Argo CD and on bindings
	// inside kcp.
	LabelKubeconfig = "operator.kcp.io/kubeconfig"
	// LabelBackupSchedule is on the Backups that a BackupSchedule has created. On any other Backup of the same
	// installation and store, it lets the retention of the schedule remove that Backup.
	LabelBackupSchedule = "operator.kcp.io/backup-schedule"
	// LabelRestoreDrill is on the namespace of a drill, with the UID of its RestoreDrill. The operator deletes no namespace without it.
	LabelRestoreDrill = "operator.kcp.io/restore-drill"
)

// AnnotationForceDelete with the value "true" completes the deletion of a Shard or RootShard that has workspaces or does
// not respond. Its data is lost, and that of all shards with a RootShard.
const AnnotationForceDelete = "operator.kcp.io/force-delete"

// AnnotationRemoveBackup is on a Backup whose removal from the store has begun. It is no backup any more, and its BackupSchedule removes it,
// whatever the retention keeps.
const AnnotationRemoveBackup = "operator.kcp.io/remove-backup"

// AnnotationRestore, on a RootShard, is the name of a Restore of its namespace: it and its Shards do not start before that is completed. It has
// no effect on an installation that has started. On a Shard, it is the name of a Restore of that shard, which stops it and replaces its data. On a
// volume claim, it says which Restore has created it.
const AnnotationRestore = "operator.kcp.io/restore"

// AnnotationRestoreDrill is on the namespace of a drill, with the namespace and the name of its RestoreDrill.
const AnnotationRestoreDrill = "operator.kcp.io/restore-drill"

// Annotations by which a user controls an etcd that the operator runs, on the object that it belongs to.
const (
	// AnnotationEtcdDataLost confirms that the data of an etcd is lost, and that it begins again without. The value is the
	// ID of the lost cluster, as the condition reports it.
	AnnotationEtcdDataLost = "operator.kcp.io/etcd-data-lost"
	// AnnotationDefragmentEtcd requests that every member is compacted and defragmented, once for every value.
	AnnotationDefragmentEtcd = "operator.kcp.io/defragment-etcd"
)

// Annotations by which a user controls rollouts: on a RootShard for its whole installation, on another object for that
// object only.
const (
	// AnnotationPauseRollout with the value "true" prevents the replacement of pods. A rollout in progress continues.
	AnnotationPauseRollout = "operator.kcp.io/pause-rollout"
	// AnnotationRolloutNow with the value "true" replaces pods immediately, without ordering and health checks.
	AnnotationRolloutNow = "operator.kcp.io/rollout-now"
	// AnnotationRolloutTimeout is the maximum time for new pods to become healthy before the rollout stops, a duration
	// on a RootShard. Defaults to ten minutes.
	AnnotationRolloutTimeout = "operator.kcp.io/rollout-timeout"
)

// Finalizers that the operator puts on custom resources.
const (
	// FinalizerKubeconfigRBAC remains on a Kubeconfig with an authorization block until its bindings inside kcp are
	// removed.
	FinalizerKubeconfigRBAC = "operator.kcp.io/cleanup-rbac"
	// FinalizerKubeconfigArgoCD remains on a Kubeconfig that is registered in Argo CD until the Secret there is removed.
	FinalizerKubeconfigArgoCD = "operator.kcp.io/cleanup-argocd"
	// FinalizerShard remains on a Shard until its registration inside kcp is removed.
	FinalizerShard = "operator.kcp.io/cleanup-shard"
	// FinalizerRootShard remains on a RootShard that has served until its installation has no workspaces.
	FinalizerRootShard = "operator.kcp.io/cleanup-rootshard"
	// FinalizerRestoreDrill remains on a RestoreDrill until the namespace of its last drill is deleted.
	FinalizerRestoreDrill = "operator.kcp.io/cleanup-restore-drill"
)

// TemplateMetadata is added to the metadata of an object that the operator creates. Values set by the operator take
// precedence.
type TemplateMetadata struct {
	// annotations are added to the object.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// labels are added to the object.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// LeaseName is the name of the Lease that an operator holds while it works. It is that of kcp-operator, so that the two never reconcile at the
// same time.
const LeaseName = "239f9f9a.operator.kcp.io"
