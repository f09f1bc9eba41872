package removal

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template"
)

// rewriting implements Instances with three instances behind a binding. Each call of Rewrite fails after one of them.
type rewriting struct {
	template.Instances
	binding *apisv1alpha2.APIBinding
	written []types.UID
}

func (r *rewriting) Bindings(_ context.Context, _ []string, call func(*apisv1alpha2.APIBinding) error) error {
	return call(r.binding)
}

func (r *rewriting) Rewrite(_ context.Context, _ *infrastructurev1alpha1.Template, written sets.Set[types.UID]) error {
	for _, uid := range []types.UID{"a", "b", "c"} {
		if !written.Has(uid) {
			r.written = append(r.written, uid)
			written.Insert(uid)
			if uid != "c" {
				return errors.New("a shard does not answer")
			}
		}
	}
	return nil
}

// TestRetirement checks that a retirement continues after an error, and that a terminating binding delays it only while it may have instances.
func TestRetirement(t *testing.T) {
	const group = infrastructurev1alpha1.GroupName
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, infrastructurev1alpha1.AddGroupToScheme(group)} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	first := &infrastructurev1alpha1.Template{
		ObjectMeta: metav1.ObjectMeta{Name: "redis", UID: "1"},
		Spec: infrastructurev1alpha1.TemplateSpec{
			InstanceCRD: infrastructurev1alpha1.InstanceCRD{Group: group, Version: "v1alpha1", Kind: "Redis", Resource: "redis"},
			Schema:      runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"name":{"type":"string"}}}`)},
		},
	}
	edited := first.DeepCopy()
	edited.Spec.InstanceCRD.Version, edited.Spec.RetiredVersions = "v1", []string{"v1alpha1"}
	meta.SetStatusCondition(&edited.Status.Conditions, metav1.Condition{Type: infrastructurev1alpha1.ConditionReady, Status: metav1.ConditionTrue})
	previous, err := template.Definition(first, nil)
	if err != nil {
		t.Fatal(err)
	}
	definition, err := template.Definition(edited, previous)
	if err != nil {
		t.Fatal(err)
	}
	template.RetireVersions(definition, "v1", []string{"v1alpha1"})
	schemaOf := func(definition *apiextensionsv1.CustomResourceDefinition) string {
		schema, err := template.Schema(definition)
		if err != nil {
			t.Fatal(err)
		}
		return schema.Name
	}
	edited.Status.Registered.SchemaName = schemaOf(definition)
	now := metav1.Now()
	held := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now, Finalizers: []string{apisv1alpha2.APIBindingFinalizer, "example.org/held"}}}
	held.Status.BoundResources = []apisv1alpha2.BoundAPIResource{{Group: group, Resource: "redis", Schema: apisv1alpha2.BoundAPIResourceSchema{Name: schemaOf(previous)}}}
	instances := &rewriting{binding: held}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(edited, definition).WithStatusSubresource(definition).Build()
	cleaner := &Cleaner{Client: c, Group: group, Instances: instances, Events: events.NewFakeRecorder(10), Log: logr.Discard()}
	if err := cleaner.Retire(t.Context()); err != nil || len(instances.written) > 0 {
		t.Errorf("with instances of a previous version: %v, written %v", err, instances.written)
	}
	held.Finalizers = held.Finalizers[1:]
	for i := range 3 {
		if err := cleaner.Retire(t.Context()); (err == nil) != (i == 2) {
			t.Errorf("attempt %d: %v", i, err)
		}
	}
	if !slices.Equal(instances.written, []types.UID{"a", "b", "c"}) || len(cleaner.rewritten) > 0 {
		t.Errorf("written %v, kept %v", instances.written, cleaner.rewritten)
	}
	got := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(definition), got); err != nil || got.Annotations[template.AnnotationStored(group)] != "v1" {
		t.Errorf("the definition has annotations %v, %v", got.Annotations, err)
	}
}
