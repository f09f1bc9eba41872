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
	"github.com/atoll-dev/atoll/logicalcluster"
	indextesting "github.com/atoll-dev/atoll/internal/sharedindex/testing"
)

// objects is the source of a shard whose records a test sets.
type objects struct {
	mu      sync.Mutex
	records map[sharedindex.Key]string
	emit    func(sharedindex.Change)
	broken  chan error
}

func newObjects() *objects {
	return &objects{records: map[sharedindex.Key]string{}, broken: make(chan error)}
}

func (o *objects) Stream(ctx context.Context, emit func(sharedindex.Change), synced func()) error {
	o.mu.Lock()
	for key, value := range o.records {
		emit(sharedindex.Change{Key: key, Value: []byte(value)})
	}
	o.emit = emit
	synced()
	o.mu.Unlock()
	select {
	case err := <-o.broken:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (o *objects) set(key sharedindex.Key, value string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.records[key] = value
	if o.emit != nil {
		o.emit(sharedindex.Change{Key: key, Value: []byte(value)})
	}
}

func (o *objects) remove(key sharedindex.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.records, key)
	if o.emit != nil {
		o.emit(sharedindex.Change{Key: key})
	}
}

// known is a reader that remembers everything.
type known struct {
	mu       sync.Mutex
	records  map[string]map[sharedindex.Key]string // by shard
	listing  map[sharedindex.Key]string
	complete map[string]bool
	lists    int
}

func newKnown() *known {
	return &known{records: map[string]map[sharedindex.Key]string{}, complete: map[string]bool{}}
}

func (k *known) Begin(string) {
	k.listing = map[sharedindex.Key]string{}
}

func (k *known) Record(key sharedindex.Key, value []byte) { k.listing[key] = string(value) }

func (k *known) End(shard string, complete bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lists++
	if complete || k.records[shard] == nil {
		k.records[shard] = k.listing
	} else {
		maps.Copy(k.records[shard], k.listing)
	}
	k.complete[shard] = k.complete[shard] || complete
}

func (k *known) Incomplete(shard string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.complete[shard] = false
}

func (k *known) Changed(shard string, change sharedindex.Change) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.records[shard] == nil {
		k.records[shard] = map[sharedindex.Key]string{}
	}
	if change.Value == nil {
		delete(k.records[shard], change.Key)
		return
	}
	k.records[shard][change.Key] = string(change.Value)
}

// eventually waits until all that is known of a shard is what its source has.
func (k *known) eventually(t *testing.T, what, shard string, o *objects) {
	t.Helper()
	var got, want map[sharedindex.Key]string
	for deadline := time.Now().Add(40 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		o.mu.Lock()
		want = maps.Clone(o.records)
		o.mu.Unlock()
		k.mu.Lock()
		got = maps.Clone(k.records[shard])
		complete := k.complete[shard]
		k.mu.Unlock()
		if complete && maps.Equal(got, want) {
			return
		}
	}
	t.Fatalf("timed out: %s: known of %s %v, want %v", what, shard, got, want)
}

// running runs something until the returned function is called, or the test ends.
func running(t *testing.T, run func(context.Context)) (stop func()) {
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

func write(t *testing.T, e *indextesting.Etcd, shard string, o *objects) (stop func()) {
	return running(t, sharedindex.NewWriter(e.Options(), shard, o).Run)
}

func follow(t *testing.T, e *indextesting.Etcd) *known {
	k := newKnown()
	f := sharedindex.NewFollower(e.Options(), k)
	running(t, func(ctx context.Context) {
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return k
}

func cluster(name string) sharedindex.Key {
	return sharedindex.Key{Kind: sharedindex.Clusters, Cluster: logicalcluster.MustParseName(name)}
}

func shardKey(name string) sharedindex.Key {
	return sharedindex.Key{Kind: sharedindex.Shards, Name: name}
}

func TestWhatShardsWriteIsRead(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	root, alpha := newObjects(), newObjects()
	for n := range 12_000 { // more than a page, and more than a request
		root.set(cluster(fmt.Sprintf("early%d", n)), `{"type":"root:universal"}`)
	}
	root.set(shardKey("root"), `{"baseURL":"https://root"}`)
	root.set(shardKey("alpha"), `{"baseURL":"https://alpha"}`)
	alpha.set(sharedindex.Key{Kind: sharedindex.Workspaces, Cluster: logicalcluster.MustParseName("org"), Name: "w"}, `{"cluster":"x"}`)
	write(t, e, "root", root)
	stopAlpha := write(t, e, "alpha", alpha)
	k := follow(t, e)
	k.eventually(t, "what there is", "root", root)
	k.eventually(t, "what there is", "alpha", alpha)

	alpha.set(cluster("late"), `{}`)
	root.remove(cluster("early7"))
	root.set(cluster("early8"), `{"type":"root:team"}`)
	k.eventually(t, "a removal and a change", "root", root)
	k.eventually(t, "an addition", "alpha", alpha)

	before := revision(t, e)
	for range 50 {
		root.set(cluster("early8"), `{"type":"root:team"}`) // events that change nothing
	}
	alpha.set(cluster("later"), `{}`)
	k.eventually(t, "an addition", "alpha", alpha)
	if now := revision(t, e); now > before+2 {
		t.Errorf("what did not change was written: revision %d, before %d", now, before)
	}

	// While nobody writes, objects come and go; the next replica finds out.
	stopAlpha()
	alpha.remove(cluster("late"))
	alpha.set(cluster("between"), `{}`)
	write(t, e, "alpha", alpha)
	k.eventually(t, "what happened while nobody wrote", "alpha", alpha)
	late := follow(t, e)
	late.eventually(t, "a follower that comes late", "alpha", alpha)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lists > 4 { // for each shard once at most when the follower began, and once when the shard had written everything
		t.Errorf("shards were read %d times", k.lists)
	}
}

func revision(t *testing.T, e *indextesting.Etcd) int64 {
	t.Helper()
	answer, err := e.Client().Get(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	return answer.Header.Revision
}

// TestTheReplicaThatWasReplacedWritesNoMore: it may still believe that it leads.
func TestTheReplicaThatWasReplacedWritesNoMore(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	old, young := newObjects(), newObjects()
	old.set(cluster("gone"), `{}`)
	young.set(cluster("there"), `{}`)
	stop := write(t, e, "alpha", old)
	k := follow(t, e)
	k.eventually(t, "the first", "alpha", old)
	stop()
	write(t, e, "alpha", young)
	k.eventually(t, "the second", "alpha", young)
	for range 20 {
		old.set(cluster("gone"), `{}`)
	}
	young.set(cluster("more"), `{}`)
	k.eventually(t, "only the second", "alpha", young)
}

// TestARestartOfEtcdLosesNothing, and nothing is listed again.
func TestARestartOfEtcdLosesNothing(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	alpha := newObjects()
	alpha.set(cluster("a1"), `{}`)
	write(t, e, "alpha", alpha)
	k := follow(t, e)
	k.eventually(t, "before", "alpha", alpha)
	k.mu.Lock()
	lists := k.lists
	k.mu.Unlock()
	e.Stop()
	alpha.set(cluster("a2"), `{}`)
	alpha.remove(cluster("a1"))
	e.Again()
	k.eventually(t, "after", "alpha", alpha)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lists != lists {
		t.Errorf("everything was read again")
	}
}

// TestAnEtcdThatLostEverythingIsFilledAgain, and followers forget nothing in between.
func TestAnEtcdThatLostEverythingIsFilledAgain(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	alpha := newObjects()
	alpha.set(cluster("a1"), `{}`)
	alpha.set(cluster("a2"), `{}`)
	stop := write(t, e, "alpha", alpha)
	k := follow(t, e)
	k.eventually(t, "before", "alpha", alpha)
	stop()
	e.Stop()
	e.Lose()
	e.Again()
	// It must not take the empty etcd for the truth, whenever it finds out.
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		k.mu.Lock()
		n := len(k.records["alpha"])
		k.mu.Unlock()
		if n != 2 {
			t.Fatalf("%d records are known, want 2", n)
		}
	}
	alpha.remove(cluster("a1"))
	write(t, e, "alpha", alpha)
	k.eventually(t, "after", "alpha", alpha)
}

// TestAShardThatIsNoneAnyMoreLeavesNothing: the root shard sees to that, at once and when it starts.
func TestAShardThatIsNoneAnyMoreLeavesNothing(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	client := e.Client()
	if _, err := client.Put(t.Context(), "/kcp-index/stranger/clusters/left", `{}`); err != nil {
		t.Fatal(err)
	}
	root, alpha := newObjects(), newObjects()
	root.set(shardKey("alpha"), `{}`)
	alpha.set(cluster("a1"), `{}`)
	write(t, e, "root", root)
	stop := write(t, e, "alpha", alpha)
	k := follow(t, e)
	k.eventually(t, "alpha", "alpha", alpha)
	below := func(shard string) int64 {
		answer, err := client.Get(t.Context(), "/kcp-index/"+shard+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return answer.Count
	}
	k.eventually(t, "root", "root", root)
	if n := below("stranger"); n != 0 {
		t.Errorf("a shard that is none has %d keys", n)
	}
	stop()
	root.remove(shardKey("alpha"))
	k.eventually(t, "root", "root", root)
	if n := below("alpha"); n != 0 {
		t.Errorf("a shard that was removed has %d keys", n)
	}
	// It comes back.
	root.set(shardKey("alpha"), `{}`)
	write(t, e, "alpha", alpha)
	k.eventually(t, "alpha is back", "alpha", alpha)
}

func TestOldRevisionsAreRemoved(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	alpha := newObjects()
	o := e.Options()
	o.Compaction = time.Millisecond
	running(t, sharedindex.NewWriter(o, "alpha", alpha).Run)
	k := follow(t, e)
	for n := range 5 {
		alpha.set(cluster(fmt.Sprintf("a%d", n)), `{}`)
		k.eventually(t, "written", "alpha", alpha)
	}
	_, err := e.Client().Get(t.Context(), "/", clientv3.WithRev(2))
	if err == nil || !strings.Contains(err.Error(), "compacted") {
		t.Errorf("the first revision is still there: %v", err)
	}
}

// TestAFollowerThatWasAwayForLong: what happened since was removed, so that it reads everything anew and misses nothing.
func TestAFollowerThatWasAwayForLong(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	alpha := newObjects()
	alpha.set(cluster("a1"), `{}`)
	alpha.set(cluster("a2"), `{}`)
	write(t, e, "alpha", alpha)
	k := newKnown()
	f := sharedindex.NewFollower(e.Options(), k)
	runOnce := func() (stop func()) {
		return running(t, func(ctx context.Context) {
			if err := f.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	if f.Ready() == nil {
		t.Error("ready before it ran")
	}
	stop := runOnce()
	k.eventually(t, "before", "alpha", alpha)
	if err := f.Ready(); err != nil {
		t.Error(err)
	}
	stop()

	alpha.remove(cluster("a1"))
	alpha.set(cluster("a3"), `{}`)
	client, other := e.Client(), follow(t, e)
	other.eventually(t, "written meanwhile", "alpha", alpha)
	now := revision(t, e)
	if _, err := client.Compact(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	runOnce()
	k.eventually(t, "after", "alpha", alpha)
}

// TestWhatCannotBeReadIsLeftOut: keys and values of others, and of later versions.
func TestWhatCannotBeReadIsLeftOut(t *testing.T) {
	t.Parallel()
	e := indextesting.Start(t)
	client := e.Client()
	for _, key := range []string{"/kcp-index/alpha/clusters/UPPER", "/kcp-index/alpha/later/x", "/kcp-index/alpha", "/kcp-index/", "/kcp-index/alpha/clusters/a/b"} {
		if _, err := client.Put(t.Context(), key, `{}`); err != nil {
			t.Fatal(err)
		}
	}
	alpha := newObjects()
	alpha.set(cluster("a1"), `{}`)
	k := follow(t, e)
	write(t, e, "alpha", alpha)
	k.eventually(t, "what can be read", "alpha", alpha)
	follow(t, e).eventually(t, "what can be read", "alpha", alpha)
	root := newObjects()
	root.set(shardKey("alpha"), `{}`)
	write(t, e, "root", root)
	k.eventually(t, "what can be read", "root", root)
	answer, err := client.Get(t.Context(), "/kcp-index/alpha/later/x")
	if err != nil || answer.Count != 1 {
		t.Errorf("the key of a later version was removed: %v", err)
	}
}
