package syncagent

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/test/installation"
)

const slowFinalizer = "example.org/slow"

func TestS10DeletionWaitsForTheCopy(t *testing.T) {
	t.Parallel()
	e, kind := newPublished(t)
	c := e.Consumer(t, installation.Alpha)
	object := newObject(kind, "default", "one", map[string]any{"a": "b"})
	c.New(t, object)
	copied := e.Copy(t, kind, c, object)
	shardtesting.Eventually(t, "there is one state", func(ctx context.Context) error {
		if states := e.states(ctx, t, c); len(states) != 1 {
			return fmt.Errorf("the states are %v", states)
		}
		return nil
	})
	patch(t, e.Service, copied, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, slowFinalizer))
	if err := c.Delete(t.Context(), object.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the copy is being deleted", func(ctx context.Context) error {
		current, err := get(ctx, e.Service, copied)
		if err == nil && current.GetDeletionTimestamp() == nil {
			err = fmt.Errorf("it is not")
		}
		return err
	})
	if current, err := get(t.Context(), c, object); err != nil || !slices.Contains(current.GetFinalizers(), publication.Finalizer) {
		t.Errorf("the object does not wait for its copy: %v, %v", current.GetFinalizers(), err)
	}
	patch(t, e.Service, copied, `{"metadata":{"finalizers":null}}`)
	expectGone(t, e.Service, copied)
	expectGone(t, c, object)
	if states := e.states(t.Context(), t, c); len(states) > 0 {
		t.Errorf("the states %v are left", states)
	}
	expectEvents(t, c, "ObjectAccepted", "ObjectPlaced", "ObjectCleanup", "ObjectDeleted")
}

func TestS12CopyThatHasLostItsLabelsIsAdopted(t *testing.T) {
	t.Parallel()
	e, kind := newPublished(t)
	c := e.Consumer(t, installation.Beta)
	object := newObject(kind, "default", "one", map[string]any{"a": "b"})
	c.New(t, object)
	copied := e.Copy(t, kind, c, object)
	patch(t, e.Service, copied, `{"metadata":{"labels":null,"annotations":null},"spec":{"a":"changed by hand"}}`)
	again := e.Copy(t, kind, c, object)
	if again.GetUID() != copied.GetUID() {
		t.Error("there is another copy")
	}
	patch(t, c, object, `{"spec":{"b":"added"}}`)
	expectSpec(t, e.Service, copied, map[string]any{"a": "changed by hand", "b": "added"})
	patch(t, c, object, `{"spec":{"a":"changed"}}`)
	expectSpec(t, e.Service, copied, map[string]any{"a": "changed", "b": "added"})
}

func TestS14TerminatingCopyIsNotUpdated(t *testing.T) {
	t.Parallel()
	e, kind := newPublished(t)
	c := e.Consumer(t, installation.Root)
	object := newObject(kind, "default", "one", map[string]any{"a": "b"})
	c.New(t, object)
	copied := e.Copy(t, kind, c, object)
	patch(t, e.Service, copied, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, slowFinalizer))
	if err := e.Service.Delete(t.Context(), copied.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	dying, err := get(t.Context(), e.Service, copied)
	if err != nil {
		t.Fatal(err)
	}
	patch(t, c, object, `{"spec":{"a":"changed"}}`)
	marker := newObject(kind, "default", "marker", map[string]any{}) // synced later by the same workers
	c.New(t, marker)
	e.Copy(t, kind, c, marker)
	if current, err := get(t.Context(), e.Service, copied); err != nil || current.GetResourceVersion() != dying.GetResourceVersion() {
		t.Errorf("the terminating copy was written: %v, %v", current, err)
	}
	patch(t, e.Service, copied, `{"metadata":{"finalizers":null}}`)
	shardtesting.Eventually(t, "there is another copy", func(ctx context.Context) error {
		current, err := get(ctx, e.Service, copied)
		if err == nil && current.GetUID() == copied.GetUID() {
			err = fmt.Errorf("it is the same")
		}
		return err
	})
	expectSpec(t, e.Service, copied, map[string]any{"a": "changed"})
}

// states returns the names of the states of a workspace's objects.
func (e *env) states(ctx context.Context, t *testing.T, c *consumer) (names []string) {
	t.Helper()
	list := &corev1.SecretList{}
	if err := e.Service.List(ctx, list, client.InNamespace(e.Namespace), client.MatchingLabels{
		publication.LabelObjectState: "true", publication.LabelRemoteCluster: c.Cluster,
	}); err != nil {
		t.Fatal(err)
	}
	for _, secret := range list.Items {
		names = append(names, secret.Name)
	}
	return names
}

// expectEvents waits until a workspace has events with these reasons.
func expectEvents(t *testing.T, c *consumer, reasons ...string) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("the events %v", reasons), func(ctx context.Context) error {
		list := &corev1.EventList{}
		if err := c.List(ctx, list); err != nil {
			return err
		}
		found := map[string]bool{}
		for _, event := range list.Items {
			found[event.Reason] = true
		}
		for _, reason := range reasons {
			if !found[reason] {
				return fmt.Errorf("the reasons are %v", found)
			}
		}
		return nil
	})
}
