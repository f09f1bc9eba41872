package cacheserver_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/cacheserver/client"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
)

// recorder records the events of a reflector.
type recorder struct {
	lock          sync.Mutex
	lists         int
	objects       map[client.Key]bool
	events        []string
	position      client.Position
	disconnectErr error
}

func (r *recorder) OnReplace(objects []*client.Object, position client.Position) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.lists, r.position, r.objects = r.lists+1, position, map[client.Key]bool{}
	for _, object := range objects {
		r.objects[object.Key] = true
	}
}

func (r *recorder) OnEvent(change watch.EventType, object *client.Object, position client.Position) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.position = position
	switch change {
	case watch.Bookmark:
		r.events = append(r.events, "bookmark")
		return
	case watch.Deleted:
		delete(r.objects, object.Key)
	default:
		r.objects[object.Key] = true
	}
	r.events = append(r.events, string(change)+" "+object.String())
}

func (r *recorder) OnConnect() {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.disconnectErr = nil
}

func (r *recorder) OnDisconnect(err error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.disconnectErr = err
}

// eventually waits until a condition holds.
func (r *recorder) eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		r.lock.Lock()
		ok := condition()
		r.lock.Unlock()
		if ok {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: after %d lists there are %v and %v (disconnected: %v)", what, r.lists, r.objects, r.events, r.disconnectErr)
}

// runReflector runs a reflector until the returned function is called.
func runReflector(t *testing.T, c *client.Client, from client.Position, r *recorder) (stop func()) {
	t.Helper()
	return runReflectorFor(t, c, shards, from, r)
}

func runReflectorFor(t *testing.T, c *client.Client, gvr schema.GroupVersionResource, from client.Position, r *recorder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.NewReflector(gvr, from, r).Run(ctx)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

func TestWatchResumes(t *testing.T) {
	t.Parallel()
	own := cachetesting.Start(t)
	alpha, beta := own.Client(t, "alpha"), own.Client(t, "beta")
	publish := func(c *client.Client, name string) {
		t.Helper()
		if _, err := c.Create(t.Context(), shards, testCluster, newObject(shards, name)); err != nil {
			t.Fatal(err)
		}
	}
	key := func(shard, name string) client.Key { return client.Key{Shard: shard, Cluster: testCluster, Name: name} }

	publish(alpha, "one")
	seen := &recorder{objects: map[client.Key]bool{}}
	stop := runReflector(t, beta, client.Position{}, seen)
	seen.eventually(t, "the list", func() bool { return seen.objects[key("alpha", "one")] })
	publish(beta, "one")
	seen.eventually(t, "a change", func() bool { return seen.objects[key("beta", "one")] })
	if err := alpha.Delete(t.Context(), shards, key("alpha", "one"), ""); err != nil {
		t.Fatal(err)
	}
	seen.eventually(t, "a deletion", func() bool { return slices.Contains(seen.events, "DELETED alpha|abc|one") })

	// The server restarts, and the reflector resumes without another list.
	if err := own.Stop(); err != nil {
		t.Fatal(err)
	}
	seen.eventually(t, "the disconnect", func() bool { return seen.disconnectErr != nil })
	own.Restart(t)
	publish(alpha, "two")
	seen.eventually(t, "a change after the restart", func() bool { return seen.objects[key("alpha", "two")] })
	if seen.lists != 1 {
		t.Errorf("got %d lists", seen.lists)
	}

	// The reflector restarts, and resumes at a stored position.
	stop()
	if err := alpha.Delete(t.Context(), shards, key("alpha", "two"), ""); err != nil {
		t.Fatal(err)
	}
	resumed := &recorder{objects: map[client.Key]bool{key("alpha", "two"): true}}
	stop = runReflector(t, beta, seen.position, resumed)
	resumed.eventually(t, "a deletion during the disconnect", func() bool { return !resumed.objects[key("alpha", "two")] })
	if resumed.lists != 0 {
		t.Errorf("got %d lists", resumed.lists)
	}
	stop()

	// The cache loses its data: the position is of another store, and the reflector lists again.
	if err := own.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(own.Directory, "root", "etcd-server")); err != nil {
		t.Fatal(err)
	}
	own.Restart(t)
	for i := range 40 { // so that the resource version is not behind
		publish(alpha, fmt.Sprintf("filled-%d", i))
	}
	relisted := &recorder{objects: map[client.Key]bool{}}
	runReflector(t, beta, resumed.position, relisted)
	relisted.eventually(t, "everything", func() bool { return relisted.lists == 1 && len(relisted.objects) == 40 })
}

func TestBookmarksWithoutEvents(t *testing.T) {
	t.Parallel()
	quiet, c := &recorder{objects: map[client.Key]bool{}}, cache.Client(t, "quiet")
	runReflector(t, c, client.Position{}, quiet)
	quiet.eventually(t, "the list", func() bool { return quiet.lists == 1 })
	if _, err := c.Create(t.Context(), exports, testCluster, newObject(exports, "something-else")); err != nil {
		t.Fatal(err)
	}
	quiet.eventually(t, "a bookmark", func() bool { return slices.Contains(quiet.events, "bookmark") })
}

func TestReflectorDoesNotLeak(t *testing.T) {
	c, err := client.New(cache.Shard(t, "leak"), "leak")
	if err != nil {
		t.Fatal(err)
	}
	// The first request starts goroutines of client-go that live as long as the process.
	if _, _, err := c.List(t.Context(), shards); err != nil {
		t.Fatal(err)
	}
	c.CloseIdleConnections()
	before := goleak.IgnoreCurrent()
	r := &recorder{objects: map[client.Key]bool{}}
	stop := runReflector(t, c, client.Position{}, r)
	r.eventually(t, "the list", func() bool { return r.lists == 1 })
	stop()
	eventually(t, "no goroutine to be left", func(context.Context) error {
		c.CloseIdleConnections() // a connection is idle a moment after its stream has ended
		return goleak.Find(before, goleak.IgnoreAnyFunction("net/http.(*http2serverConn).serve"), goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*serverConn).serve"))
	})
}
