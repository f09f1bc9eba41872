package infrastructure_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func (e *env) testTakeOver(t *testing.T) {
	e.instances.count.Store(2)
	e.change(t, "redis", func(t *infrastructurev1alpha1.Template) { t.Spec.Backend = "manifest" })
	if _, message := e.unready(t, "redis", infrastructurev1alpha1.ReasonInvalidSpec); !strings.Contains(message, "2 instances") || !strings.Contains(message, backend.AnnotationMigrate(group)) {
		t.Errorf("without annotation, the message is %q", message)
	}
	e.change(t, "redis", func(t *infrastructurev1alpha1.Template) {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, backend.AnnotationMigrate(group), "")
	})
	if got, _ := e.unready(t, "redis", infrastructurev1alpha1.ReasonDraining); got.Status.Backend.Name != "kro" || got.Status.Backend.ReplacedBy != "manifest" {
		t.Errorf("while instances are released, the backend is %+v", got.Status.Backend)
	}
	e.instances.count.Store(0)
	taken := e.ready(t, "redis")
	if got := taken.Status.Backend; got.Name != "manifest" || got.ReplacedBy != "" {
		t.Errorf("the backend is %+v", got)
	}
	if _, left := taken.Annotations[backend.AnnotationMigrate(group)]; left {
		t.Error("the annotation would allow another take-over")
	}
	if got := e.backend.TornDown(); !slices.Contains(got, "redis") {
		t.Errorf("the previous backend has torn down %v", got)
	}
	// Simulate an earlier provider with another backend.
	lost := &infrastructurev1alpha1.Template{ObjectMeta: metav1.ObjectMeta{Name: "redis"}}
	setBackend := func(name string) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"backend":{"name":"`+name+`"}}}`))
		if err := e.c.Status().Patch(t.Context(), lost, patch); err != nil {
			t.Fatal(err)
		}
		e.change(t, "redis", func(t *infrastructurev1alpha1.Template) {
			metav1.SetMetaDataAnnotation(&t.ObjectMeta, "example.org/touched", name)
		})
	}
	e.instances.count.Store(2)
	setBackend("lost")
	if _, message := e.unready(t, "redis", infrastructurev1alpha1.ReasonBackendNotFound); !strings.Contains(message, `"lost"`) {
		t.Errorf("without the previous backend, the message is %q", message)
	}
	e.instances.count.Store(0)
	setBackend("manifest")
	e.ready(t, "redis")
}

// takeOver replaces the backend that provides the instances of Template redis.
func (e *instancesEnv) takeOver(t *testing.T, name string) {
	t.Helper()
	e.change(t, "redis", func(t *infrastructurev1alpha1.Template) {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, backend.AnnotationMigrate(group), "")
		t.Spec.Backend = name
	})
	if got := e.ready(t, "redis").Status.Backend.Name; got != name {
		t.Fatalf("the backend is %s, want %s", got, name)
	}
}

// testTakeOver replaces the backend of instances, and then restores the previous one.
func (e *instancesEnv) testTakeOver(t *testing.T) {
	before := e.provision(t, e.tenant, "moved", "small")
	e.waitData(t, e.tenant, "redis-moved", "small")
	e.takeOver(t, "kro")
	for tenant, name := range map[string]string{e.tenant: "redis-moved", e.second: "redis-mine"} {
		if data, err := e.data(t.Context(), tenant, name); !apierrors.IsNotFound(err) {
			t.Errorf("the previous backend has left %s: %v, %v", name, data, err)
		}
	}
	object := e.waitPhase(t, e.tenant, "moved", infrastructurev1alpha1.PhaseProvisioning)
	if object.GetUID() != before.GetUID() || slices.Contains(object.GetFinalizers(), instance.Finalizer(group)) {
		t.Errorf("the instance is %v", object.Object["metadata"])
	}
	e.takeOver(t, manifest.Name)
	after := e.waitPhase(t, e.tenant, "moved", infrastructurev1alpha1.PhaseReady)
	e.waitData(t, e.tenant, "redis-moved", "small")
	e.waitPhase(t, e.second, "mine", infrastructurev1alpha1.PhaseReady)
	if got, want := withoutTimes(after), withoutTimes(before); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the status is %v, before %v", got, want)
	}
	if err := e.of(e.tenant).inTenant(t, "redis").Delete(t.Context(), "moved", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the instance to be gone", func(ctx context.Context) error {
		_, err := e.data(ctx, e.tenant, "redis-moved")
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("what it is made of: %w", err)
		}
		return nil
	})
}

// withoutTimes returns the status of an instance without the times of its conditions.
func withoutTimes(object *unstructured.Unstructured) any {
	status, _, _ := unstructured.NestedMap(object.Object, "status")
	conditions, _ := status["conditions"].([]any)
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok {
			delete(fields, "lastTransitionTime")
		}
	}
	return status
}
