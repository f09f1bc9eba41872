package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	uid = types.UID("6f1c2f0e-7a55-4c5e-9a4f-0d3a5b1c9e11")

	configMaps = "/core/configmaps"
	secrets    = "/core/secrets"
	events     = "/core/events"
	plain      = "/example.com/widgets/customresources"
	bound      = "/example.com/widgets/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	logical    = "/core.kcp.io/logicalclusters/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

var (
	in     = Incoming{moving, uid}
	moving = logicalcluster.MustParseName("moving")
	other  = logicalcluster.MustParseName("other")
	// storages is not sorted, and has duplicates: the caller does not promise more.
	storages = []string{secrets, plain, configMaps, bound, events, logical, plain}
)

// origin and destination run for all tests, each of which has a prefix of its own.
var origin, destination *embeddedetcd.Server

func TestTransfer(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("with etcd", func(t *testing.T) {
		if _, err := New(Config{}).Follow(t.Context(), moving, Key{}); !errors.Is(err, errNoProgress) {
			t.Errorf("an etcd of an unknown version: %v", err)
		}
		origin, destination = etcdtest.Start(t), etcdtest.Start(t)
		etcdtest.DetectFeatures(t, etcdtest.NewClient(t, origin))
		for name, test := range map[string]func(*testing.T){
			"moves all keys of a logical cluster, and only these":       testMove,
			"encrypts with the keys of each shard":                      testEncryption,
			"keeps leases":                                              testLeases,
			"copies and aborts again after an error at any transaction": testCopyAgain,
			"writes only within the fence":                              testFence,
			"deletes one key per revision, within the fence":            testPurge,
			"deletes while etcd refuses writes":                         testDeleteWithoutSpace,
			"finds differences":                                         testDigest,
			"follows changes":                                           testFollow,
			"believes no progress of another watch":                     testProgress,
			"finds storages that this replica does not know":            testUnknownStorages,
			"finds damage on either side":                               testDamage,
			"compares without reading what has not changed":             testReadsOfComparison,
			"tells expiry from deletion":                                testExpiry,
			"ends with its watches":                                     testFollowerEnds,
			"remembers a bounded number of keys":                        testFollowedKeys,
			"reads at a revision":                                       testReadAtRevision,
			"limits a read":                                             testReadLimits,
			"refuses values that etcd does not store":                   testLargeValue,
			"refuses keys of other storages and logical clusters":       testRefusals,
			"pages":                      testPages,
			"lists what migrations copy": testIncoming,
		} {
			t.Run(name, test)
		}
	})
}

// prefixes numbers the prefixes of tests.
var prefixes atomic.Int64

// shard is the etcd of one shard with a prefix of its own.
type shard struct {
	*Transfer
	client *clientv3.Client
}

func newShard(t testing.TB, server *embeddedetcd.Server, transformers value.ResourceTransformers) *shard {
	client := etcdtest.NewClient(t, server)
	all := func(context.Context) ([]string, error) { return slices.Clone(storages), nil }
	return &shard{client: client, Transfer: New(Config{
		Client: client, Prefix: fmt.Sprintf("/test-%d", prefixes.Add(1)), Transformers: transformers, Storages: all, Scan: all,
	})}
}

// put stores a value as the shard does.
func (s *shard) put(t testing.TB, cluster logicalcluster.Name, resource, name, content string, options ...clientv3.OpOption) {
	t.Helper()
	key := s.clusterKey(cluster, Key{resource, name})
	encrypted, err := s.encrypt(t.Context(), resource, key, []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Put(t.Context(), key, string(encrypted), options...); err != nil {
		t.Fatal(err)
	}
}

func (s *shard) delete(t testing.TB, cluster logicalcluster.Name, resource, name string) {
	t.Helper()
	if _, err := s.client.Delete(t.Context(), s.clusterKey(cluster, Key{resource, name})); err != nil {
		t.Fatal(err)
	}
}

// raw returns all keys of the shard below a prefix, as they are in etcd.
func (s *shard) raw(t testing.TB, below string) map[string]string {
	t.Helper()
	response, err := s.client.Get(t.Context(), s.prefix+below, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, kv := range response.Kvs {
		found[strings.TrimPrefix(string(kv.Key), s.prefix)] = string(kv.Value)
	}
	return found
}

// copyAll copies the difference, over the wire format, and returns the revision of the origin.
func copyAll(t testing.TB, from, to *shard) int64 {
	t.Helper()
	revision, err := tryCopyAll(t, from, to)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func tryCopyAll(t testing.TB, from, to *shard) (int64, error) {
	t.Helper()
	ctx := t.Context()
	versions, revision, err := from.Manifest(ctx, moving)
	if err != nil {
		return 0, err
	}
	copied, err := to.Copied(ctx, in)
	if err != nil {
		return 0, err
	}
	writer := to.NewWriter(in, nil)
	keys, gone := Difference(listed(versions), copied)
	for len(keys) > 0 {
		var entries []Entry
		if entries, keys, err = from.Read(ctx, moving, keys, revision); err != nil {
			return 0, err
		}
		wire, err := json.Marshal(entries)
		if err != nil {
			return 0, err
		}
		entries = nil
		if err := json.Unmarshal(wire, &entries); err != nil {
			return 0, err
		}
		if err := writer.Store(ctx, entries); err != nil {
			return 0, err
		}
	}
	return revision, writer.Delete(ctx, gone)
}

// listed returns keys without sums.
func listed(versions []Version) []Listed {
	list := make([]Listed, len(versions))
	for i, version := range versions {
		list[i].Version = version
	}
	return list
}

// difference compares the logical cluster on two shards.
func difference(t testing.TB, from, to *shard) string {
	t.Helper()
	return from.digest(t).Difference(to.digest(t))
}

// follow returns a Follower that ends with the test.
func (s *shard) follow(t testing.TB) *Follower {
	t.Helper()
	f, err := s.Follow(context.WithoutCancel(t.Context()), moving, Key{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// digest returns the digest that is computed from all values.
func (s *shard) digest(t testing.TB) Digest {
	t.Helper()
	f := s.follow(t)
	defer f.Close()
	digest, err := f.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func changes(t testing.TB, f *Follower, since int64) *Changes {
	t.Helper()
	found, err := f.Changes(t.Context(), since)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// testMove has names like that of the logical cluster as namespaces, objects and identities of others.
func testMove(t *testing.T) {
	from, to := newShard(t, origin, nil), newShard(t, destination, nil)
	own := map[Key]string{
		{configMaps, "default/a"}: "1", {configMaps, "moving/moving"}: "2", {secrets, "default/~/~"}: "3",
		{plain, "default/w"}: "4", {plain, "clusterscoped"}: "5", {bound, "default/w"}: "6", {bound, "moving"}: "7", {logical, "cluster"}: "8",
	}
	for key, content := range own {
		from.put(t, moving, key.Resource, key.Name, content)
	}
	from.put(t, other, configMaps, "moving/a", "namespace")
	from.put(t, other, configMaps, "default/moving", "object")
	from.put(t, other, bound, "moving/moving", "both")
	from.put(t, other, plain, "moving", "cluster scoped")
	from.put(t, logicalcluster.MustParseName("moving-2"), configMaps, "default/a", "longer name")
	from.put(t, logicalcluster.MustParseName("movin"), configMaps, "g/a", "shorter name")
	from.put(t, moving, "/not.a.storage/moving", "moving/moving", "no storage")
	foreign := from.raw(t, "/")
	for key := range own {
		delete(foreign, strings.TrimPrefix(from.clusterKey(moving, key), from.prefix))
	}
	to.put(t, other, configMaps, "moving/a", "at the destination")
	before := to.raw(t, "/")

	// Two passes, with changes in between.
	revisions := watchRevisions(t, to, configMaps)
	copyAll(t, from, to)
	revisions(2)
	from.put(t, moving, configMaps, "default/a", "1b")
	own[Key{configMaps, "default/a"}] = "1b"
	from.delete(t, moving, plain, "default/w")
	delete(own, Key{plain, "default/w"})
	from.put(t, moving, bound, "new", "9")
	own[Key{bound, "new"}] = "9"
	copyAll(t, from, to)
	if got := difference(t, from, to); got != "" {
		t.Error(got)
	}

	succeed(t, to.Forget(t.Context(), in))
	want := maps.Clone(before)
	for key, content := range own {
		want[strings.TrimPrefix(to.clusterKey(moving, key), to.prefix)] = content
	}
	if got := to.raw(t, "/"); !maps.Equal(got, want) {
		t.Errorf("the destination has %v, want %v", got, want)
	}
	if deleted, err := from.Purge(t.Context(), moving, storages, nil, nil); err != nil || deleted != len(own) {
		t.Errorf("deleted %d, %v, want %d", deleted, err, len(own))
	}
	if got := from.raw(t, "/"); !maps.Equal(got, foreign) {
		t.Errorf("the origin has %v, want %v", got, foreign)
	}
}

var errFault = errors.New("fault")

func testIncoming(t *testing.T) {
	s := newShard(t, destination, nil)
	entry := []Entry{{Version: Version{Key: Key{secrets, "default/a"}, ModRevision: 7}}}
	all := []Incoming{{moving, "1"}, {moving, "11"}, {moving, "2"}, {other, "1"}}
	for _, in := range all {
		succeed(t, s.NewWriter(in, nil).Store(t.Context(), entry))
	}
	if got, err := s.Incoming(t.Context()); err != nil || !slices.Equal(got, all) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := s.Copied(t.Context(), all[1]); err != nil || !slices.Equal(got, []Version{entry[0].Version}) {
		t.Errorf("got %v, %v", got, err)
	}
	succeed(t, s.Forget(t.Context(), all[0]))
	if got, err := s.Incoming(t.Context()); err != nil || !slices.Equal(got, all[1:]) {
		t.Errorf("after one is forgotten: %v, %v", got, err)
	}
}

func TestDifference(t *testing.T) {
	version := func(name string, revision int64) Version { return Version{Key{secrets, name}, revision} }
	changed, gone := Difference(
		listed([]Version{version("same", 1), version("changed", 3), version("new", 4)}),
		[]Version{version("changed", 2), version("deleted", 1), version("same", 1)})
	if !slices.Equal(changed, []Key{{secrets, "changed"}, {secrets, "new"}}) || !slices.Equal(gone, []Key{{secrets, "deleted"}}) {
		t.Errorf("got %v, %v", changed, gone)
	}
}

// BenchmarkTransfer moves objects of 2 KiB between two shards that encrypt.
func BenchmarkTransfer(b *testing.B) {
	const objects = 1000
	source, target := etcdtest.Start(b), etcdtest.Start(b)
	from := newShard(b, source, nil)
	fill(b, from, objects, strings.Repeat("x", 2<<10))
	b.SetBytes(objects * 2 << 10)
	var copied, verified, purged time.Duration
	for b.Loop() {
		to := newShard(b, target, nil)
		start := time.Now()
		copyAll(b, from, to)
		copied += time.Since(start)
		start = time.Now()
		if got := difference(b, from, to); got != "" {
			b.Fatal(got)
		}
		verified += time.Since(start)
		start = time.Now()
		if _, err := to.Purge(b.Context(), moving, storages, nil, nil); err != nil {
			b.Fatal(err)
		}
		purged += time.Since(start)
	}
	for name, sum := range map[string]time.Duration{"copy": copied, "verify": verified, "purge": purged} {
		b.ReportMetric(float64(sum.Milliseconds())/float64(b.N), name+"-ms/op")
	}
}
