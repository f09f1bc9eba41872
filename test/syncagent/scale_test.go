package syncagent

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// Bound workspaces without objects need no watch, no goroutine and no request of the agent.
func TestIdleWorkspacesCostNothing(t *testing.T) {
	const idle = 100
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	e.Publish(t, "widgets", Of(kind))
	requests := newTraffic()
	e.AgentOver(t, requests.observe)
	for _, shard := range []string{installation.Root, installation.Alpha, installation.Beta} {
		c := e.Consumer(t, shard)
		object := newObject(kind, "default", "one", map[string]any{})
		c.New(t, object)
		e.Copy(t, kind, c, object)
	}
	goroutines := func() int {
		runtime.GC()
		return runtime.NumGoroutine()
	}
	watches, before := requests.allWatches(), goroutines()
	e.bindIdle(t, idle)
	// The agent has processed the earlier events when it has served a newer workspace.
	c := e.Consumer(t, installation.Alpha)
	object := newObject(kind, "default", "one", map[string]any{})
	c.New(t, object)
	e.Copy(t, kind, c, object)
	if diff := cmp.Diff(watches, requests.allWatches()); diff != "" {
		t.Errorf("open watches (-before +after):\n%s", diff)
	}
	shardtesting.Eventually(t, "the number of goroutines is that of before", func(context.Context) error {
		if after := goroutines(); after > before+idle/10 {
			return fmt.Errorf("there are %d, before %d", after, before)
		}
		return nil
	})
}

// bindIdle creates workspaces on all shards that bind the export.
func (e *env) bindIdle(t *testing.T, count int) {
	t.Helper()
	base := e.Admin(t, "root")
	base.Host = e.URL
	clients, err := loopback.NewClients(base)
	if err != nil {
		t.Fatal(err)
	}
	defer clients.HTTP.CloseIdleConnections()
	shards := e.Shards()
	var group errgroup.Group
	group.SetLimit(8)
	for n := range count {
		group.Go(func() error {
			name := fmt.Sprintf("%s-idle-%d", e.Name, n)
			workspace := shardtesting.NewWorkspace(t, clients.Typed, "root", name, shardtesting.OnShard(shards[n%len(shards)]))
			binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "service"}}
			binding.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: e.ProviderPath, Name: e.Name}
			return clients.Typed.Create(shardtesting.In(context.Background(), workspace.Spec.Cluster), binding)
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// An object that cannot be synced, and a workspace full of them, do not delay others.
func TestFailingObjectsHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	e, kind := newPublished(t)
	bad, good := e.Consumer(t, installation.Alpha), e.Consumer(t, installation.Alpha)
	// The namespace for the copies of the first workspace exists and is being deleted.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: bad.Cluster, Finalizers: []string{"example.org/held"}}}
	create(t, e.Service, namespace)
	if err := e.Service.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		bad.New(t, newObject(kind, "default", fmt.Sprintf("w%d", n), map[string]any{}))
	}
	for n := range 5 {
		object := newObject(kind, "default", fmt.Sprintf("w%d", n), map[string]any{})
		good.New(t, object)
		e.Copy(t, kind, good, object)
	}
	if copies, err := e.Copies(t.Context(), kind, bad, newObject(kind, "default", "w0", nil)); err != nil || len(copies) > 0 {
		t.Errorf("there are %d copies in a namespace that is being deleted, %v", len(copies), err)
	}
}

// The agent deletes namespaces that it has created with their last copy, unless they contain other objects (#113).
func TestEmptyNamespacesAreDeleted(t *testing.T) {
	t.Parallel()
	e, kind := newPublished(t)
	first, second := e.Consumer(t, installation.Alpha), e.Consumer(t, installation.Beta)
	for _, c := range []*consumer{first, second} {
		object := newObject(kind, "default", "one", map[string]any{})
		c.New(t, object)
		e.Copy(t, kind, c, object)
	}
	create(t, e.Service, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: first.Cluster, Name: "of-the-service"}})
	for _, c := range []*consumer{first, second} {
		if err := c.Delete(t.Context(), newObject(kind, "default", "one", nil)); err != nil {
			t.Fatal(err)
		}
	}
	deleted := func(ctx context.Context, c *consumer) (bool, error) {
		namespace := &corev1.Namespace{}
		err := e.Service.Get(ctx, client.ObjectKey{Name: c.Cluster}, namespace)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	shardtesting.Eventually(t, "the empty namespace is deleted", func(ctx context.Context) error {
		if gone, err := deleted(ctx, second); err != nil || !gone {
			return fmt.Errorf("deleted: %t, %w", gone, err)
		}
		return nil
	})
	if gone, err := deleted(t.Context(), first); err != nil || gone {
		t.Errorf("the namespace with a ConfigMap of the service is deleted: %t, %v", gone, err)
	}
}
