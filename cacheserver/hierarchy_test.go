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

func global(u *unstructured.Unstructured) {
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[client.ReachAnnotation] = client.ReachGlobal
	u.SetAnnotations(annotations)
}

// below makes a cache one below another.
func below(t testing.TB, parent *cachetesting.Cache, name string) func(*options.Options) {
	t.Helper()
	kubeconfig := parent.Kubeconfig(t, parent.User(t, cacheserver.CacheUserPrefix+name, cacheserver.CacheGroup))
	return func(o *options.Options) {
		o.Name, o.ParentKubeconfig = name, kubeconfig
		o.Silence = 5 * time.Second
	}
}

// publisher is a shard, as far as a cache sees it.
type publisher struct {
	*client.Client
	t     *testing.T
	shard string
	beats int64
}

func publisherIn(t *testing.T, in *cachetesting.Cache, shard string) *publisher {
	t.Helper()
	return &publisher{Client: in.Client(t, shard), t: t, shard: shard}
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
		var standing *client.Object
		standing, err = p.Get(p.t.Context(), gvr, client.Key{Shard: p.shard, Cluster: cluster, Name: obj.GetName()})
		if apierrors.IsNotFound(err) {
			_, err = p.Create(p.t.Context(), gvr, cluster, obj)
		} else if err == nil {
			obj.SetResourceVersion(standing.Meta.ResourceVersion)
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

// beat publishes the report of the shard.
func (p *publisher) beat(complete bool) {
	p.t.Helper()
	p.beats++
	p.put(client.Reports, logicalcluster.Root, object(client.Reports, p.shard, global, func(u *unstructured.Unstructured) {
		u.Object["spec"] = map[string]any{"beat": p.beats, "complete": complete}
	}))
}

// stands waits until a cache has exactly the objects of a resource, written "<shard>|<cluster>|<name>".
func stands(t *testing.T, in *client.Client, gvr schema.GroupVersionResource, want ...string) {
	t.Helper()
	slices.Sort(want)
	var got []string
	var last error
	deadline := time.Now().Add(60 * time.Second)
	for time.Now().Before(deadline) {
		objects, _, err := in.List(t.Context(), gvr)
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
	t.Fatalf("%s has the %s %s, want %s (%v)", in.Address(), gvr.Resource, strings.Join(got, ", "), strings.Join(want, ", "), last)
}

func TestRegionsKnowOfEachOther(t *testing.T) {
	t.Parallel()
	top := cachetesting.Start(t)
	intoEurope, intoAsia := below(t, top, "europe"), below(t, top, "asia")
	europe, asia := cachetesting.Start(t, intoEurope), cachetesting.Start(t, intoAsia)
	root, alpha, beta := publisherIn(t, top, "root"), publisherIn(t, europe, "alpha"), publisherIn(t, asia, "beta")

	for _, shard := range []string{"root", "alpha", "beta"} {
		root.put(shards, logicalcluster.Root, object(shards, shard, global))
	}
	alpha.put(exports, someLC, object(exports, "wide", global))
	alpha.put(exports, someLC, object(exports, "regional"))
	beta.put(exports, someLC, object(exports, "wide", global))
	for _, p := range []*publisher{root, alpha, beta} {
		p.beat(true)
	}
	stands(t, root.Client, exports, "alpha|abc|wide", "beta|abc|wide")
	stands(t, alpha.Client, exports, "alpha|abc|wide", "alpha|abc|regional", "beta|abc|wide")
	stands(t, beta.Client, exports, "alpha|abc|wide", "beta|abc|wide")
	stands(t, beta.Client, shards, "root|root|root", "root|root|alpha", "root|root|beta")
	stands(t, beta.Client, client.Reports, "root|root|root", "alpha|root|alpha", "beta|root|beta")

	t.Run("changes and deletions travel", func(t *testing.T) {
		alpha.put(exports, someLC, object(exports, "more", global))
		stands(t, beta.Client, exports, "alpha|abc|wide", "alpha|abc|more", "beta|abc|wide")
		alpha.put(exports, someLC, object(exports, "wide")) // stays in the region from now on
		alpha.remove(exports, someLC, "more")
		stands(t, beta.Client, exports, "beta|abc|wide")
		stands(t, root.Client, exports, "beta|abc|wide")
		alpha.put(exports, someLC, object(exports, "wide", global))
		stands(t, beta.Client, exports, "alpha|abc|wide", "beta|abc|wide")
	})

	t.Run("while the parent is away, regions go on, and catch up", func(t *testing.T) {
		if err := top.Stop(); err != nil {
			t.Fatal(err)
		}
		alpha.put(exports, someLC, object(exports, "meanwhile", global))
		stands(t, alpha.Client, exports, "alpha|abc|wide", "alpha|abc|regional", "alpha|abc|meanwhile", "beta|abc|wide")
		beta.remove(exports, someLC, "wide")
		top.Restart(t)
		stands(t, beta.Client, exports, "alpha|abc|wide", "alpha|abc|meanwhile")
		stands(t, alpha.Client, exports, "alpha|abc|wide", "alpha|abc|regional", "alpha|abc|meanwhile")
	})

	t.Run("a parent that lost everything takes nothing away", func(t *testing.T) {
		beta.put(exports, someLC, object(exports, "wide", global))
		stands(t, alpha.Client, exports, "alpha|abc|wide", "alpha|abc|regional", "alpha|abc|meanwhile", "beta|abc|wide")
		seen := watchFor(t, alpha.Client, exports)
		forget(t, top)
		stands(t, root.Client, exports, "alpha|abc|wide", "alpha|abc|meanwhile", "beta|abc|wide")
		root.put(shards, logicalcluster.Root, object(shards, "root", global))
		stands(t, alpha.Client, exports, "alpha|abc|wide", "alpha|abc|regional", "alpha|abc|meanwhile", "beta|abc|wide")
		seen.noDeletion(t)
	})

	t.Run("a region that lost everything takes nothing away, and forgets what ended", func(t *testing.T) {
		seen := watchFor(t, beta.Client, exports)
		forget(t, europe)
		stands(t, alpha.Client, exports, "beta|abc|wide")
		seen.noDeletion(t)
		// The shard fills its part again. One object has ended meanwhile.
		alpha.put(exports, someLC, object(exports, "wide", global))
		alpha.beat(true)
		stands(t, beta.Client, exports, "alpha|abc|wide", "beta|abc|wide")
		stands(t, root.Client, exports, "alpha|abc|wide", "beta|abc|wide")
	})

	t.Run("a shard may move to another region", func(t *testing.T) {
		moved := publisherIn(t, asia, "alpha")
		done := make(chan struct{})
		go func() {
			defer close(done)
			stands(t, root.Client, exports, "alpha|abc|wide", "alpha|abc|moved", "beta|abc|wide")
		}()
		for stop := false; !stop; {
			moved.beats = max(moved.beats, 100)
			moved.put(exports, someLC, object(exports, "moved", global))
			moved.beat(true)
			select {
			case <-done:
				stop = true
			case <-time.After(500 * time.Millisecond):
			}
		}
		moved.remove(exports, someLC, "wide")
		stands(t, alpha.Client, exports, "alpha|abc|moved", "beta|abc|wide")
		stands(t, root.Client, exports, "alpha|abc|moved", "beta|abc|wide")
	})
}

// forget restarts a cache without what it stored.
func forget(t *testing.T, c *cachetesting.Cache) {
	t.Helper()
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(c.Directory, "root", "etcd-server")); err != nil {
		t.Fatal(err)
	}
	c.Restart(t)
}

func watchFor(t *testing.T, c *client.Client, gvr schema.GroupVersionResource) *recorder {
	t.Helper()
	r := &recorder{objects: map[client.Key]bool{}}
	followOf(t, c, gvr, client.Position{}, r)
	r.eventually(t, "the list", func() bool { return r.lists > 0 })
	return r
}

func (r *recorder) noDeletion(t *testing.T) {
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
