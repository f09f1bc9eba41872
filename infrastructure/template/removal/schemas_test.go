package removal

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template"
)

// unbound implements Instances without bindings.
type unbound struct{ template.Instances }

func (unbound) Bindings(context.Context, []string, func(*apisv1alpha2.APIBinding) error) error {
	return nil
}

// TestPreviousSchemasAreDeleted checks that previous schemas of Templates themselves are deleted like those of their kinds, and no others.
func TestPreviousSchemasAreDeleted(t *testing.T) {
	const group = "infrastructure.example.org"
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apisv1alpha1.AddToScheme, apisv1alpha2.AddToScheme, infrastructurev1alpha1.AddGroupToScheme(group)} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	schema := func(name, group, plural string, labels map[string]string) *apisv1alpha1.APIResourceSchema {
		created := &apisv1alpha1.APIResourceSchema{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		created.Spec.Group, created.Spec.Names.Plural = group, plural
		return created
	}
	export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "standard"}}
	export.Spec.Resources = []apisv1alpha2.ResourceSchema{{Group: group, Name: template.Resource, Schema: "catalogue2.templates." + group}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(export,
		schema("catalogue1.templates."+group, group, template.Resource, nil),
		schema("catalogue2.templates."+group, group, template.Resource, nil),
		schema("v1.templates."+group, group, template.Resource, nil),
		schema("catalogue1.templates.example.com", "example.com", template.Resource, nil),
		schema("tmpl1.caches."+group, group, "caches", map[string]string{template.LabelTemplate(group): "cache"}),
		schema("v1.caches."+group, group, "caches", nil),
	).Build()
	cleaner := &Cleaner{Client: c, Group: group, Export: "standard", Instances: unbound{}}
	for range 2 { // the first call records which are unused
		if err := cleaner.prune(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var left apisv1alpha1.APIResourceSchemaList
	if err := c.List(t.Context(), &left, &client.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range left.Items {
		names = append(names, left.Items[i].Name)
	}
	slices.Sort(names)
	if want := []string{"catalogue1.templates.example.com", "catalogue2.templates." + group, "v1.caches." + group, "v1.templates." + group}; !slices.Equal(names, want) {
		t.Errorf("left are %v", names)
	}
}
