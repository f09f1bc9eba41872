package cacheserver_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/cacheserver"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/options"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func setGlobalReach(u *unstructured.Unstructured) {
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[client.ReachAnnotation] = client.ReachGlobal
	u.SetAnnotations(annotations)
}

// withParent configures a cache with a parent.
func withParent(t testing.TB, parent *cachetesting.Cache, name string) func(*options.Options) {
	t.Helper()
	kubeconfig := parent.Kubeconfig(t, parent.User(t, cacheserver.CacheUserPrefix+name, cacheserver.CacheGroup))
	return func(o *options.Options) {
		o.Name, o.ParentKubeconfig = name, kubeconfig
		o.ShardTimeout = 5 * time.Second
	}
}

// publisher publishes objects as a shard does.
type publisher struct {
	*client.Client
	t          *testing.T
	shard      string
	heartbeats int64
}

func newPublisher(t *testing.T, cacheServer *cachetesting.Cache, shard string) *publisher {
	t.Helper()
	return &publisher{Client: cacheServer.Client(t, shard), t: t, shard: shard}
}

// put creates or updates an object.
func (p *publisher) put(gvr schema.GroupVersionResource, cluster logicalcluster.Name, obj *unstructured.Unstructured) {
	p.t.Helper()
	obj = obj.DeepCopy()
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[client.ShardAnnotation] = p.shard
	obj.SetAnnotations(annotations)
	var err error
	for range 10 {
		var existing *client.Object
		existing, err = p.Get(p.t.Context(), gvr, client.Key{Shard: p.shard, Cluster: cluster, Name: obj.GetName()})
		if apierrors.IsNotFound(err) {
			_, err = p.Create(p.t.Context(), gvr, cluster, obj)
		} else if err == nil {
			obj.SetResourceVersion(existing.Meta.ResourceVersion)
			_, err = p.Update(p.t.Context(), gvr, cluster, obj)
		}
		if err == nil {
			return
		}
		obj.SetResourceVersion("")
	}
	p.t.Fatal(err)
}

func (p *publisher) remove(gvr schema.GroupVersionResource, cluster logicalcluster.Name, name string) {
	p.t.Helper()
	if err := p.Delete(p.t.Context(), gvr, client.Key{Cluster: cluster, Name: name}, ""); err != nil {
		p.t.Fatal(err)
	}
}

// publishReport publishes the report of the shard.
func (p *publisher) publishReport(complete bool) {
	p.t.Helper()
	p.heartbeats++
	p.put(client.Reports, logicalcluster.Root, newObject(client.Reports, p.shard, setGlobalReach, func(u *unstructured.Unstructured) {
		u.Object["spec"] = map[string]any{"beat": p.heartbeats, "complete": complete}
	}))
}

// expectObjects waits until a cache has exactly the objects of a resource, written "<shard>|<cluster>|<name>".
func expectObjects(t *testing.T, c *client.Client, gvr schema.GroupVersionResource, want ...string) {
	t.Helper()
	slices.Sort(want)
	var got []string
	var last error
	deadline := time.Now().Add(60 * time.Second)
	for time.Now().Before(deadline) {
		objects, _, err := c.List(t.Context(), gvr)
		if last = err; err == nil {
			got = nil
			for _, object := range objects {
				got = append(got, object.Key.String())
			}
			slices.Sort(got)
			if slices.Equal(got, want) {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s has the %s %s, want %s (%v)", c.Address(), gvr.Resource, strings.Join(got, ", "), strings.Join(want, ", "), last)
}

func TestHierarchySync(t *testing.T) {
	t.Parallel()
	top := cachetesting.Start(t)
	configureEurope, configureAsia := withParent(t, top, "europe"), withParent(t, top, "asia")
	europe, asia := cachetesting.Start(t, configureEurope), cachetesting.Start(t, configureAsia)
	root, alpha, beta := newPublisher(t, top, "root"), newPublisher(t, europe, "alpha"), newPublisher(t, asia, "beta")

	for _, shard := range []string{"root", "alpha", "beta"} {
		root.put(shards, logicalcluster.Root, newObject(shards, shard, setGlobalReach))
	}
	alpha.put(exports, testCluster, newObject(exports, "wide", setGlobalReach))
	alpha.put(exports, testCluster, newObject(exports, "regional"))
	beta.put(exports, testCluster, newObject(exports, "wide", setGlobalReach))
	for _, p := range []*publisher{root, alpha, beta} {
		p.publishReport(true)
	}
	expectObjects(t, root.Client, exports, "alpha|abc|wide", "beta|abc|wide")
	expectObjects(t, alpha.Client, exports, "alpha|abc|wide", "alpha|abc|regional", "beta|abc|wide")
	expectObjects(t, beta.Client, exports, "alpha|abc|wide", "beta|abc|wide")
	expectObjects(t, beta.Client, shards, "root|root|root", "root|root|alpha", "root|root|beta")
	expectObjects(t, beta.Client, client.Reports, "root|root|root", "alpha|root|alpha", "beta|root|beta")

	t.Run("changes and deletions are synchronized", func(t *testing.T) {
		alpha.put(exports, testCluster, newObject(exports, "more", setGlobalReach))
		expectObjects(t, beta.Client, exports, "alpha|abc|wide", "alpha|abc|more", "beta|abc|wide")
		alpha.put(exports, testCluster, newObject(exports, "wide")) // loses its global reach
		alpha.remove(exports, testCluster, "more")
		expectObjects(t, beta.Client, exports, "beta|abc|wide")
		expectObjects(t, root.Client, exports, "beta|abc|wide")
		alpha.put(exports, testCluster, newObject(exports, "wide", setGlobalReach))
		expectObjects(t, beta.Client, exports, "alpha|abc|wide", "beta|abc|wide")
	})

	t.Run("regions continue without the parent and catch up", func(t *testing.T) {
		if err := top.Stop(); err != nil {
			t.Fatal(err)
		}
		alpha.put(exports, testCluster, newObject(exports, "meanwhile", setGlobalReach))
		expectObjects(t, alpha.Client, exports, "alpha|abc|wide", "alpha|abc|regional", "alpha|abc|meanwhile", "beta|abc|wide")
		beta.remove(exports, testCluster, "wide")
		top.Restart(t)
		expectObjects(t, beta.Client, exports, "alpha|abc|wide", "alpha|abc|meanwhile")
		expectObjects(t, alpha.Client, exports, "alpha|abc|wide", "alpha|abc|regional", "alpha|abc|meanwhile")
	})

	t.Run("a parent without data deletes no objects", func(t *testing.T) {
		beta.put(exports, testCluster, newObject(exports, "wide", setGlobalReach))
		expectObjects(t, alpha.Client, exports, "alpha|abc|wide", "alpha|abc|regional", "alpha|abc|meanwhile", "beta|abc|wide")
		seen := runRecorder(t, alpha.Client, exports)
		restartWithoutData(t, top)
		expectObjects(t, root.Client, exports, "alpha|abc|wide", "alpha|abc|meanwhile", "beta|abc|wide")
		root.put(shards, logicalcluster.Root, newObject(shards, "root", setGlobalReach))
		expectObjects(t, alpha.Client, exports, "alpha|abc|wide", "alpha|abc|regional", "alpha|abc|meanwhile", "beta|abc|wide")
		seen.expectNoDeletion(t)
	})

	t.Run("a region without data deletes no objects, and catches up on deletions", func(t *testing.T) {
		seen := runRecorder(t, beta.Client, exports)
		restartWithoutData(t, europe)
		expectObjects(t, alpha.Client, exports, "beta|abc|wide")
		seen.expectNoDeletion(t)
		// The shard publishes its objects again. One was deleted meanwhile.
		alpha.put(exports, testCluster, newObject(exports, "wide", setGlobalReach))
		alpha.publishReport(true)
		expectObjects(t, beta.Client, exports, "alpha|abc|wide", "beta|abc|wide")
		expectObjects(t, root.Client, exports, "alpha|abc|wide", "beta|abc|wide")
	})

	t.Run("a shard moves to another region", func(t *testing.T) {
		moved := newPublisher(t, asia, "alpha")
		done := make(chan struct{})
		go func() {
			defer close(done)
			expectObjects(t, root.Client, exports, "alpha|abc|wide", "alpha|abc|moved", "beta|abc|wide")
		}()
		for stop := false; !stop; {
			moved.heartbeats = max(moved.heartbeats, 100)
			moved.put(exports, testCluster, newObject(exports, "moved", setGlobalReach))
			moved.publishReport(true)
			select {
			case <-done:
				stop = true
			case <-time.After(500 * time.Millisecond):
			}
		}
		moved.remove(exports, testCluster, "wide")
		expectObjects(t, alpha.Client, exports, "alpha|abc|moved", "beta|abc|wide")
		expectObjects(t, root.Client, exports, "alpha|abc|moved", "beta|abc|wide")
	})
}

// restartWithoutData restarts a cache with an empty store.
func restartWithoutData(t *testing.T, c *cachetesting.Cache) {
	t.Helper()
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(c.Directory, "root", "etcd-server")); err != nil {
		t.Fatal(err)
	}
	c.Restart(t)
}

func runRecorder(t *testing.T, c *client.Client, gvr schema.GroupVersionResource) *recorder {
	t.Helper()
	r := &recorder{objects: map[client.Key]bool{}}
	runReflectorFor(t, c, gvr, client.Position{}, r)
	r.eventually(t, "the list", func() bool { return r.lists > 0 })
	return r
}

func (r *recorder) expectNoDeletion(t *testing.T) {
	t.Helper()
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, event := range r.events {
		if strings.HasPrefix(event, "DELETED") {
			t.Errorf("meanwhile: %s", fmt.Sprint(r.events))
			return
		}
	}
}
