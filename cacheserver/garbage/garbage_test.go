package garbage

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/scope"
	"github.com/atoll-dev/atoll/cacheserver/store"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestExpiredShards(t *testing.T) {
	present := sets.New("root", "alpha", "beta")
	heartbeats := func(alpha string) map[string]string {
		return map[string]string{"root": "1", "beta": "1", "alpha": alpha}
	}
	type step struct {
		after time.Duration
		state state
	}
	for name, tc := range map[string]struct {
		looks []step
		want  sets.Set[string]
	}{
		"a registered shard is kept without reports": {[]step{
			{0, state{present, sets.New("root", "alpha", "beta"), true, heartbeats("1"), 0}},
			{time.Hour, state{present, sets.New("root", "alpha", "beta"), true, heartbeats("1"), 0}},
		}, nil},
		"a deleted shard without reports expires": {[]step{
			{0, state{present, sets.New("root", "beta"), true, heartbeats("1"), 0}},
			{11 * time.Minute, state{present, sets.New("root", "beta"), true, heartbeats("1"), 0}},
		}, sets.New("alpha")},
		"a deleted shard is kept until the timeout": {[]step{
			{0, state{present, sets.New("root", "beta"), true, heartbeats("1"), 0}},
			{9 * time.Minute, state{present, sets.New("root", "beta"), true, heartbeats("1"), 0}},
		}, nil},
		"a report restarts the timeout": {[]step{
			{0, state{present, sets.New("root", "beta"), true, heartbeats("1"), 0}},
			{9 * time.Minute, state{present, sets.New("root", "beta"), true, heartbeats("2"), 0}},
			{18 * time.Minute, state{present, sets.New("root", "beta"), true, heartbeats("2"), 0}},
		}, nil},
		"a recreated Shard object restarts the timeout": {[]step{
			{0, state{present, sets.New("root", "beta"), true, heartbeats("1"), 0}},
			{5 * time.Minute, state{present, sets.New("root", "alpha", "beta"), true, heartbeats("1"), 0}},
			{11 * time.Minute, state{present, sets.New("root", "beta"), true, heartbeats("1"), 0}},
		}, nil},
		"no shard expires while the root shard is incomplete": {[]step{
			{0, state{present, sets.New("root"), true, heartbeats("1"), 0}},
			{11 * time.Minute, state{present, sets.New("root"), false, heartbeats("1"), 0}},
		}, nil},
		"a deleted shard that never reported expires": {[]step{
			{0, state{present, sets.New("root", "beta"), true, nil, 0}},
			{11 * time.Minute, state{present, sets.New("root", "beta"), true, nil, 0}},
		}, sets.New("alpha")},
		"the root shard is kept without a Shard object": {[]step{
			{0, state{present, sets.New("alpha", "beta"), true, heartbeats("1"), 0}},
			{11 * time.Minute, state{present, sets.New("alpha", "beta"), true, heartbeats("1"), 0}},
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			var now time.Time
			c := &Collector{shardTimeout: 10 * time.Minute, now: func() time.Time { return now }}
			var got sets.Set[string]
			for _, look := range tc.looks {
				now = start.Add(look.after)
				got = c.expired(look.state)
			}
			if !got.Equal(tc.want) {
				t.Errorf("expired are %v, want %v", sets.List(got), sets.List(tc.want))
			}
			if len(c.observations) > len(present) {
				t.Errorf("%d observations are kept", len(c.observations))
			}
		})
	}
}

// TestRemoveShard removes a shard whose state changes between the decision and the deletion.
func TestRemoveShard(t *testing.T) {
	etcd := etcdtest.Start(t)
	backend, err := store.Open(t.Context(), store.Config{Prefix: "cache", Transport: storagebackend.TransportConfig{
		ServerList: []string{etcd.Endpoint}, TrustedCAFile: etcd.CAFile, CertFile: etcd.CertFile, KeyFile: etcd.KeyFile,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Close)
	exports := newStore(t, backend, apisv1alpha2.SchemeGroupVersion.WithResource("apiexports"))
	c := New(backend, newStore(t, backend, client.Shards), newStore(t, backend, client.Reports), time.Minute)
	inShard := func(shard string) context.Context {
		return scope.NewContext(t.Context(), scope.Scope{Shard: shard, Cluster: logicalcluster.Root})
	}
	create := func(to *store.Store, shard, name string) {
		t.Helper()
		object := to.New().(*unstructured.Unstructured)
		object.SetAPIVersion("v1")
		object.SetKind("Any")
		object.SetName(name)
		if _, err := to.Create(inShard(shard), object, false); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		change  func(shard string)
		removed bool
	}{
		"no change":                   {func(string) {}, true},
		"another shard publishes":     {func(shard string) { create(exports, shard+"-2", "new") }, true},
		"the shard is registered":     {func(shard string) { create(c.shards, RootShard, shard) }, false},
		"the shard reports":           {func(shard string) { create(c.reports, shard, "report") }, false},
		"the shard publishes objects": {func(shard string) { create(exports, shard, "new") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			shard := strings.ReplaceAll(name, " ", "-")
			create(exports, shard, "export")
			parts, err := backend.Parts(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			current, err := c.observe(t.Context(), parts)
			if err != nil {
				t.Fatal(err)
			}
			tc.change(shard)
			if err := c.removeShard(t.Context(), shard, parts, current.revision); (err == nil) != tc.removed || err != nil && !errors.Is(err, store.ErrChanged) {
				t.Errorf("got error %v", err)
			}
			if _, err := exports.Get(inShard(shard), "export", &metav1.GetOptions{}); apierrors.IsNotFound(err) != tc.removed {
				t.Errorf("the export: %v", err)
			}
		})
	}
}

func newStore(t *testing.T, backend *store.Backend, resource schema.GroupVersionResource) *store.Store {
	t.Helper()
	found, ok := client.FindResource(resource.GroupResource())
	if !ok {
		t.Fatalf("%s is not a resource of caches", resource)
	}
	s, err := backend.NewStore(found)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
