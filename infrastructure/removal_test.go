package infrastructure_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testRemovalAfterRefusal deletes Templates whose last edit is refused: the schema that refuses new instances is based on the exported one.
func (e *env) testRemovalAfterRefusal(t *testing.T) {
	for name, test := range map[string]struct {
		schema, reason string
		answer         backend.Status
	}{
		"breaking": {`{"type":"object","properties":{"refused":{"type":"string"}}}`, infrastructurev1alpha1.ReasonInvalidSpec, backend.Status{Ready: true}},
		"broken":   {`{"type":"object","properties":{"refused":{"type":"nonsense"}}}`, infrastructurev1alpha1.ReasonInvalidSpec, backend.Status{Ready: true}},
		"unusable": {strings.Replace(string(newTemplate("", "").Spec.Schema.Raw), `"small",`, `"small","refused",`, 1), infrastructurev1alpha1.ReasonBackendNotReady, backend.Status{}},
	} {
		t.Run(name, func(t *testing.T) {
			removed := newTemplate(name, strings.ToUpper(name[:1])+name[1:])
			e.create(t, removed)
			e.ready(t, name)
			e.backend.Answer(test.answer, nil)
			e.change(t, name, withSchema(test.schema))
			e.unready(t, name, test.reason)
			e.instances.count.Store(1)
			if err := e.c.Delete(t.Context(), removed); err != nil {
				t.Fatal(err)
			}
			e.waitFor(t, name, infrastructurev1alpha1.ConditionReady, metav1.ConditionFalse, infrastructurev1alpha1.ReasonDraining)
			exported := &apisv1alpha1.APIResourceSchema{}
			if err := e.c.Get(t.Context(), client.ObjectKey{Name: e.exported(t)[removed.Spec.InstanceCRD.Resource]}, exported); err != nil {
				t.Fatal(err)
			}
			if text := string(exported.Spec.Versions[0].Schema.Raw); !strings.Contains(text, "is being removed") || !strings.Contains(text, `"large"`) || strings.Contains(text, `"refused"`) {
				t.Errorf("the export has %s", text)
			}
			e.instances.count.Store(0)
			e.gone(t, removed)
			e.backend.Answer(backend.Status{Ready: true}, nil)
		})
	}
}

// testRemovalWaitsForBindings uses a binding that still allows new instances.
func (e *env) testRemovalWaitsForBindings(t *testing.T) {
	removed := newTemplate("bound", "Bound")
	e.create(t, removed)
	e.ready(t, "bound")
	bound := func(schema string) {
		e.instances.bound.Store(&apisv1alpha2.BoundAPIResource{Group: group, Resource: "bound", Schema: apisv1alpha2.BoundAPIResourceSchema{Name: schema}})
	}
	bound(e.exported(t)["bound"])
	if err := e.c.Delete(t.Context(), removed); err != nil {
		t.Fatal(err)
	}
	if _, message := e.unready(t, "bound", infrastructurev1alpha1.ReasonDraining); !strings.Contains(message, "1 bindings") {
		t.Errorf("the message is %q", message)
	}
	bound(e.exported(t)["bound"])
	e.gone(t, removed)
	e.instances.bound.Store(nil)
}

// testNameOfLostTemplate removes the finalizer of a Template that has instances, whose objects backends identify by the name of the Template.
func (e *env) testNameOfLostTemplate(t *testing.T) {
	lost := newTemplate("lost", "Lost")
	e.create(t, lost)
	e.ready(t, "lost")
	e.instances.count.Store(1)
	if err := e.c.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	e.waitFor(t, "lost", infrastructurev1alpha1.ConditionReady, metav1.ConditionFalse, infrastructurev1alpha1.ReasonDraining)
	if err := e.c.Patch(t.Context(), lost, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	other := newTemplate("lost", "Other")
	e.create(t, other)
	if _, message := e.unready(t, "lost", infrastructurev1alpha1.ReasonInvalidSpec); !strings.Contains(message, "lost."+group+" is of a previous Template") {
		t.Errorf("the message is %q", message)
	}
	if err := e.c.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the other template to be gone", func(ctx context.Context) error {
		if err := e.c.Get(ctx, client.ObjectKey{Name: "lost"}, &infrastructurev1alpha1.Template{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if slices.Contains(e.backend.TornDown(), "lost") {
		t.Error("the backend has removed what the lost template has")
	}
	if e.exported(t)["lost"] == "" {
		t.Error("the kind of the lost template is not exported any more")
	}
	e.create(t, newTemplate("lost", "Lost"))
	e.ready(t, "lost")
	e.instances.count.Store(0)
	if err := e.c.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	e.gone(t, lost)
}
