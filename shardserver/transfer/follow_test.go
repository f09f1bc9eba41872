package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/atoll-dev/atoll/internal/etcdtest"
)

// names returns what has changed since a revision, as "<name>" and "-<name>", in order.
func names(found *Changes) string {
	var all []string
	for _, changed := range found.Changed {
		all = append(all, changed.Name)
	}
	for _, gone := range found.Gone {
		all = append(all, "-"+gone.Name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func testFollow(t *testing.T) {
	s := newShard(t, origin, gcm(t, "a"))
	s.put(t, moving, secrets, "default/a", "1")
	s.put(t, moving, secrets, "default/b", "1")
	s.put(t, moving, logical, "cluster", "left out")
	f, err := s.Follow(t.Context(), moving, Key{logical, "cluster"})
	succeed(t, err)
	defer f.Close()
	revision := int64(0)
	check := func(want string) {
		t.Helper()
		found := changes(t, f, revision)
		if got := names(found); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		all := s.digest(t)
		delete(all, logical)
		if got := all.Difference(found.Digest); got != "" {
			t.Error(got)
		}
		revision = found.Revision
	}
	check("default/a default/b")
	check("")
	s.put(t, moving, secrets, "default/a", "2")
	s.put(t, moving, secrets, "default/c", "1")
	s.delete(t, moving, secrets, "default/b")
	s.put(t, moving, logical, "cluster", "changed")
	s.put(t, other, secrets, "default/a", "of another logical cluster")
	check("-default/b default/a default/c")
	s.put(t, moving, secrets, "default/b", "again")
	s.put(t, moving, plain, "w", "of a storage that had no keys")
	check("default/b w")
	s.put(t, moving, secrets, "default/short", "1")
	s.delete(t, moving, secrets, "default/short")
	s.delete(t, moving, plain, "w")
	check("-default/short -w")
	check("")
	s.put(t, moving, plain, "w", "2")
	check("w")
	if got := names(changes(t, f, 0)); got != "default/a default/b default/c w" {
		t.Errorf("all keys: %q", got)
	}
}

// testUnknownStorages has a replica that knows the API of an object, or that there are objects of it, after another one has stored it.
func testUnknownStorages(t *testing.T) {
	s := newShard(t, origin, nil)
	known := []string{configMaps}
	s.cfg.Storages = func(context.Context) ([]string, error) { return slices.Clone(known), nil }
	s.put(t, moving, configMaps, "default/a", "1")
	s.put(t, moving, plain, "w", "1")
	s.put(t, moving, bound, "w", "1")
	f := s.follow(t)
	first := changes(t, f, 0)
	if got := names(first); got != "default/a" {
		t.Errorf("before it is known: %q", got)
	}
	known = append(known, plain)
	if got := changes(t, f, first.Revision); names(got) != "w" || got.Changed[0].Resource != plain {
		t.Errorf("when it is known: %q", names(got))
	}
	s.put(t, moving, configMaps, "default/b", "1")
	second := changes(t, f, first.Revision)
	if got := names(second); got != "default/b w" {
		t.Errorf("when it is asked again: %q", got)
	}
	third := changes(t, f, second.Revision)
	if got := names(third); got != "" {
		t.Errorf("afterwards: %q", got)
	}
	all, err := f.AllChanges(t.Context(), third.Revision)
	if err != nil || names(all) != "w" || all.Changed[0].Resource != bound {
		t.Errorf("with what nobody has told the replica: %+v, %v", all, err)
	}
}

// testProgress has reports of the progress of one watch wait behind its large events, while another watch begins that has much to catch up with.
func testProgress(t *testing.T) {
	const attempts, keys, large = 5, 50, 5
	s := newShard(t, origin, nil)
	s.cfg.Storages = func(context.Context) ([]string, error) { return []string{configMaps}, nil }
	s.put(t, moving, configMaps, "default/large", "")
	before, err := s.client.Get(t.Context(), "/")
	succeed(t, err)
	for i := range keys {
		s.put(t, moving, secrets, fmt.Sprintf("default/s-%d", i), "content")
	}
	for range attempts {
		f := s.follow(t)
		other, storage := f.storages[configMaps], f.newFollowed(secrets)
		f.storages[secrets] = storage
		for range large {
			s.put(t, moving, configMaps, "default/large", strings.Repeat("x", 1<<20))
		}
		for range 10 {
			succeed(t, f.watcher.RequestProgress(other.stream))
		}
		f.running.Go(func() { f.watch(secrets, storage, s.clusterPrefix(moving, secrets), before.Header.Revision) })
		succeed(t, f.await(t.Context(), before.Header.Revision+keys))
		f.mu.Lock()
		if got := len(storage.keys); got != keys {
			t.Errorf("the watch is complete with %d of %d keys", got, keys)
		}
		f.mu.Unlock()
		f.Close()
	}
}

// testDamage changes values in etcd on one side of a copy that was complete and compared.
func testDamage(t *testing.T) {
	from, to := newShard(t, origin, gcm(t, "a")), newShard(t, destination, box("b"))
	for i := range 20 {
		from.put(t, moving, secrets, fmt.Sprintf("default/s-%d", i), "content")
		from.put(t, moving, configMaps, fmt.Sprintf("default/c-%d", i), "content")
	}
	copyAll(t, from, to)
	atOrigin, atDestination := from.follow(t), to.follow(t)
	list := changes(t, atOrigin, 0)
	if got := atDestination.Differing(list.Changed); len(got) != 0 {
		t.Errorf("the copy differs in %v", got)
	}
	compare := func() string {
		t.Helper()
		return changes(t, atOrigin, list.Revision).Digest.Difference(changes(t, atDestination, 0).Digest)
	}
	if got := compare(); got != "" {
		t.Error(got)
	}
	damaged := Key{secrets, "default/s-7"}
	to.put(t, moving, damaged.Resource, damaged.Name, "damaged")
	if got := compare(); got != secrets+" has other content at the destination than at the origin" {
		t.Errorf("a damaged value at the destination: %q", got)
	}
	if got := atDestination.Differing(list.Changed); !slices.Equal(got, []Key{damaged}) {
		t.Errorf("the copy differs in %v", got)
	}
	to.delete(t, moving, damaged.Resource, damaged.Name)
	if got := compare(); got != secrets+" has 20 keys at the origin and 19 at the destination" {
		t.Errorf("a lost value at the destination: %q", got)
	}
	if got := atDestination.Differing(list.Changed); !slices.Equal(got, []Key{damaged}) {
		t.Errorf("the copy differs in %v", got)
	}
	// What differs is copied again, though the record says that this version has been copied.
	entries, _, err := from.Read(t.Context(), moving, []Key{damaged}, 0)
	succeed(t, err)
	succeed(t, to.NewWriter(in, nil).Store(t.Context(), entries))
	if got := compare(); got != "" {
		t.Error(got)
	}
	from.put(t, moving, configMaps, "default/c-7", "damaged")
	if got := compare(); got != configMaps+" has other content at the destination than at the origin" {
		t.Errorf("a damaged value at the origin: %q", got)
	}
	// What cannot be decrypted has no digest.
	key := to.clusterKey(moving, damaged)
	if _, err := to.client.Put(t.Context(), key, "k8s:enc:secretbox:v1:b:x"); err != nil {
		t.Fatal(err)
	}
	if _, err := atDestination.Changes(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "decrypting a value of "+secrets) {
		t.Errorf("a value that cannot be decrypted: %v", err)
	}
}

// countingKV counts the keys, and the bytes of values, that etcd returns.
type countingKV struct {
	clientv3.KV
	keys, bytes atomic.Int64
}

func (c *countingKV) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	response, err := c.KV.Get(ctx, key, options...)
	if err == nil {
		c.keys.Add(int64(len(response.Kvs)))
		for _, kv := range response.Kvs {
			c.bytes.Add(int64(len(kv.Value)))
		}
	}
	return response, err
}

func (c *countingKV) Txn(ctx context.Context) clientv3.Txn { return &countingTxn{c.KV.Txn(ctx), c} }

type countingTxn struct {
	clientv3.Txn
	kv *countingKV
}

func (c *countingTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	return &countingTxn{c.Txn.Then(ops...), c.kv}
}

func (c *countingTxn) Commit() (*clientv3.TxnResponse, error) {
	response, err := c.Txn.Commit()
	if err == nil {
		for _, result := range response.Responses {
			for _, kv := range result.GetResponseRange().GetKvs() {
				c.kv.keys.Add(1)
				c.kv.bytes.Add(int64(len(kv.Value)))
			}
		}
	}
	return response, err
}

// testReadsOfComparison counts what is read of etcd: of each value once to follow it, and nothing to compare it again, whatever there is.
func testReadsOfComparison(t *testing.T) {
	const keys, size = 5000, 1 << 10
	from := newShard(t, origin, nil)
	fill(t, from, keys, strings.Repeat("x", size))
	kv := &countingKV{KV: from.client.KV}
	from.client.KV = kv
	f := from.follow(t)
	if got := kv.bytes.Load(); got != keys*size {
		t.Errorf("%d bytes are read of %d", got, keys*size)
	}
	before := kv.keys.Load()
	first := changes(t, f, 0)
	from.put(t, moving, configMaps, "default/c-00007", "changed")
	from.put(t, moving, configMaps, "default/new", "new")
	from.delete(t, moving, configMaps, "default/c-00008")
	second := changes(t, f, first.Revision)
	if got := kv.keys.Load() - before; got != 0 {
		t.Errorf("%d keys are read to compare again", got)
	}
	if got := names(second); got != "-default/c-00008 default/c-00007 default/new" {
		t.Errorf("got %s", got)
	}
	if got := second.Digest.Difference(from.digest(t)); got != "" {
		t.Error(got)
	}
}

func testExpiry(t *testing.T) {
	s := newShard(t, origin, nil)
	granted, err := s.client.Grant(t.Context(), 3600)
	succeed(t, err)
	s.put(t, moving, events, "default/e", "expires", clientv3.WithLease(granted.ID))
	s.put(t, moving, configMaps, "default/a", "1")
	f := s.follow(t)
	first := changes(t, f, 0)
	if _, err := s.client.Revoke(t.Context(), granted.ID); err != nil {
		t.Fatal(err)
	}
	if got := changes(t, f, first.Revision); names(got) != "-default/e" || !got.Expiring {
		t.Errorf("an expiry: %q, %t", names(got), got.Expiring)
	}
	s.delete(t, moving, configMaps, "default/a")
	if got := changes(t, f, first.Revision); names(got) != "-default/a -default/e" || got.Expiring {
		t.Errorf("a deletion: %q, %t", names(got), got.Expiring)
	}
}

// testFollowerEnds compacts etcd, so that a Follower which was away has lost its place, and closes another one.
func testFollowerEnds(t *testing.T) {
	server := etcdtest.Start(t)
	s := newShard(t, server, nil)
	s.put(t, moving, configMaps, "default/a", "1")
	f := s.follow(t)
	revision := changes(t, f, 0).Revision
	f.Close()
	if _, err := f.Changes(t.Context(), revision); err == nil {
		t.Error("who is closed follows")
	}
	if got := s.followedKeys.Load(); got != 0 {
		t.Errorf("%d keys are remembered by nobody", got)
	}
	s.put(t, moving, configMaps, "default/a", "2")
	last, err := s.client.Put(t.Context(), s.prefix+"/other", "1")
	succeed(t, err)
	if _, err := s.client.Compact(t.Context(), last.Header.Revision); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f = &Follower{t: s.Transfer, cluster: moving, watcher: clientv3.NewWatcher(s.client), storages: map[string]*followed{}, advanced: make(chan struct{})}
	f.ctx, f.stop = context.WithCancel(ctx)
	f.storages[configMaps] = f.newFollowed(configMaps)
	f.running.Go(func() { f.watch(configMaps, f.storages[configMaps], s.clusterPrefix(moving, configMaps), revision) })
	if _, err := f.Changes(t.Context(), revision); err == nil || !strings.Contains(err.Error(), "compacted") {
		t.Errorf("after a compaction: %v", err)
	}
	f.Close()
	f = s.follow(t)
	cancel()
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := f.Changes(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func testFollowedKeys(t *testing.T) {
	s := newShard(t, origin, nil)
	fill(t, s, 10, "content")
	s.followedKeys.Store(MaxFollowedKeys - 9)
	if _, err := s.Follow(t.Context(), moving, Key{}); !errors.Is(err, errTooManyKeys) {
		t.Errorf("one too many: %v", err)
	}
	if got := s.followedKeys.Load(); got != MaxFollowedKeys-9 {
		t.Errorf("%d keys are left of those that were too many", got-MaxFollowedKeys+9)
	}
	s.followedKeys.Store(MaxFollowedKeys - 10)
	f := s.follow(t)
	s.put(t, moving, configMaps, "default/more", "content")
	if _, err := f.Changes(t.Context(), 0); !errors.Is(err, errTooManyKeys) {
		t.Errorf("one more: %v", err)
	}
	f.Close()
	if got := s.followedKeys.Load(); got != MaxFollowedKeys-10 {
		t.Errorf("%d keys are left", got-MaxFollowedKeys+10)
	}
}

func TestSum(t *testing.T) {
	a, b, c := sumOf("a", false, []byte("1")), sumOf("b", false, []byte("1")), sumOf("a", true, []byte("1"))
	if a == b || a == c || a == sumOf("a", false, []byte("2")) || sumOf("ab", false, nil) == sumOf("a", false, []byte("b")) {
		t.Error("different keys have the same sum")
	}
	if a.plus(b).plus(c) != c.plus(a).plus(b) || a.plus(b).minus(a) != b || (Sum{}).minus(a).plus(a) != (Sum{}) {
		t.Error("the order of keys counts, or a change is not undone")
	}
	if twice := a.plus(a); twice == (Sum{}) || twice == a {
		t.Error("a key that is there twice does not count")
	}
}

// BenchmarkFollower reads logical clusters of different sizes, and then compares them after each change of one of 100 keys.
func BenchmarkFollower(b *testing.B) {
	server := etcdtest.Start(b)
	for _, objects := range []int{1000, 100000} {
		b.Run(fmt.Sprint(objects), func(b *testing.B) {
			s := newShard(b, server, nil)
			fill(b, s, objects, strings.Repeat("x", 2<<10))
			start := time.Now()
			f := s.follow(b)
			read := time.Since(start)
			revision := changes(b, f, 0).Revision
			for i := 0; b.Loop(); i++ {
				s.put(b, moving, configMaps, fmt.Sprintf("default/c-%05d", i%100), "changed")
				revision = changes(b, f, revision).Revision
			}
			b.ReportMetric(float64(read.Milliseconds()), "read-ms")
		})
	}
}
