package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of every kind in this package.
const GroupName = "operator.kcp.io"

var (
	// SchemeGroupVersion is the group and version these types are served as.
	SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	// SchemeBuilder collects the functions that register this package's types.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers this package's types with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Resource qualifies a resource name of this package with its group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&RootShard{}, &RootShardList{},
		&Shard{}, &ShardList{},
		&FrontProxy{}, &FrontProxyList{},
		&CacheServer{}, &CacheServerList{},
		&VirtualWorkspace{}, &VirtualWorkspaceList{},
		&Kubeconfig{}, &KubeconfigList{},
		&BackupStore{}, &BackupStoreList{},
		&Backup{}, &BackupList{},
		&BackupSchedule{}, &BackupScheduleList{},
		&Restore{}, &RestoreList{},
		&RestoreDrill{}, &RestoreDrillList{},
	)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
