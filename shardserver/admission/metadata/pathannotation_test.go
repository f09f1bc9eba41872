package metadata

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/authorization"
	"k8s.io/kubernetes/pkg/apis/core"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/admissiontest"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

func TestPathAnnotation(t *testing.T) {
	const key = logicalcluster.PathAnnotationKey
	state := admissiontest.NewShard().Cluster("c1", key, "root:org").Cluster("c2")
	configMaps := schema.GroupResource{Resource: "configmaps"}
	bare := func() runtime.Object {
		return &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "own"}}
	}
	claiming := func(path string) runtime.Object {
		return &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "own", Annotations: admissiontest.ToMap([]string{key, path, "a", "b"})}}
	}

	for name, tc := range map[string]struct {
		cluster     string
		resource    schema.GroupResource
		subresource string
		obj         runtime.Object
		want        string
		wantErr     string
	}{
		"type":                              {cluster: "c1", resource: rules.WorkspaceTypes, obj: bare(), want: "root:org"},
		"logical cluster without a path":    {cluster: "c2", resource: rules.WorkspaceTypes, obj: bare(), want: "c2"},
		"type with another path":            {cluster: "c1", resource: rules.WorkspaceTypes, obj: admissiontest.WorkspaceType("root", "own"), want: "root:org"},
		"other object with another path":    {cluster: "c1", resource: configMaps, obj: claiming("root"), want: "root:org"},
		"other object without a path":       {cluster: "c1", resource: configMaps, obj: &core.ConfigMap{}},
		"LogicalCluster":                    {cluster: "c1", resource: rules.LogicalClusters, obj: admissiontest.LogicalCluster(corev1alpha1.LogicalClusterPhaseReady, admissiontest.WithAnnotations(key, "root:moved")), want: "root:moved"},
		"review":                            {cluster: "gone", resource: authorization.Resource("localsubjectaccessreviews"), obj: &authorization.LocalSubjectAccessReview{}},
		"status update":                     {cluster: "c1", resource: rules.WorkspaceTypes, subresource: "status", obj: admissiontest.WorkspaceType("root:old", "own"), want: "root:old"},
		"type in a missing logical cluster": {cluster: "gone", resource: rules.WorkspaceTypes, obj: bare(), wantErr: "does not exist"},
		"other object with a path in a missing logical cluster": {cluster: "gone", resource: configMaps, obj: claiming("root"), wantErr: "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			q := admissiontest.Request{Cluster: tc.cluster, Resource: tc.resource, Subresource: tc.subresource, Name: "own", User: admissiontest.Master, Operation: admission.Create, Object: tc.obj}
			admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, NewPathAnnotation(state.Config()), q), tc.wantErr)
			if tc.wantErr != "" {
				return
			}
			if got := tc.obj.(metav1.Object).GetAnnotations()[key]; got != tc.want {
				t.Errorf("path %q, want %q", got, tc.want)
			}
		})
	}

	t.Run("path in a status update is replaced", func(t *testing.T) {
		obj := claiming("root")
		q := admissiontest.Request{Cluster: "c1", Resource: configMaps, Subresource: "status", Name: "own", User: admissiontest.Master, Operation: admission.Update, Object: obj, Old: &core.ConfigMap{}}
		admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, NewPathAnnotation(state.Config()), q), "")
		if got := obj.(metav1.Object).GetAnnotations()[key]; got != "root:org" {
			t.Errorf("path %q", got)
		}
	})

	t.Run("path that a later plug-in changed is rejected", func(t *testing.T) {
		q := admissiontest.Request{Cluster: "c1", Resource: configMaps, Name: "own", User: admissiontest.Master, Operation: admission.Update, Object: claiming("root"), Old: claiming("root:org")}
		admissiontest.WantForbidden(t, admissiontest.ValidateOnly(t, NewPathAnnotation(state.Config()), q), "must be \"root:org\"")
	})
}
