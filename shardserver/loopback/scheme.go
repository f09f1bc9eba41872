package loopback

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
)

// Scheme contains the types of the typed client: those of Kubernetes and kcp. It must not be modified.
var Scheme = newScheme()

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme,
		apiextensionsv1.AddToScheme,
		apisv1alpha1.AddToScheme,
		apisv1alpha2.AddToScheme,
		cachev1alpha1.AddToScheme,
		corev1alpha1.AddToScheme,
		migrationv1alpha1.AddToScheme,
		tenancyv1alpha1.AddToScheme,
		topologyv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // two types of one name are a programming error
		}
	}
	return scheme
}

// servedVersions are the group-versions that a logical cluster may serve, in the order of preference within a group.
var servedVersions = []schema.GroupVersion{
	{Group: "", Version: "v1"},
	{Group: "admissionregistration.k8s.io", Version: "v1"},
	apiextensionsv1.SchemeGroupVersion,
	{Group: "authentication.k8s.io", Version: "v1"},
	{Group: "authorization.k8s.io", Version: "v1"},
	{Group: "certificates.k8s.io", Version: "v1"},
	{Group: "coordination.k8s.io", Version: "v1"},
	{Group: "events.k8s.io", Version: "v1"},
	{Group: "rbac.authorization.k8s.io", Version: "v1"},
	apisv1alpha2.SchemeGroupVersion,
	apisv1alpha1.SchemeGroupVersion,
	cachev1alpha1.SchemeGroupVersion,
	corev1alpha1.SchemeGroupVersion,
	migrationv1alpha1.SchemeGroupVersion,
	tenancyv1alpha1.SchemeGroupVersion,
	topologyv1alpha1.SchemeGroupVersion,
}

// clusterScoped are the cluster-scoped kinds of the served groups. A REST mapper built from a scheme has no scopes, and
// discovery would need a request before the first write.
var clusterScoped = sets.New(
	"Namespace", "ComponentStatus", "Node", "PersistentVolume",
	"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
	"CustomResourceDefinition",
	"TokenReview", "SelfSubjectReview",
	"SubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview",
	"CertificateSigningRequest",
	"ClusterRole", "ClusterRoleBinding",
	"APIBinding", "APIConversion", "APIExport", "APIExportEndpointSlice", "APIResourceSchema",
	"ClusterCachedResource", "ClusterCachedResourceEndpointSlice",
	"LogicalCluster", "Shard",
	"LogicalClusterMigration",
	"Partition", "PartitionSet",
	"Workspace", "WorkspaceAuthenticationConfiguration", "WorkspaceType",
)

func restMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(servedVersions)
	for _, version := range servedVersions {
		for kind := range Scheme.KnownTypes(version) {
			scope := meta.RESTScopeNamespace
			if clusterScoped.Has(kind) {
				scope = meta.RESTScopeRoot
			}
			mapper.Add(version.WithKind(kind), scope)
		}
	}
	return mapper
}
