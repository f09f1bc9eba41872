package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwait "k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// TestChangesOfAnExportAreWrittenTogether checks that changes that arrive during a write of an export become one write, and that a change that
// the server refuses does not block others.
func TestChangesOfAnExportAreWrittenTogether(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := apisv1alpha2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("the entry is refused")
	var writes atomic.Int64
	release := make(chan struct{})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "one"}}).
		WithInterceptorFuncs(interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			writes.Add(1)
			<-release
			if slices.ContainsFunc(object.(*apisv1alpha2.APIExport).Spec.Resources, IsEntryOf("refused", "g")) {
				return refused
			}
			return c.Update(ctx, object, options...)
		}}).Build()
	w := &Writer{}
	// wait waits until one change is being written, and the given number of others are pending.
	wait := func(begun, waiting int) {
		t.Helper()
		err := apiwait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			batch := w.waiting["one"]
			return int(writes.Load()) == begun && (waiting == 0) == (batch == nil) && (batch == nil || len(batch.changes) == waiting), nil
		})
		if err != nil {
			t.Fatalf("waiting for %d writes and %d changes: %v", begun, waiting, err)
		}
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	results := map[string]error{}
	list := func(resource string) {
		running.Go(func() {
			err := w.Change(t.Context(), c, c, "one", Set(apisv1alpha2.ResourceSchema{Name: resource, Group: "g"}))
			mu.Lock()
			defer mu.Unlock()
			results[resource] = err
		})
	}
	list("first")
	wait(1, 0)
	for i := range 20 {
		list(fmt.Sprint("together", i))
		wait(1, i+1)
	}
	release <- struct{}{}
	release <- struct{}{}
	running.Wait()
	if got := writes.Load(); got != 2 {
		t.Errorf("21 changes were %d writes", got)
	}
	list("second")
	wait(3, 0)
	list("refused")
	list("accepted")
	wait(3, 2)
	close(release)
	running.Wait()
	for resource, err := range results {
		if want := resource == "refused"; errors.Is(err, refused) != want || err != nil && !want {
			t.Errorf("%s: %v", resource, err)
		}
	}
	export := &apisv1alpha2.APIExport{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "one"}, export); err != nil {
		t.Fatal(err)
	}
	if got := len(export.Spec.Resources); got != 23 {
		t.Errorf("the export has %d entries", got)
	}
	if len(w.waiting) > 0 {
		t.Errorf("%d exports are kept", len(w.waiting))
	}
}

func TestChangedEntries(t *testing.T) {
	entry := func(group, name, schema string) apisv1alpha2.ResourceSchema {
		return apisv1alpha2.ResourceSchema{Group: group, Name: name, Schema: schema}
	}
	before := []apisv1alpha2.ResourceSchema{entry("g", "kept", "1"), entry("g", "changed", "1"), entry("g", "moved", "1"), entry("g", "removed", "1"), entry("other", "changed", "1")}
	moved := entry("g", "moved", "1")
	moved.Storage.Virtual = &apisv1alpha2.ResourceSchemaStorageVirtual{IdentityHash: "1"}
	after := []apisv1alpha2.ResourceSchema{entry("other", "changed", "2"), entry("g", "added", "1"), entry("g", "changed", "2"), moved, entry("g", "kept", "1")}
	if got := ChangedEntries(before, after, "g"); !slices.Equal(got, []string{"added", "changed", "moved", "removed"}) {
		t.Errorf("got %v", got)
	}
}
