package sharedindex_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/atoll-dev/atoll/internal/sharedindex"
	indextesting "github.com/atoll-dev/atoll/internal/sharedindex/testing"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// fakeSource is a source whose records are set by a test.
type fakeSource struct {
	mu      sync.Mutex
	records map[sharedindex.Key]string
	emit    func(sharedindex.Change)
	broken  chan error
}

func newFakeSource() *fakeSource {
	return &fakeSource{records: map[sharedindex.Key]string{}, broken: make(chan error)}
}

func (f *fakeSource) ListAndWatch(ctx context.Context, emit func(sharedindex.Change), synced func()) error {
	f.mu.Lock()
	for key, value := range f.records {
		emit(sharedindex.Change{Key: key, Value: []byte(value)})
	}
	f.emit = emit
	synced()
	f.mu.Unlock()
	select {
	case err := <-f.broken:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fakeSource) set(key sharedindex.Key, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records[key] = value
	if f.emit != nil {
		f.emit(sharedindex.Change{Key: key, Value: []byte(value)})
	}
}

func (f *fakeSource) remove(key sharedindex.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.records, key)
	if f.emit != nil {
		f.emit(sharedindex.Change{Key: key})
	}
}

// store is an event handler that stores all records.
type store struct {
	mu       sync.Mutex
	records  map[string]map[sharedindex.Key]string // by shard
	listing  map[sharedindex.Key]string
	complete map[string]bool
	lists    int
}

func newStore() *store {
	return &store{records: map[string]map[sharedindex.Key]string{}, complete: map[string]bool{}}
}

func (s *store) OnListStart(string) {
	s.listing = map[sharedindex.Key]string{}
}

func (s *store) OnListRecord(key sharedindex.Key, value []byte) { s.listing[key] = string(value) }

func (s *store) OnListEnd(shard string, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	if complete || s.records[shard] == nil {
		s.records[shard] = s.listing
	} else {
		maps.Copy(s.records[shard], s.listing)
	}
	s.complete[shard] = s.complete[shard] || complete
}

func (s *store) OnIncomplete(shard string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete[shard] = false
}

func (s *store) OnChange(shard string, change sharedindex.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records[shard] == nil {
		s.records[shard] = map[sharedindex.Key]string{}
	}
	if change.Value == nil {
		delete(s.records[shard], change.Key)
		return
	}
	s.records[shard][change.Key] = string(change.Value)
}

// eventually waits until the records of a shard are those of its source.
func (s *store) eventually(t *testing.T, what, shard string, o *fakeSource) {
	t.Helper()
	var got, want map[sharedindex.Key]string
	for deadline := time.Now().Add(40 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		o.mu.Lock()
		want = maps.Clone(o.records)
		o.mu.Unlock()
		s.mu.Lock()
		got = maps.Clone(s.records[shard])
		complete := s.complete[shard]
		s.mu.Unlock()
		if complete && maps.Equal(got, want) {
			return
		}
	}
	t.Fatalf("timed out: %s: records of %s are %v, want %v", what, shard, got, want)
}

// runInBackground runs a function until the returned one is called, or the test ends.
func runInBackground(t *testing.T, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(stop)
	return stop
}

func runWriter(t *testing.T, e *indextesting.Etcd, shard string, o *fakeSource) (stop func()) {
	return runInBackground(t, sharedindex.NewWriter(e.Options(), shard, o).Run)
}

func runReflector(t *testing.T, e *indextesting.Etcd) *store {
	k := newStore()
	r := sharedindex.NewReflector(e.Options(), k)
	runInBackground(t, func(ctx context.Context) {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return k
}

func clusterKey(name string) sharedindex.Key {
	return sharedindex.Key{Kind: sharedindex.Clusters, Cluster: logicalcluster.MustParseName(name)}
}

func shardKey(name string) sharedindex.Key {
	return sharedindex.Key{Kind: sharedindex.Shards, Name: name}
}

func TestWriteAndRead(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	root, alpha := newFakeSource(), newFakeSource()
	for n := range 12_000 { // more than one page, and more than one request
		root.set(clusterKey(fmt.Sprintf("early%d", n)), `{"type":"root:universal"}`)
	}
	root.set(shardKey("root"), `{"baseURL":"https://root"}`)
	root.set(shardKey("alpha"), `{"baseURL":"https://alpha"}`)
	alpha.set(sharedindex.Key{Kind: sharedindex.Workspaces, Cluster: logicalcluster.MustParseName("org"), Name: "w"}, `{"cluster":"x"}`)
	runWriter(t, e, "root", root)
	stopAlpha := runWriter(t, e, "alpha", alpha)
	k := runReflector(t, e)
	k.eventually(t, "all records", "root", root)
	k.eventually(t, "all records", "alpha", alpha)

	alpha.set(clusterKey("late"), `{}`)
	root.remove(clusterKey("early7"))
	root.set(clusterKey("early8"), `{"type":"root:team"}`)
	k.eventually(t, "a removal and a change", "root", root)
	k.eventually(t, "an addition", "alpha", alpha)

	before := revision(t, e)
	for range 50 {
		root.set(clusterKey("early8"), `{"type":"root:team"}`) // events without a change of the record
	}
	alpha.set(clusterKey("later"), `{}`)
	k.eventually(t, "an addition", "alpha", alpha)
	if now := revision(t, e); now > before+2 {
		t.Errorf("unchanged records were written: revision %d, before %d", now, before)
	}

	// Objects change while no replica writes; the next one writes the changes.
	stopAlpha()
	alpha.remove(clusterKey("late"))
	alpha.set(clusterKey("between"), `{}`)
	runWriter(t, e, "alpha", alpha)
	k.eventually(t, "changes while no replica wrote", "alpha", alpha)
	late := runReflector(t, e)
	late.eventually(t, "a late reflector", "alpha", alpha)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lists > 4 { // at most once for each shard at the start, and once when it is complete
		t.Errorf("shards were listed %d times", k.lists)
	}
}

func revision(t *testing.T, e *indextesting.Etcd) int64 {
	t.Helper()
	response, err := e.Client().Get(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	return response.Header.Revision
}

func TestReplacedReplicaDoesNotWrite(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	former, current := newFakeSource(), newFakeSource()
	former.set(clusterKey("deleted"), `{}`)
	current.set(clusterKey("existing"), `{}`)
	stop := runWriter(t, e, "alpha", former)
	k := runReflector(t, e)
	k.eventually(t, "the first", "alpha", former)
	stop()
	runWriter(t, e, "alpha", current)
	k.eventually(t, "the second", "alpha", current)
	for range 20 {
		former.set(clusterKey("deleted"), `{}`)
	}
	current.set(clusterKey("more"), `{}`)
	k.eventually(t, "only the second", "alpha", current)
}

// TestEtcdRestart checks that records are not listed again.
func TestEtcdRestart(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	alpha := newFakeSource()
	alpha.set(clusterKey("a1"), `{}`)
	runWriter(t, e, "alpha", alpha)
	k := runReflector(t, e)
	k.eventually(t, "before", "alpha", alpha)
	k.mu.Lock()
	lists := k.lists
	k.mu.Unlock()
	e.Stop()
	alpha.set(clusterKey("a2"), `{}`)
	alpha.remove(clusterKey("a1"))
	e.Restart()
	k.eventually(t, "after", "alpha", alpha)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lists != lists {
		t.Errorf("the records were listed again")
	}
}

// TestEtcdDataLoss checks that etcd is filled again, and that reflectors keep their state until then.
func TestEtcdDataLoss(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	alpha := newFakeSource()
	alpha.set(clusterKey("a1"), `{}`)
	alpha.set(clusterKey("a2"), `{}`)
	stop := runWriter(t, e, "alpha", alpha)
	k := runReflector(t, e)
	k.eventually(t, "before", "alpha", alpha)
	stop()
	e.Stop()
	e.DeleteData()
	e.Restart()
	// The reflector must not treat the missing records as deleted.
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		k.mu.Lock()
		n := len(k.records["alpha"])
		k.mu.Unlock()
		if n != 2 {
			t.Fatalf("got %d records, want 2", n)
		}
	}
	alpha.remove(clusterKey("a1"))
	runWriter(t, e, "alpha", alpha)
	k.eventually(t, "after", "alpha", alpha)
}

// TestRemovedShardRecordsArePruned checks that the root shard deletes them, when a shard is removed and when the root
// shard starts.
func TestRemovedShardRecordsArePruned(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	client := e.Client()
	if _, err := client.Put(t.Context(), "/kcp-index/unknown/clusters/left", `{}`); err != nil {
		t.Fatal(err)
	}
	root, alpha := newFakeSource(), newFakeSource()
	root.set(shardKey("alpha"), `{}`)
	alpha.set(clusterKey("a1"), `{}`)
	runWriter(t, e, "root", root)
	stop := runWriter(t, e, "alpha", alpha)
	k := runReflector(t, e)
	k.eventually(t, "alpha", "alpha", alpha)
	countKeys := func(shard string) int64 {
		response, err := client.Get(t.Context(), "/kcp-index/"+shard+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return response.Count
	}
	k.eventually(t, "root", "root", root)
	if n := countKeys("unknown"); n != 0 {
		t.Errorf("a shard that does not exist has %d keys", n)
	}
	stop()
	root.remove(shardKey("alpha"))
	k.eventually(t, "root", "root", root)
	if n := countKeys("alpha"); n != 0 {
		t.Errorf("a shard that was removed has %d keys", n)
	}
	// The shard is added again.
	root.set(shardKey("alpha"), `{}`)
	runWriter(t, e, "alpha", alpha)
	k.eventually(t, "alpha is back", "alpha", alpha)
}

func TestCompaction(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	alpha := newFakeSource()
	o := e.Options()
	o.Compaction = time.Millisecond
	runInBackground(t, sharedindex.NewWriter(o, "alpha", alpha).Run)
	k := runReflector(t, e)
	for n := range 5 {
		alpha.set(clusterKey(fmt.Sprintf("a%d", n)), `{}`)
		k.eventually(t, "written", "alpha", alpha)
	}
	_, err := e.Client().Get(t.Context(), "/", clientv3.WithRev(2))
	if err == nil || !strings.Contains(err.Error(), "compacted") {
		t.Errorf("the first revision is still there: %v", err)
	}
}

// TestReflectorAfterCompaction checks that a reflector whose last revision was compacted lists all records.
func TestReflectorAfterCompaction(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	alpha := newFakeSource()
	alpha.set(clusterKey("a1"), `{}`)
	alpha.set(clusterKey("a2"), `{}`)
	runWriter(t, e, "alpha", alpha)
	k := newStore()
	r := sharedindex.NewReflector(e.Options(), k)
	runOnce := func() (stop func()) {
		return runInBackground(t, func(ctx context.Context) {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	if r.HasSynced() == nil {
		t.Error("synced before it ran")
	}
	stop := runOnce()
	k.eventually(t, "before", "alpha", alpha)
	if err := r.HasSynced(); err != nil {
		t.Error(err)
	}
	stop()

	alpha.remove(clusterKey("a1"))
	alpha.set(clusterKey("a3"), `{}`)
	client, other := e.Client(), runReflector(t, e)
	other.eventually(t, "changes while the reflector is stopped", "alpha", alpha)
	now := revision(t, e)
	if _, err := client.Compact(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	runOnce()
	k.eventually(t, "after", "alpha", alpha)
}

// TestInvalidKeysAreIgnored covers keys of other programs and of later versions.
func TestInvalidKeysAreIgnored(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	client := e.Client()
	for _, key := range []string{"/kcp-index/alpha/clusters/UPPER", "/kcp-index/alpha/later/x", "/kcp-index/alpha", "/kcp-index/", "/kcp-index/alpha/clusters/a/b"} {
		if _, err := client.Put(t.Context(), key, `{}`); err != nil {
			t.Fatal(err)
		}
	}
	alpha := newFakeSource()
	alpha.set(clusterKey("a1"), `{}`)
	k := runReflector(t, e)
	runWriter(t, e, "alpha", alpha)
	k.eventually(t, "valid records", "alpha", alpha)
	runReflector(t, e).eventually(t, "valid records", "alpha", alpha)
	root := newFakeSource()
	root.set(shardKey("alpha"), `{}`)
	runWriter(t, e, "root", root)
	k.eventually(t, "valid records", "root", root)
	response, err := client.Get(t.Context(), "/kcp-index/alpha/later/x")
	if err != nil || response.Count != 1 {
		t.Errorf("the key of a later version was removed: %v", err)
	}
}
