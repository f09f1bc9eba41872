package backendtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// sweeps is the number of sweeps in which the backend must not purge anything.
const sweeps = 6

func testSweep(t *testing.T, r *run) {
	lost := r.newTenant(t)
	lost.provision(t, "lost", "small")
	lost.provision(t, "forgotten", "large")
	r.second.provision(t, "kept", "small")
	kept := r.second.list(t)

	// The workspace and its instances disappear while the provider cannot reach them, so that nobody finalizes the instances.
	r.provider.faults.setReachable(false)
	defer r.provider.faults.setReachable(true)
	for _, name := range []string{"lost", "forgotten"} {
		if _, err := lost.patch(t.Context(), name, `{"metadata":{"finalizers":[]}}`); err != nil {
			t.Fatal(err)
		}
		lost.delete(t, name)
	}
	r.suite.Environment.Delete(t, lost.workspace)
	made := lost.list(t)
	r.consistently(t, "the view cannot be reached", sweeps*sweepInterval, func(ctx context.Context) error {
		now, err := r.suite.Made.List(ctx, lost.cluster)
		if err == nil && len(now) != len(made) {
			err = fmt.Errorf("there was %v, now there is %v", made, now)
		}
		return err
	})
	if len(made) == 0 {
		t.Error("what the instances were made of is gone before a sweep")
	}
	r.provider.faults.setReachable(true)
	r.eventually(t, "what is left is swept", func(ctx context.Context) error { return lost.isEmpty(ctx) })
	if now := r.second.list(t); len(now) != len(kept) {
		t.Errorf("of another tenant there was %v, now there is %v", kept, now)
	}
	r.second.waitSize(t, "kept", "small")
	r.second.delete(t, "kept")
}

// testKilled crashes the provider after each number of writes that providing and removing an instance takes.
func testKilled(t *testing.T, r *run) {
	before := len(r.first.list(t))
	r.first.provision(t, "undisturbed", "large")
	want := len(r.first.list(t)) - before
	r.first.delete(t, "undisturbed")
	r.stop(t)
	defer r.start(t)
	for n, completed := 0, false; !completed; n++ {
		if n > 200 {
			t.Fatal("an instance takes more than 200 writes")
		}
		name := fmt.Sprintf("killed-%d", n)
		r.first.order(t, name, "large")
		provided := r.dieAfter(t, n, func(ctx context.Context) error { return r.first.isReady(ctx, name) })
		r.first.waitSize(t, name, "large")
		if made := r.first.list(t); len(made)-before != want {
			t.Errorf("after a death instead of write %d there is %v, want %d", n, made, want)
		}
		r.first.remove(t, name)
		r.stop(t)
		removed := r.dieAfter(t, n, func(ctx context.Context) error { return r.first.isGone(ctx, name) })
		r.first.waitGone(t, name)
		if made := r.first.list(t); len(made) != before {
			t.Errorf("after a death instead of write %d of the removal there is %v", n, made)
		}
		r.stop(t)
		completed = provided && removed
	}
}

// dieAfter runs the backend until isDone returns nil, or the backend crashes after n writes. In the latter case it restarts the backend.
func (r *run) dieAfter(t testing.TB, n int, isDone func(context.Context) error) (done bool) {
	t.Helper()
	r.startBackend(t)
	r.provider.faults.killAfter(n)
	r.eventually(t, "the backend is done or dies", func(ctx context.Context) error {
		if r.provider.faults.isDead() {
			return nil
		}
		err := isDone(ctx)
		done = err == nil
		return err
	})
	if done {
		r.provider.faults.killAfter(-1)
		if !r.provider.faults.isDead() {
			return true
		}
	}
	r.kill(t)
	r.startBackend(t)
	return done
}

func (t *tenant) isReady(ctx context.Context, name string) error {
	object, err := t.instances().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if phase, _, _ := unstructured.NestedString(object.Object, "status", "phase"); phase != string(infrastructurev1alpha1.PhaseReady) {
		return errors.New("it is " + phase)
	}
	return nil
}

func (t *tenant) isGone(ctx context.Context, name string) error {
	list, err := t.instances().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err == nil && len(list.Items) > 0 {
		err = errors.New("it is there")
	}
	return err
}
