package backendtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// quiet is how long the test observes that nothing is written without a change.
const quiet = time.Second

// hasty is the number of instances that the test deletes right after their creation.
const hasty = 10

func testOutputs(t *testing.T, r *run) {
	object := r.first.provision(t, "outputs", "small")
	status := object.Object["status"].(map[string]any)
	if got := status["endpoint"]; got != "outputs.example.org" {
		t.Errorf("the endpoint is %v", got)
	}
	known := []string{"conditions", "endpoint", "observedGeneration", "phase", "size"}
	got := slices.Sorted(maps.Keys(status))
	got = slices.DeleteFunc(got, func(field string) bool { return field == "connectionSecret" }) // set by backends whose instances have credentials
	if !slices.Equal(got, known) {
		t.Errorf("the status has %v, want %v", got, known)
	}
	if text := asJSON(t, object); strings.Contains(text, Confidential) {
		t.Errorf("what is no output is in %s", text)
	}
	r.first.waitMade(t, "outputs", "small")
	r.first.delete(t, "outputs")
}

func testUpdate(t *testing.T, r *run) {
	r.first.provision(t, "updated", "small")
	made := r.first.list(t)
	if _, err := r.first.patch(t.Context(), "updated", `{"spec":{"size":"large"}}`); err != nil {
		t.Fatal(err)
	}
	r.first.waitSize(t, "updated", "large")
	r.first.waitMade(t, "updated", "large")
	if got := r.first.list(t); len(got) != len(made) {
		t.Errorf("before the update there was %v, after it there is %v", made, got)
	}
	before := r.waitQuiet(t)
	if _, err := r.first.patch(t.Context(), "updated", `{"metadata":{"annotations":{"example.org/touched":"true"}}}`); err != nil {
		t.Fatal(err)
	}
	r.consistently(t, "a change of nothing", quiet, func(context.Context) error {
		if writes := r.instanceWrites(); len(writes) > before {
			return fmt.Errorf("it has the provider write %+v", writes[before:])
		}
		return nil
	})
	r.first.delete(t, "updated")
}

// instanceWrites returns the writes that concern instances.
func (r *run) instanceWrites() []write {
	return append(r.provider.faults.written(toView), r.provider.faults.written(toRuntime)...)
}

// waitQuiet waits until writes have stopped, and returns the number of writes.
func (r *run) waitQuiet(t testing.TB) int {
	t.Helper()
	since, before := time.Now(), -1
	r.eventually(t, "no writes", func(context.Context) error {
		writes := r.instanceWrites()
		if len(writes) != before {
			since, before = time.Now(), len(writes)
		}
		if time.Since(since) < quiet {
			return fmt.Errorf("the last write is %+v", writes[max(0, len(writes)-1):])
		}
		return nil
	})
	return before
}

func testDrift(t *testing.T, r *run) {
	r.first.provision(t, "drifted", "small")
	if err := r.suite.Made.Damage(t.Context(), r.first.cluster, "drifted"); err != nil {
		t.Fatal(err)
	}
	r.eventually(t, "drift is repaired or reported", func(ctx context.Context) error {
		size, err := r.suite.Made.Size(ctx, r.first.cluster, "drifted")
		if err != nil || size == "small" {
			return err
		}
		object, err := r.first.instances().Get(ctx, "drifted", metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, _, _ := unstructured.NestedMap(object.Object, "status")
		if message, _ := status["message"].(string); message == "" && status["phase"] == string(infrastructurev1alpha1.PhaseReady) {
			return fmt.Errorf("the size is %q, and the instance is ready and says nothing", size)
		}
		return nil
	})
	r.first.delete(t, "drifted")
}

func testDeletion(t *testing.T, r *run) {
	before := r.first.list(t)
	r.first.provision(t, "deleted", "small")
	r.first.delete(t, "deleted")
	if after := r.first.list(t); len(after) != len(before) {
		t.Errorf("before there was %v, after deletion there is %v", before, after)
	}
	for n := range hasty {
		r.first.order(t, fmt.Sprintf("hasty-%d", n), "small")
		r.first.remove(t, fmt.Sprintf("hasty-%d", n))
	}
	for n := range hasty {
		r.first.waitGone(t, fmt.Sprintf("hasty-%d", n))
	}
	// An instance that is deleted while it gets its finalizer is gone before the provider observes it.
	r.waitLeft(t, r.first, len(before), "what was made for instances that were deleted at once is gone")
	r.first.provision(t, "interrupted", "large")
	r.provider.faults.killAfter(0)
	r.first.remove(t, "interrupted")
	r.waitDead(t)
	r.kill(t)
	r.start(t)
	r.first.waitGone(t, "interrupted")
	if after := r.first.list(t); len(after) != len(before) {
		t.Errorf("before there was %v, after an interrupted deletion there is %v", before, after)
	}
	r.first.provision(t, "unseen", "small")
	r.stop(t)
	if _, err := r.first.patch(t.Context(), "unseen", `{"metadata":{"finalizers":[]}}`); err != nil {
		t.Fatal(err)
	}
	r.first.delete(t, "unseen")
	r.start(t)
	r.waitLeft(t, r.first, len(before), "what an instance was made of that vanished while no provider ran is gone")
}

// waitLeft waits until the backend has the given number of objects of a tenant.
func (r *run) waitLeft(t *testing.T, of *tenant, count int, what string) {
	t.Helper()
	r.eventually(t, what, func(ctx context.Context) error {
		left, err := r.suite.Made.List(ctx, of.cluster)
		if err == nil && len(left) != count {
			err = fmt.Errorf("there is %v, want %d", left, count)
		}
		return err
	})
}

// waitDead waits until the provider has crashed at a write.
func (r *run) waitDead(t testing.TB) {
	t.Helper()
	r.eventually(t, "the provider writes", func(context.Context) error {
		if !r.provider.faults.isDead() {
			return fmt.Errorf("it has written %+v", r.instanceWrites())
		}
		return nil
	})
}

func testEqualNames(t *testing.T, r *run) {
	r.first.provision(t, "equal", "small")
	other := r.second.provision(t, "equal", "large")
	r.first.waitSize(t, "equal", "small")
	r.first.waitMade(t, "equal", "small")
	r.second.waitMade(t, "equal", "large")
	made := r.second.list(t)
	r.first.delete(t, "equal")
	if err := r.first.isEmpty(t.Context()); err != nil {
		t.Error(err)
	}
	if after := r.second.list(t); !slices.Equal(after, made) {
		t.Errorf("of the other tenant there was %v, after the deletion there is %v", made, after)
	}
	r.second.waitMade(t, "equal", "large")
	if now := r.second.waitSize(t, "equal", "large"); now.GetResourceVersion() != other.GetResourceVersion() {
		t.Errorf("the instance of the other tenant has changed, before:\n%s\nnow:\n%s", asJSON(t, other), asJSON(t, now))
	}
	r.second.delete(t, "equal")
}
