package syncagent

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// A PublishedResource has at most one sync: the agent has one watch for each endpoint and one for copies, however often the
// PublishedResource changes, and none when it is disabled or deleted (#182).
func TestPublishedResourceHasAtMostOneSync(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	published := e.Publish(t, "widgets", Of(kind))
	requests := newTraffic()
	e.AgentOver(t, requests.observe)
	alpha, beta := e.Consumer(t, installation.Alpha), e.Consumer(t, installation.Beta)
	const running = 3 // two endpoints and the service cluster
	requests.expectWatches(t, "widgets", running)
	for round := range 5 {
		patch(t, e.Service, published, fmt.Sprintf(`{"spec":{"naming":{"name":"round-%d-{{ .Object.metadata.name }}"}}}`, round))
	}
	shardtesting.Eventually(t, "the last round is synced", func(ctx context.Context) error { // names are decided once
		current := &syncagentv1alpha1.PublishedResource{}
		if err := e.Service.Get(ctx, client.ObjectKeyFromObject(published), current); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(current.Status.Conditions, syncagentv1alpha1.ConditionSyncing)
		if condition == nil || condition.ObservedGeneration != current.Generation {
			return fmt.Errorf("generation %d, condition %+v", current.Generation, condition)
		}
		return nil
	})
	object := newObject(kind, "default", "one", map[string]any{})
	alpha.New(t, object)
	shardtesting.Eventually(t, "the copy has the name of the last round", func(ctx context.Context) error {
		copies, err := e.Copies(ctx, kind, alpha, object)
		if err == nil && (len(copies) != 1 || copies[0].GetName() != "round-4-one") {
			err = fmt.Errorf("copies are %v", copies)
		}
		return err
	})
	requests.expectWatches(t, "widgets", running)

	patch(t, e.Service, published, `{"spec":{"synchronization":{"enabled":false}}}`)
	requests.expectWatches(t, "widgets", 0)
	e.expectCondition(t, published, syncagentv1alpha1.ConditionSyncing, metav1.ConditionFalse)
	other := newObject(kind, "default", "two", map[string]any{})
	beta.New(t, other)
	if err := alpha.Delete(t.Context(), object.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	patch(t, e.Service, published, `{"spec":{"synchronization":{"enabled":true}}}`)
	e.Copy(t, kind, beta, other)
	expectGone(t, alpha, object)
	requests.expectWatches(t, "widgets", running)
	e.expectCondition(t, published, syncagentv1alpha1.ConditionSyncing, metav1.ConditionTrue)

	if err := e.Service.Delete(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	requests.expectWatches(t, "widgets", 0)
	if current, err := get(t.Context(), beta, other); err != nil || len(current.GetFinalizers()) != 1 {
		t.Errorf("the object has the finalizers %v, %v: copies and finalizers stay", current.GetFinalizers(), err)
	}
}

// After a restart with everything in sync, the agent reconciles each object and writes nothing.
func TestNothingIsWrittenWhenNothingChanged(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	e.Publish(t, "widgets", Of(kind))
	first := e.Agent(t)
	c := e.Consumer(t, installation.Alpha)
	const count = 20
	for n := range count {
		object := newObject(kind, "default", fmt.Sprintf("w%d", n), map[string]any{"n": int64(n), "ratio": 0.5, "empty": map[string]any{}})
		c.New(t, object)
		copied := e.Copy(t, kind, c, object)
		copied.Object["status"] = map[string]any{"ready": true}
		if err := e.Service.Status().Update(t.Context(), copied); err != nil {
			t.Fatal(err)
		}
		expectStatus(t, c, object)
	}
	first.Stop(t)
	requests := newTraffic()
	e.AgentOver(t, requests.observe)
	shardtesting.Eventually(t, "the agent has looked at all objects", func(context.Context) error {
		if reads := requests.readsOf("secrets"); reads < count {
			return fmt.Errorf("it has read %d states", reads)
		}
		return nil
	})
	marker := newObject(kind, "default", "marker", map[string]any{})
	before := requests.takeWrites()
	c.New(t, marker)
	e.Copy(t, kind, c, marker)
	if len(before) > 0 {
		t.Errorf("the agent wrote %v", before)
	}
}

func expectStatus(t *testing.T, c client.Client, object *unstructured.Unstructured) {
	t.Helper()
	shardtesting.Eventually(t, "the status of "+object.GetName(), func(ctx context.Context) error {
		current, err := get(ctx, c, object)
		if err == nil && current.Object["status"] == nil {
			err = fmt.Errorf("it has none")
		}
		return err
	})
}

func (t *traffic) expectWatches(test *testing.T, resource string, want int) {
	test.Helper()
	shardtesting.Eventually(test, fmt.Sprintf("%d watches of %s are open", want, resource), func(context.Context) error {
		if open := t.openWatches(resource); open != want {
			return fmt.Errorf("%d are open", open)
		}
		return nil
	})
}

// expectCondition waits for the status of a condition.
func (e *env) expectCondition(t *testing.T, published *syncagentv1alpha1.PublishedResource, kind string, want metav1.ConditionStatus) (found *metav1.Condition) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("%s of %s is %s", kind, published.Name, want), func(ctx context.Context) error {
		current := &syncagentv1alpha1.PublishedResource{}
		if err := e.Service.Get(ctx, client.ObjectKeyFromObject(published), current); err != nil {
			return err
		}
		if found = meta.FindStatusCondition(current.Status.Conditions, kind); found == nil || found.Status != want {
			return fmt.Errorf("it is %+v", found)
		}
		return nil
	})
	return found
}
