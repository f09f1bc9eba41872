package bootstrap

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
)

func rootLogicalCluster(options Options) *corev1alpha1.LogicalCluster {
	cluster := readyLogicalCluster(logicalcluster.Root, options)
	cluster.Annotations[corev1alpha1.LogicalClusterTypeAnnotationKey] = "root:root"
	return cluster
}

func shardLogicalCluster(options Options) *corev1alpha1.LogicalCluster {
	return readyLogicalCluster(logicalcluster.Shard, options)
}

func readyLogicalCluster(name logicalcluster.Name, options Options) *corev1alpha1.LogicalCluster {
	return &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: corev1alpha1.LogicalClusterName,
			Annotations: map[string]string{
				corev1alpha1.LogicalClusterPathAnnotationKey: name.Path().String(),
				corev1alpha1.ShardAnnotationKey:              options.ShardName,
			},
		},
		Status: corev1alpha1.LogicalClusterStatus{
			URL:   strings.TrimSuffix(options.externalURL(), "/") + "/clusters/" + name.String(),
			Phase: corev1alpha1.LogicalClusterPhaseReady,
		},
	}
}

// shard returns the Shard object of this shard, which is in system:shard.
func shard(options Options) *corev1alpha1.Shard {
	labels := map[string]string{}
	maps.Copy(labels, options.ShardLabels)
	labels["name"] = options.ShardName
	return &corev1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Name: options.ShardName, Labels: labels},
		Spec: corev1alpha1.ShardSpec{
			BaseURL:             options.BaseURL,
			ExternalURL:         options.externalURL(),
			VirtualWorkspaceURL: options.virtualWorkspaceURL(),
		},
	}
}

// representation returns the Shard in root that represents the Shard of the root shard. That of any other shard is written by the controller
// of package registration, which also updates this one: this shard is registered before its controllers run.
func representation(options Options) *corev1alpha1.Shard {
	out := shard(options)
	out.Annotations = map[string]string{corev1alpha1.ShardRepresentationAnnotationKey: "true"}
	return out
}

func namespaces(names ...string) []client.Object {
	var objects []client.Object
	for _, name := range names {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{CreateOnlyAnnotation: "true"},
		}})
	}
	return objects
}

// grant is a ClusterRole with its binding.
type grant struct {
	role    rbacv1.ClusterRole
	binding string
	groups  []string
}

// rootPolicy returns the RBAC of root: authenticated users may access it, read workspaces and types, bind the exports
// and use the types that are intended for tenants.
func rootPolicy(options Options) []client.Object {
	authenticated := []string{user.AllAuthenticated}
	underPolicy := []string{authorization.BindingSubjectPrefix + user.AllAuthenticated}
	grants := []grant{
		{accessRole(), "system:kcp:tenancy:authenticated:access", authenticated},
		{tenancyReaderRole(), "system:kcp:authenticated:tenancy:reader", authenticated},
		{bindRole("system:kcp:apiexport:tenancy:bind", "tenancy.kcp.io"), "system:kcp:authenticated:apiexport:tenancy:bind", authenticated},
		{bindRole("system:kcp:apiexport:topology:bind", "topology.kcp.io"), "system:kcp:authenticated:apiexport:topology:bind", authenticated},
		{useTypesRole(), "system:kcp:authenticated:universal-workspacetype-use", authenticated},
		{clusterRole("system:kcp:apiexport:tenancy:maximal-permission-policy",
			rule("*").groups("tenancy.kcp.io").resources("workspaces", "workspaceauthenticationconfigurations", "workspacetypes"),
			rule("get", "list", "watch").groups("tenancy.kcp.io").resources("workspaces/status", "workspacetypes/status")),
			"system:kcp:authenticated:apiexport:tenancy:maximal-permission-policy", underPolicy},
		{clusterRole("system:kcp:apiexport:topology:maximal-permission-policy",
			rule("*").groups("topology.kcp.io").resources("partitions", "partitionsets")),
			"system:kcp:authenticated:apiexport:topology:maximal-permission-policy", underPolicy},
		{clusterRole("system:kcp:apiexport:kcp-admin:maximal-permission-policy",
			rule("*").groups("tenancy.kcp.io").resources("*")),
			"system:kcp:apiexport:kcp-admin:maximal-permission-policy",
			[]string{authorization.BindingSubjectPrefix + authorization.GroupAdmin}},
	}
	if options.HomeWorkspaces && len(options.HomeCreatorGroups) > 0 {
		grants = append(grants, grant{
			clusterRole("system:kcp:home-clusterworkspace-create",
				rule("get", "create").groups("tenancy.kcp.io").resources("workspaces").names("~")),
			"system:kcp:configured-group:home-clusterworkspace-create", options.HomeCreatorGroups})
	}
	var objects []client.Object
	for _, g := range grants {
		binding := bindGroups(g.binding, g.role.Name, g.groups...)
		objects = append(objects, &g.role, &binding)
	}
	return objects
}

func bindRole(name, export string) rbacv1.ClusterRole {
	return clusterRole(name, rule("bind").groups("apis.kcp.io").resources("apiexports").names(export))
}

func useTypesRole() rbacv1.ClusterRole {
	return clusterRole("system:kcp:universal-workspacetype-use",
		rule("use").groups("tenancy.kcp.io").resources("workspacetypes").names("universal", "organization", "team"))
}

// metricsViewer returns the objects of the battery metrics-viewer: an identity that may scrape the shard and nothing
// else.
func metricsViewer(options Options) []client.Object {
	if !options.has(batteryMetricsViewer) {
		return nil
	}
	battery := map[string]string{BatteryAnnotation: batteryMetricsViewer}
	role := clusterRole("metrics-viewer", rule("get").urls("/metrics"))
	binding := bindGroups("metrics-viewer", role.Name)
	binding.Subjects = []rbacv1.Subject{
		{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "metrics"},
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "metrics-viewer"},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "metrics"}}
	token := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "metrics"},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	objects := []client.Object{&role, &binding, account, token}
	for _, obj := range objects {
		obj.SetAnnotations(merge(obj.GetAnnotations(), battery))
	}
	token.Annotations[corev1.ServiceAccountNameKey] = account.Name
	return objects
}
