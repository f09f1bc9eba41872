package shards

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/nesting"
)

// The types below are those of the API packages, reduced to the fields that routing needs: decoding skips all others.
// See TestPartialTypesDecodeAPITypes.

var (
	coreVersion    = schema.GroupVersion{Group: "core.kcp.io", Version: "v1alpha1"}
	tenancyVersion = schema.GroupVersion{Group: "tenancy.kcp.io", Version: "v1alpha1"}
)

type shardObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		BaseURL string `json:"baseURL"`
	} `json:"spec"`
}

type shardObjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []shardObject `json:"items"`
}

type workspaceObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Cluster string    `json:"cluster"`
		URL     string    `json:"URL"`
		Mount   *struct{} `json:"mount"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

type workspaceObjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []workspaceObject `json:"items"`
}

type clusterObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

type clusterObjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []clusterObject `json:"items"`
}

func (o *shardObject) DeepCopyObject() runtime.Object {
	out := *o
	o.DeepCopyInto(&out.ObjectMeta)
	return &out
}

func (o *workspaceObject) DeepCopyObject() runtime.Object {
	out := *o
	o.DeepCopyInto(&out.ObjectMeta)
	return &out
}

func (o *clusterObject) DeepCopyObject() runtime.Object {
	out := *o
	o.DeepCopyInto(&out.ObjectMeta)
	return &out
}

func (l *shardObjectList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]shardObject, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*shardObject)
	}
	return &out
}

func (l *workspaceObjectList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]workspaceObject, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*workspaceObject)
	}
	return &out
}

func (l *clusterObjectList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]clusterObject, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*clusterObject)
	}
	return &out
}

// newSerializer returns the serializer of a scheme with the partial types.
func newSerializer() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	for kind, obj := range map[string]runtime.Object{
		"Shard": &shardObject{}, "ShardList": &shardObjectList{},
		"LogicalCluster": &clusterObject{}, "LogicalClusterList": &clusterObjectList{},
	} {
		scheme.AddKnownTypeWithName(coreVersion.WithKind(kind), obj)
	}
	scheme.AddKnownTypeWithName(tenancyVersion.WithKind("Workspace"), &workspaceObject{})
	scheme.AddKnownTypeWithName(tenancyVersion.WithKind("WorkspaceList"), &workspaceObjectList{})
	scheme.AddKnownTypeWithName(tenancyVersion.WithKind("WorkspaceType"), &typeObject{})
	scheme.AddKnownTypeWithName(tenancyVersion.WithKind("WorkspaceTypeList"), &typeObjectList{})
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	scheme.AddKnownTypes(apisv1alpha2.SchemeGroupVersion, &apisv1alpha2.APIExport{})
	scheme.AddKnownTypes(tenancyVersion, &tenancyv1alpha1.WorkspaceAuthenticationConfiguration{}, &tenancyv1alpha1.WorkspaceAuthenticationConfigurationList{})
	metav1.AddToGroupVersion(scheme, coreVersion)
	metav1.AddToGroupVersion(scheme, tenancyVersion)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return nesting.NewChecker(scheme).Serializer(serializer.NewCodecFactory(scheme).WithoutConversion(), nesting.Default().Stored)
}
