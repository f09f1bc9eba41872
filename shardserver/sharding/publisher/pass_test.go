package publisher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/logicalcluster"
	_ "github.com/atoll-dev/atoll/shardserver/apis/install"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/replica"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var workspaceTypes = tenancyv1alpha1.Resource("workspacetypes")

func TestWhatIsDoneToAnObjectInTheCache(t *testing.T) {
	one, other := replica.Digest{1}, replica.Digest{2}
	for name, tc := range map[string]struct {
		wanted *replica.Digest
		stands replica.Digest
		exists bool
		want   step
	}{
		"what is wanted and there is left alone":    {&one, one, true, leave},
		"what is wanted and not there is created":   {&one, replica.Digest{}, false, create},
		"what is there and another is updated":      {&one, other, true, update},
		"what is there and not wanted is removed":   {nil, one, true, remove},
		"what is neither there nor wanted is right": {nil, replica.Digest{}, false, leave},
	} {
		if got := stepTo(tc.wanted, replica.Version{Digest: tc.stands}, tc.exists); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}

func TestWhatAPassMakesOfAnAttempt(t *testing.T) {
	gr := schema.GroupResource{Resource: "things"}
	for name, tc := range map[string]struct {
		err  error
		want outcome
	}{
		"what was written counts":                           {nil, counts},
		"what a source cannot tell waits":                   {fmt.Errorf("%w: %w", errSource, io.EOF), later},
		"what a source cannot read waits":                   {fmt.Errorf("%w: %w", errSource, apierrors.NewServiceUnavailable("")), later},
		"what the cache refuses waits, and others are done": {fmt.Errorf("writing: %w", apierrors.NewTooManyRequests("", 1)), later},
		"what somebody else has just written waits":         {apierrors.NewConflict(gr, "x", nil), later},
		"a cache that is away ends the look":                {errAway, interrupted},
		"a connection that breaks ends the look":            {fmt.Errorf("writing: %w", io.ErrUnexpectedEOF), interrupted},
	} {
		if got := outcomeOf(tc.err); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}

// source wants types of a name in root, each time another state of them, as of a tenant who never stops changing them.
type source struct {
	names  []string
	states atomic.Int64
	// fails is the name of one that nothing can be said of.
	fails atomic.Pointer[string]
}

func (s *source) source() Source {
	return Source{
		Resource: workspaceTypes,
		List: func(context.Context) ([]controller.Key, error) {
			var keys []controller.Key
			for _, name := range s.names {
				keys = append(keys, controller.Key{Cluster: logicalcluster.Root, Name: name})
			}
			return keys, nil
		},
		Wanted: func(_ context.Context, key controller.Key) (runtime.Object, error) {
			if fails := s.fails.Load(); fails != nil && *fails == key.Name {
				return nil, errors.New("made to fail")
			}
			if key.Name == "unwanted" {
				return nil, nil
			}
			labels := map[string]string{"state": strconv.FormatInt(s.states.Add(1), 10)}
			return &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: key.Name, Labels: labels}}, nil
		},
	}
}

// publishing is a publisher of one source, of the shard root, and its mirror, which follows a cache.
type publishing struct {
	*Publisher
	cache *cachetesting.Cache
}

func newPublishing(t *testing.T, of *source) *publishing {
	t.Helper()
	cache := cachetesting.Start(t)
	resources := make([]client.Resource, 0, 2)
	for _, gr := range []schema.GroupResource{workspaceTypes, shardReports} {
		found, _ := client.Find(gr)
		resources = append(resources, found)
	}
	known := replica.New(replica.Config{Shard: "root", Root: "root", Resources: resources})
	writer := cache.Client(t, "root")
	p := New(Config{
		Registry: storage.NewRegistry(), Shard: "root", Cache: writer, Informer: known, Sources: []Source{of.source()},
		Report: func(context.Context) (shardingv1alpha1.ShardReportSpec, error) {
			return shardingv1alpha1.ShardReportSpec{}, nil
		},
		Interval: time.Second,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { known.Run(ctx, writer) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return &publishing{p, cache}
}

// beats reports until a condition holds.
func (p *publishing) beats(t *testing.T, until func(complete bool, err error) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		last = until(p.beat(ctx))
		return last == nil, nil
	})
	if err != nil {
		t.Fatal(last)
	}
}

func isComplete(complete bool, err error) error {
	if err == nil && !complete {
		err = errors.New("it is not complete")
	}
	return err
}

func (p *publishing) published(t *testing.T) map[string]bool {
	t.Helper()
	resource, _ := client.Find(workspaceTypes)
	objects, _, err := p.cfg.Cache.List(t.Context(), resource.GroupVersionResource)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, object := range objects {
		names[object.Name] = true
	}
	return names
}

// TestAPassEnds whatever becomes of objects meanwhile, and only when each of them was published.
func TestAPassEnds(t *testing.T) {
	of := &source{names: []string{"a", "b", "c", "unwanted"}}
	p := newPublishing(t, of)

	broken := "b"
	of.fails.Store(&broken)
	var tries int
	p.beats(t, func(complete bool, err error) error {
		if complete {
			t.Fatal("it is complete without an object that could not be published")
		}
		if tries += len(p.published(t)); err != nil || tries < 10 {
			return fmt.Errorf("%d objects, %w", tries, err)
		}
		return nil
	})
	if names := p.published(t); !names["a"] || !names["c"] || names["b"] {
		t.Fatalf("one object that cannot be published holds up others: there are %v", names)
	}
	of.fails.Store(nil)
	p.beats(t, isComplete)
	if names := p.published(t); len(names) != 3 || names["unwanted"] {
		t.Fatalf("complete with %v", names)
	}

	if err := p.cache.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(p.cache.Directory, "root")); err != nil {
		t.Fatal(err)
	}
	p.cache.Restart(t)
	p.beats(t, func(complete bool, err error) error {
		if err == nil && complete && len(p.published(t)) < 3 {
			t.Fatalf("complete again with %v", p.published(t))
		}
		if len(p.published(t)) == 0 {
			return errors.New("nothing is there again")
		}
		return isComplete(complete, err)
	})
}

// TestAReportThatIsGoneTakesItsPromiseAlong, though the store is the same.
func TestAReportThatIsGoneTakesItsPromiseAlong(t *testing.T) {
	p := newPublishing(t, &source{names: []string{"a"}})
	p.beats(t, isComplete)
	resource, _ := client.Find(workspaceTypes)
	reports, _ := client.Find(shardReports)
	before := p.reported.uid
	for _, of := range []client.Resource{resource, reports} {
		name := "a"
		if of == reports {
			name = "root"
		}
		if err := p.cfg.Cache.Delete(t.Context(), of.GroupVersionResource, client.Key{Cluster: logicalcluster.Root, Name: name}, ""); err != nil {
			t.Fatal(err)
		}
	}
	p.beats(t, func(complete bool, err error) error {
		if p.reported.uid == before {
			return errors.New("the deletion is not seen yet")
		}
		if complete && !p.published(t)["a"] {
			t.Fatal("complete without what was deleted")
		}
		return isComplete(complete, err)
	})
}
