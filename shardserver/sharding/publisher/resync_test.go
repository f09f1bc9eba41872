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
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	_ "github.com/atoll-dev/atoll/shardserver/apis/install"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/replica"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var workspaceTypes = tenancyv1alpha1.Resource("workspacetypes")

func TestNextStep(t *testing.T) {
	one, other := replica.Digest{1}, replica.Digest{2}
	for name, tc := range map[string]struct {
		desired *replica.Digest
		current replica.Digest
		exists  bool
		want    step
	}{
		"desired object that is published":     {&one, one, true, leave},
		"desired object that is missing":       {&one, replica.Digest{}, false, create},
		"desired object in another state":      {&one, other, true, update},
		"published object that is not desired": {nil, one, true, remove},
		"neither desired nor published":        {nil, replica.Digest{}, false, leave},
	} {
		if got := nextStep(tc.desired, replica.Version{Digest: tc.current}, tc.exists); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}

func TestResultOf(t *testing.T) {
	gr := schema.GroupResource{Resource: "things"}
	for name, tc := range map[string]struct {
		err  error
		want result
	}{
		"a written object":            {nil, succeeded},
		"an error of a source":        {fmt.Errorf("%w: %w", errSource, io.EOF), failedObject},
		"a status error of a source":  {fmt.Errorf("%w: %w", errSource, apierrors.NewServiceUnavailable("")), failedObject},
		"a rejected write":            {fmt.Errorf("writing: %w", apierrors.NewTooManyRequests("", 1)), failedObject},
		"an object that is too large": {apierrors.NewRequestEntityTooLargeError("limit"), refusedObject},
		"an invalid object":           {apierrors.NewInvalid(schema.GroupKind{}, "x", nil), refusedObject},
		"a source that is too large":  {fmt.Errorf("%w: %w", errSource, apierrors.NewRequestEntityTooLargeError("limit")), failedObject},
		"a conflict":                  {apierrors.NewConflict(gr, "x", nil), failedObject},
		"an unavailable cache":        {errCacheUnavailable, unavailable},
		"a broken connection":         {fmt.Errorf("writing: %w", io.ErrUnexpectedEOF), unavailable},
	} {
		if got := resultOf(tc.err); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}

// fakeSource desires workspace types of some names in root, in another state at every call.
type fakeSource struct {
	names      []string
	generation atomic.Int64
	// failing is the name of an object for which the source fails.
	failing atomic.Pointer[string]
}

func (s *fakeSource) toSource() Source {
	return Source{
		Resource: workspaceTypes,
		List: func(context.Context) ([]controller.Request, error) {
			var keys []controller.Request
			for _, name := range s.names {
				keys = append(keys, controller.Request{ClusterName: logicalcluster.Root, Name: name})
			}
			return keys, nil
		},
		Desired: func(_ context.Context, key controller.Request) (runtime.Object, error) {
			if fails := s.failing.Load(); fails != nil && *fails == key.Name {
				return nil, errors.New("injected failure")
			}
			switch key.Name {
			case "unwanted":
				return nil, nil
			case "awaiting":
				return nil, fmt.Errorf("%w: a report", ErrAwaitsOthers)
			}
			labels := map[string]string{"state": strconv.FormatInt(s.generation.Add(1), 10)}
			return &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: key.Name, Labels: labels}}, nil
		},
	}
}

// env is a publisher of one source of the root shard, with an informer and a cache.
type env struct {
	*Publisher
	cache *cachetesting.Cache
}

func newEnv(t *testing.T, source *fakeSource) *env {
	t.Helper()
	return newEnvOf(t, source.toSource())
}

func newEnvOf(t *testing.T, source Source) *env {
	t.Helper()
	cache := cachetesting.Start(t)
	resources := make([]client.Resource, 0, 2)
	for _, gr := range []schema.GroupResource{source.Resource, shardReports} {
		found, _ := client.FindResource(gr)
		resources = append(resources, found)
	}
	known := replica.New(replica.Config{Shard: "root", Root: "root", Resources: resources})
	writer := cache.Client(t, "root")
	p := New(Config{
		Registry: storage.NewRegistry(kcpcore.Locality), Shard: "root", Cache: writer, Informer: known, Sources: []Source{source},
		Report: func(context.Context) (shardingv1alpha1.ShardReportSpec, error) {
			return shardingv1alpha1.ShardReportSpec{}, nil
		},
		Interval: time.Second,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { known.Run(ctx, writer) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return &env{p, cache}
}

// publishReports publishes reports until a condition holds.
func (e *env) publishReports(t *testing.T, check func(complete bool, err error) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		last = check(e.publishReport(ctx))
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

func (e *env) publishedNames(t *testing.T) map[string]bool {
	t.Helper()
	resource, _ := client.FindResource(e.cfg.Sources[0].Resource)
	objects, _, err := e.cfg.Cache.List(t.Context(), resource.GroupVersionResource)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, object := range objects {
		names[object.Name] = true
	}
	return names
}

// TestResyncEnds although objects keep changing, and only when each was published.
func TestResyncEnds(t *testing.T) {
	source := &fakeSource{names: []string{"a", "b", "c", "unwanted"}}
	p := newEnv(t, source)

	failing := "b"
	source.failing.Store(&failing)
	var tries int
	p.publishReports(t, func(complete bool, err error) error {
		if complete {
			t.Fatal("complete without an object that could not be published")
		}
		if tries += len(p.publishedNames(t)); err != nil || tries < 10 {
			return fmt.Errorf("%d objects, %w", tries, err)
		}
		return nil
	})
	if names := p.publishedNames(t); !names["a"] || !names["c"] || names["b"] {
		t.Fatalf("one object that cannot be published blocks others: there are %v", names)
	}
	source.failing.Store(nil)
	p.publishReports(t, isComplete)
	if names := p.publishedNames(t); len(names) != 3 || names["unwanted"] {
		t.Fatalf("complete with %v", names)
	}

	if err := p.cache.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(p.cache.Directory, "root")); err != nil {
		t.Fatal(err)
	}
	p.cache.Restart(t)
	p.publishReports(t, func(complete bool, err error) error {
		if err == nil && complete && len(p.publishedNames(t)) < 3 {
			t.Fatalf("complete again with %v", p.publishedNames(t))
		}
		if len(p.publishedNames(t)) == 0 {
			return errors.New("nothing is published again")
		}
		return isComplete(complete, err)
	})
}

// TestResyncAwaitsNoOthers: what depends on objects of other shards does not keep the report from being complete.
func TestResyncAwaitsNoOthers(t *testing.T) {
	p := newEnv(t, &fakeSource{names: []string{"awaiting", "a"}})
	p.publishReports(t, isComplete)
	if names := p.publishedNames(t); len(names) != 1 || !names["a"] {
		t.Errorf("complete with %v", names)
	}
}

// TestDeletedReport: the loss of a report revokes completeness, even in the same store.
func TestDeletedReport(t *testing.T) {
	p := newEnv(t, &fakeSource{names: []string{"a"}})
	p.publishReports(t, isComplete)
	resource, _ := client.FindResource(workspaceTypes)
	reports, _ := client.FindResource(shardReports)
	before := p.reported.uid
	for _, r := range []client.Resource{resource, reports} {
		name := "a"
		if r == reports {
			name = "root"
		}
		if err := p.cfg.Cache.Delete(t.Context(), r.GroupVersionResource, client.Key{Cluster: logicalcluster.Root, Name: name}, ""); err != nil {
			t.Fatal(err)
		}
	}
	p.publishReports(t, func(complete bool, err error) error {
		if p.reported.uid == before {
			return errors.New("the deletion has not arrived")
		}
		if complete && !p.publishedNames(t)["a"] {
			t.Fatal("complete without what was deleted")
		}
		return isComplete(complete, err)
	})
}
