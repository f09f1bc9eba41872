package syncagent

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// A deleted binding exists until its objects are deleted, and these exist until the agent has removed their copies: the view of the
// export serves both until then.
func TestUnbindingRemovesCopies(t *testing.T) {
	t.Parallel()
	e, kind := newPublished(t)
	for _, shard := range []string{installation.Root, installation.Beta} {
		c := e.Consumer(t, shard)
		object := newObject(kind, "default", "one", map[string]any{})
		c.New(t, object)
		e.Copy(t, kind, c, object)
		binding := &apisv1alpha1.APIBinding{}
		binding.Name = "service"
		if err := c.Delete(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		expectGone(t, c, binding)
		expectNoCopy(t, e, kind, c, object)
		c.Bind(t, e, claims...)
		c.New(t, newObject(kind, "default", "one", map[string]any{}))
		e.Copy(t, kind, c, object)
	}
}

func TestDeletionOfAWorkspaceRemovesCopies(t *testing.T) {
	t.Parallel()
	e, kind := newPublished(t)
	c := e.Consumer(t, installation.Alpha)
	object := newObject(kind, "default", "one", map[string]any{})
	c.New(t, object)
	e.Copy(t, kind, c, object)
	root, err := client.New(e.Admin(t, "root"), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	workspace := &unstructured.Unstructured{}
	workspace.SetGroupVersionKind(tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace"))
	workspace.SetName(c.Name)
	if err := root.Delete(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	expectGone(t, root, workspace)
	expectNoCopy(t, e, kind, c, object)
}

func expectGone(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("%T %s is gone", object, object.GetName()), func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%w; %v", err, object)
	})
}

func expectNoCopy(t *testing.T, e *env, kind schema.GroupVersionKind, c *consumer, object *unstructured.Unstructured) {
	t.Helper()
	shardtesting.Eventually(t, "there is no copy of "+object.GetName(), func(ctx context.Context) error {
		copies, err := e.Copies(ctx, kind, c, object)
		if err == nil && len(copies) > 0 {
			err = fmt.Errorf("there are %d", len(copies))
		}
		return err
	})
}

// The endpoint of a shard appears with its first consumer and disappears with the last one; the running agent connects and disconnects
// accordingly.
func TestEndpointsAreFollowed(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	e.Publish(t, "widgets", Of(kind))
	requests := newTraffic()
	e.AgentOver(t, requests.observe)
	requests.expectWatches(t, "widgets", 1) // the copies
	e.Consumer(t, installation.Alpha)
	requests.expectWatches(t, "widgets", 2)
	c := e.Consumer(t, installation.Beta)
	requests.expectWatches(t, "widgets", 3)
	binding := &apisv1alpha1.APIBinding{}
	binding.Name = "service"
	if err := c.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	requests.expectWatches(t, "widgets", 2)
	expectGone(t, c, binding)
	c.Bind(t, e, claims...)
	requests.expectWatches(t, "widgets", 3)
	object := newObject(kind, "default", "one", map[string]any{})
	c.New(t, object)
	e.Copy(t, kind, c, object)
}
