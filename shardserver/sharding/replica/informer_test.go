package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/logicalcluster"
	_ "github.com/atoll-dev/atoll/shardserver/apis/install"
)

var (
	workspaceTypes = tenancyv1alpha1.Resource("workspacetypes")
	clusterRoles   = schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}
)

// testResources are the resources of the tests.
func testResources(t *testing.T) []client.Resource {
	t.Helper()
	var all []client.Resource
	for _, gr := range []struct{ group, resource string }{
		{tenancyv1alpha1.SchemeGroupVersion.Group, "workspacetypes"}, {corev1alpha1.SchemeGroupVersion.Group, "shards"},
		{shardingv1alpha1.GroupName, "shardreports"}, {shardingv1alpha1.GroupName, "exportconsumers"},
	} {
		for _, resource := range client.Resources() {
			if resource.Group == gr.group && resource.Resource == gr.resource {
				all = append(all, resource)
			}
		}
	}
	return all
}

// env is a cache, for which tests write as the shards root and beta, and the informer of shard alpha.
type env struct {
	t        *testing.T
	cache    *cachetesting.Cache
	informer *Informer
	// stop stops the informer.
	stop    func()
	clients map[string]*client.Client
}

// client returns the client of a shard.
func (e *env) client(shard string) *client.Client {
	e.t.Helper()
	if e.clients[shard] == nil {
		e.clients[shard] = e.cache.Client(e.t, shard)
	}
	return e.clients[shard]
}

func newEnv(t *testing.T) *env {
	t.Helper()
	w := &env{t: t, cache: cachetesting.Start(t), clients: map[string]*client.Client{}}
	w.start(New(Config{Shard: "alpha", Root: "root", Resources: testResources(t)}))
	return w
}

func (e *env) start(m *Informer) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	cache := e.client("alpha")
	running.Go(func() { m.Run(ctx, cache) })
	e.informer = m
	e.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	e.t.Cleanup(e.stop)
}

// emptyCache deletes everything in the cache.
func (e *env) emptyCache() {
	e.t.Helper()
	if err := e.cache.Stop(); err != nil {
		e.t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(e.cache.Directory, "root")); err != nil {
		e.t.Fatal(err)
	}
	e.cache.Restart(e.t)
}

func (e *env) publish(shard, cluster string, obj client.Publishable) {
	e.t.Helper()
	var resource client.Resource
	switch obj.(type) {
	case *tenancyv1alpha1.WorkspaceType:
		resource, _ = client.FindResource(workspaceTypes)
	case *corev1alpha1.Shard:
		resource, _ = client.FindResource(shards)
	case *shardingv1alpha1.ShardReport:
		resource, _ = client.FindResource(shardReports)
	case *shardingv1alpha1.ExportConsumers:
		resource, _ = client.FindResource(exportConsumers)
	}
	if _, err := e.client(shard).Create(e.t.Context(), resource.GroupVersionResource, logicalcluster.MustParseName(cluster), obj); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) remove(resource client.Resource, shard, cluster, name string) {
	e.t.Helper()
	key := client.Key{Shard: shard, Cluster: logicalcluster.MustParseName(cluster), Name: name}
	if err := e.client(shard).Delete(e.t.Context(), resource.GroupVersionResource, key, ""); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) reportComplete(shard string) {
	e.t.Helper()
	e.publish(shard, "root", &shardingv1alpha1.ShardReport{ObjectMeta: objectMeta(shard), Spec: shardingv1alpha1.ShardReportSpec{Beat: 1, Complete: true}})
}

func (e *env) register(shard string) {
	e.t.Helper()
	e.publish("root", "root", &corev1alpha1.Shard{ObjectMeta: objectMeta(shard), Spec: corev1alpha1.ShardSpec{BaseURL: "https://shard"}})
}

func objectMeta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func newWorkspaceType(name string) *tenancyv1alpha1.WorkspaceType {
	return &tenancyv1alpha1.WorkspaceType{ObjectMeta: objectMeta(name)}
}

// hasTypes returns nil if a logical cluster has exactly these types.
func (e *env) hasTypes(cluster string, names ...string) func() error {
	return func() error {
		found := map[string]bool{}
		for _, obj := range e.informer.List(workspaceTypes, logicalcluster.MustParseName(cluster)) {
			found[obj.(*tenancyv1alpha1.WorkspaceType).Name] = true
		}
		for _, name := range names {
			if _, ok := e.informer.Get(workspaceTypes, logicalcluster.MustParseName(cluster), "", name); !ok || !found[name] {
				return fmt.Errorf("%q is missing; found %v", name, found)
			}
		}
		if len(found) != len(names) {
			return fmt.Errorf("got %v, want %v", found, names)
		}
		return nil
	}
}

func eventually(t *testing.T, description string, condition func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = condition()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v", description, last)
	}
}

// TestEmptiedCache: objects are deleted only when their shard is complete.
func TestEmptiedCache(t *testing.T) {
	w := newEnv(t)
	if err := w.informer.CheckSynced(workspaceTypes); err == nil {
		t.Error("synced before the first list")
	}
	w.register("root")
	w.register("alpha")
	w.register("beta")
	w.publish("root", "root", newWorkspaceType("universal"))
	w.publish("beta", "one", newWorkspaceType("stays"))
	w.publish("beta", "one", newWorkspaceType("goes"))
	w.reportComplete("root")
	eventually(t, "the types", w.hasTypes("one", "stays", "goes"))
	eventually(t, "beta to be the shard that is not complete", func() error {
		if err := w.informer.CheckSynced(workspaceTypes); err == nil || !strings.Contains(err.Error(), "beta") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	w.reportComplete("beta")
	eventually(t, "the informer to be synced", func() error { return w.informer.CheckSynced(workspaceTypes) })

	w.emptyCache()
	eventually(t, "the watches to be open again", w.checkConnected)
	if err := errors.Join(w.hasTypes("one", "stays", "goes")(), w.hasTypes("root", "universal")(), w.informer.CheckSynced(workspaceTypes)); err != nil {
		t.Errorf("an emptied cache has changed the informer: %v", err)
	}
	w.publish("beta", "one", newWorkspaceType("stays"))
	w.publish("beta", "one", newWorkspaceType("new"))
	eventually(t, "the new type", w.hasTypes("one", "stays", "goes", "new"))
	w.reportComplete("beta")
	eventually(t, "the deletion of the missing type", w.hasTypes("one", "stays", "new"))
	if err := w.hasTypes("root", "universal")(); err != nil {
		t.Errorf("objects of root were deleted because beta is complete: %v", err)
	}
}

// checkConnected returns why the informer does not watch the current store of the cache.
func (e *env) checkConnected() error {
	if lag := e.informer.Lag(); lag > 0 {
		return fmt.Errorf("closed for %s", lag)
	}
	_, at, err := e.client("alpha").List(e.t.Context(), testResources(e.t)[0].GroupVersionResource)
	if err != nil {
		return err
	}
	for gr := range e.informer.stores {
		if incarnation, known := e.informer.PublishedIncarnation(gr); !known || incarnation != at.Incarnation {
			return fmt.Errorf("%s are of store %q, want %q", gr, incarnation, at.Incarnation)
		}
	}
	return nil
}

// TestRemovedShard: objects of a shard are deleted when it is neither registered nor has a report.
func TestRemovedShard(t *testing.T) {
	w := newEnv(t)
	w.register("root")
	w.register("beta")
	w.publish("beta", "one", newWorkspaceType("a"))
	w.reportComplete("beta")
	w.reportComplete("root")
	eventually(t, "the type", w.hasTypes("one", "a"))
	w.emptyCache()
	w.register("root")
	w.reportComplete("root")
	eventually(t, "the deletion of the type", w.hasTypes("one"))
}

func labelled(name, label string) *corev1alpha1.Shard {
	shard := &corev1alpha1.Shard{ObjectMeta: objectMeta(name), Spec: corev1alpha1.ShardSpec{BaseURL: "https://shard"}}
	shard.Labels = map[string]string{"name": label}
	return shard
}

// TestTrustPolicy: only the root shard publishes in root, and in system:shard each shard its own Shard.
func TestTrustPolicy(t *testing.T) {
	w := newEnv(t)
	w.publish("beta", "root", newWorkspaceType("forged"))
	w.publish("beta", "system:admin", newWorkspaceType("forged"))
	w.publish("beta", "root", &corev1alpha1.Shard{ObjectMeta: objectMeta("forged")})
	w.publish("beta", "one", &corev1alpha1.Shard{ObjectMeta: objectMeta("forged")})
	w.publish("beta", "system:shard", labelled("gamma", "gamma"))
	w.publish("alpha", "system:shard", labelled("alpha", "beta"))
	w.publish("beta", "system:shard", labelled("beta", "beta"))
	w.publish("beta", "root", &shardingv1alpha1.ShardReport{ObjectMeta: objectMeta("gamma")})
	w.publish("beta", "root", &shardingv1alpha1.ExportConsumers{ObjectMeta: objectMeta("tenancy.kcp.io")})
	w.publish("root", "root", &shardingv1alpha1.ExportConsumers{ObjectMeta: objectMeta("tenancy.kcp.io")})
	w.publish("alpha", "root", &shardingv1alpha1.ExportConsumers{ObjectMeta: objectMeta("tenancy.kcp.io")})
	forged := newWorkspaceType("forged")
	forged.Annotations = map[string]string{logicalcluster.PathAnnotationKey: "root"}
	w.publish("beta", "one", forged)
	w.publish("beta", "one", newWorkspaceType("last"))
	eventually(t, "the trusted objects", func() error {
		if known := w.informer.List(exportConsumers, logicalcluster.Root); len(known) != 2 {
			return fmt.Errorf("got %d consumers, want those of root and beta", len(known))
		}
		return w.hasTypes("one", "last")()
	})
	eventually(t, "all watches", w.checkConnected)
	for gr, want := range map[string]int{"workspacetypes": 1, "shards": 1, "shardreports": 0} {
		for known, store := range w.informer.stores {
			if count, _ := store.size(); known.Resource == gr && count != want {
				t.Errorf("%d %s are trusted, want %d", count, gr, want)
			}
		}
	}
}

// TestWatches sends changes to all watchers and leaks no goroutine.
func TestWatches(t *testing.T) {
	w := newEnv(t)
	w.publish("beta", "one", newWorkspaceType("a"))
	eventually(t, "the type", w.hasTypes("one", "a"))
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := w.informer.Watch(ctx, workspaceTypes)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(change watch.EventType, name string) {
		t.Helper()
		event := <-stream.ResultChan()
		if event.Type != change || (name != "" && event.Object.(metav1.Object).GetName() != name) {
			t.Fatalf("got %s %v, want %s %s", event.Type, event.Object, change, name)
		}
	}
	expect(watch.Added, "a")
	expect(watch.Bookmark, "")
	w.publish("beta", "two", newWorkspaceType("b"))
	expect(watch.Added, "b")
	resource, _ := client.FindResource(workspaceTypes)
	w.remove(resource, "beta", "one", "a")
	expect(watch.Deleted, "a")
	if n := len(w.informer.stores[workspaceTypes].clusters); n != 1 {
		t.Errorf("%d logical clusters are indexed, want 1", n)
	}
	cancel()
	for range stream.ResultChan() {
		t.Error("an event after the watch ended")
	}
	w.stop()
	// Goroutines of the cache server and its connections remain; none of the informer may.
	if err := goleak.Find(before); err != nil && strings.Contains(err.Error(), "atoll/shardserver/sharding/replica.(") {
		t.Error(err)
	}
}

// TestSlowWatcher: a watcher that does not read loses its watch and does not block others.
func TestSlowWatcher(t *testing.T) {
	store := newStore(New(Config{Shard: "alpha", Root: "root"}), testResources(t)[0])
	stream := store.watch(t.Context())
	for version := range maxPending + 2 {
		store.mu.Lock()
		store.put("beta", fmt.Sprint(version), newWorkspaceType("a"))
		store.mu.Unlock()
	}
	for range stream.ResultChan() {
	}
	eventually(t, "the watcher to be removed", func() error {
		store.mu.RLock()
		defer store.mu.RUnlock()
		if len(store.watchers) > 0 {
			return errors.New("it is still registered")
		}
		return nil
	})
}

// TestSameNameFromSeveralShards: Get returns the object of the first shard by name, in any order of additions and
// deletions.
func TestSameNameFromSeveralShards(t *testing.T) {
	store := newStore(New(Config{Shard: "alpha", Root: "root"}), testResources(t)[0])
	cluster := logicalcluster.MustParseName("one")
	put := func(shard string) {
		obj := newWorkspaceType("a")
		obj.Annotations = map[string]string{logicalcluster.AnnotationKey: "one", client.ShardAnnotation: shard}
		store.put(shard, "1", obj)
	}
	remove := func(shard string) { store.remove(client.Key{Shard: shard, Cluster: cluster, Name: "a"}) }
	expect := func(first string, count int) {
		t.Helper()
		obj, found := store.get(objectKey{cluster, "", "a"})
		if found != (count > 0) || len(store.list(cluster)) != count || len(store.all()) != count {
			t.Fatalf("found %t, %d of the cluster, %d in all, want %d", found, len(store.list(cluster)), len(store.all()), count)
		}
		if found && obj.(*tenancyv1alpha1.WorkspaceType).Annotations[client.ShardAnnotation] != first {
			t.Errorf("got that of %v, want %s", obj.(*tenancyv1alpha1.WorkspaceType).Annotations, first)
		}
	}
	put("c")
	put("a")
	put("d")
	put("b")
	expect("a", 4)
	remove("a")
	expect("b", 3)
	remove("c")
	remove("missing")
	expect("b", 2)
	remove("d")
	remove("b")
	expect("", 0)
	if len(store.objects)+len(store.clusters) != 0 {
		t.Errorf("%v and %v are left", store.objects, store.clusters)
	}
}

// A shard that publishes and deletes an object of another shard's name does not delete the other object.
func TestWatchSameNameFromSeveralShards(t *testing.T) {
	resource, _ := client.FindResource(workspaceTypes)
	store := newStore(New(Config{Shard: "alpha", Root: "root"}), resource)
	put := func(shard, version string) {
		obj := newWorkspaceType("a")
		obj.Annotations = map[string]string{logicalcluster.AnnotationKey: "one", client.ShardAnnotation: shard}
		store.put(shard, version, obj)
	}
	remove := func(shard string) {
		store.remove(client.Key{Shard: shard, Cluster: logicalcluster.MustParseName("one"), Name: "a"})
	}
	put("d", "1")
	put("c", "1")
	stream := store.watch(t.Context())
	defer stream.Stop()
	expect := func(change watch.EventType, shard string) {
		t.Helper()
		event := <-stream.ResultChan()
		if got := event.Object.(metav1.Object).GetAnnotations()[client.ShardAnnotation]; event.Type != change || got != shard {
			t.Fatalf("got %s of %q, want %s of %q", event.Type, got, change, shard)
		}
	}
	expect(watch.Added, "c")
	expect(watch.Bookmark, "")
	put("a", "1")
	expect(watch.Modified, "a")
	put("c", "2")
	expect(watch.Modified, "a")
	remove("a")
	expect(watch.Modified, "c")
	remove("d")
	expect(watch.Modified, "c")
	remove("c")
	expect(watch.Deleted, "c")
}
