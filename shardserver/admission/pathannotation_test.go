package admission

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/authorization"
	"k8s.io/kubernetes/pkg/apis/core"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestPathAnnotation(t *testing.T) {
	const key = logicalcluster.PathAnnotationKey
	state := newFakeShard().cluster("c1", key, "root:org").cluster("c2")
	configMaps := schema.GroupResource{Resource: "configmaps"}
	bare := func() runtime.Object {
		return &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "own"}}
	}
	claiming := func(path string) runtime.Object {
		return &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "own", Annotations: toMap([]string{key, path, "a", "b"})}}
	}

	for name, tc := range map[string]struct {
		cluster     string
		resource    schema.GroupResource
		subresource string
		obj         runtime.Object
		want        string
		wantErr     string
	}{
		"type":                              {cluster: "c1", resource: workspaceTypes, obj: bare(), want: "root:org"},
		"logical cluster without a path":    {cluster: "c2", resource: workspaceTypes, obj: bare(), want: "c2"},
		"type with another path":            {cluster: "c1", resource: workspaceTypes, obj: testWorkspaceType("root", "own"), want: "root:org"},
		"other object with another path":    {cluster: "c1", resource: configMaps, obj: claiming("root"), want: "root:org"},
		"other object without a path":       {cluster: "c1", resource: configMaps, obj: &core.ConfigMap{}},
		"LogicalCluster":                    {cluster: "c1", resource: logicalClusters, obj: testLogicalCluster(ready, withClusterAnnotations(key, "root:moved")), want: "root:moved"},
		"review":                            {cluster: "gone", resource: localSubjectAccessReview, obj: &authorization.LocalSubjectAccessReview{}},
		"status update":                     {cluster: "c1", resource: workspaceTypes, subresource: "status", obj: testWorkspaceType("root:old", "own"), want: "root:old"},
		"type in a missing logical cluster": {cluster: "gone", resource: workspaceTypes, obj: bare(), wantErr: "does not exist"},
		"other object with a path in a missing logical cluster": {cluster: "gone", resource: configMaps, obj: claiming("root"), wantErr: "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			q := testRequest{cluster: tc.cluster, resource: tc.resource, subresource: tc.subresource, name: "own", user: master, operation: admission.Create, obj: tc.obj}
			wantForbidden(t, admitAndValidate(t, newPathAnnotation(state.config()), q), tc.wantErr)
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
		q := testRequest{cluster: "c1", resource: configMaps, subresource: "status", name: "own", user: master, operation: admission.Update, obj: obj, old: &core.ConfigMap{}}
		wantForbidden(t, admitAndValidate(t, newPathAnnotation(state.config()), q), "")
		if got := obj.(metav1.Object).GetAnnotations()[key]; got != "root:org" {
			t.Errorf("path %q", got)
		}
	})

	t.Run("path that a later plug-in changed is rejected", func(t *testing.T) {
		q := testRequest{cluster: "c1", resource: configMaps, name: "own", user: master, operation: admission.Update, obj: claiming("root"), old: claiming("root:org")}
		wantForbidden(t, validateOnly(t, newPathAnnotation(state.config()), q), "must be \"root:org\"")
	})
}
