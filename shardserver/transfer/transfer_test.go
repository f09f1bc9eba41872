package transfer

import (
	"bytes"
	"context"
	"crypto/aes"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value"
	encryptaes "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"

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
		origin, destination = etcdtest.Start(t), etcdtest.Start(t)
		for name, test := range map[string]func(*testing.T){
			"moves all keys of a logical cluster, and only these":   testMove,
			"encrypts with the keys of each shard":                  testEncryption,
			"keeps leases":                                          testLeases,
			"activates again after an error at any transaction":     testActivateAgain,
			"activates only below the fence and over equal content": testActivateRefuses,
			"replaces and skips values":                             testReplace,
			"deletes one key per revision, within the fence":        testPurge,
			"finds differences":                                     testDigest,
			"reads at a revision":                                   testReadAtRevision,
			"limits a read":                                         testReadLimits,
			"stages values as large as etcd stores":                 testLargeValue,
			"refuses keys of other storages and logical clusters":   testRefusals,
			"pages":                       testPages,
			"drops what migrations leave": testStagings,
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
	return &shard{client: client, Transfer: New(Config{
		Client: client, Prefix: fmt.Sprintf("/test-%d", prefixes.Add(1)), Transformers: transformers,
		Storages: func(context.Context) ([]string, error) { return storages, nil },
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

// copyAll stages the difference, over the wire format, and returns the revision of the origin.
func copyAll(t testing.TB, from, to *shard) int64 {
	t.Helper()
	ctx := t.Context()
	versions, revision, err := from.Manifest(ctx, moving)
	if err != nil {
		t.Fatal(err)
	}
	staged, err := to.Staged(ctx, moving, uid)
	if err != nil {
		t.Fatal(err)
	}
	keys, gone := Difference(versions, staged)
	for len(keys) > 0 {
		var entries []Entry
		if entries, keys, err = from.Read(ctx, moving, keys, revision); err != nil {
			t.Fatal(err)
		}
		wire, err := json.Marshal(entries)
		if err != nil {
			t.Fatal(err)
		}
		entries = nil
		if err := json.Unmarshal(wire, &entries); err != nil {
			t.Fatal(err)
		}
		if err := to.Stage(ctx, moving, uid, entries); err != nil {
			t.Fatal(err)
		}
	}
	if err := to.Unstage(ctx, moving, uid, gone); err != nil {
		t.Fatal(err)
	}
	return revision
}

// difference compares origin and staging area.
func difference(t testing.TB, from, to *shard, revision int64) string {
	t.Helper()
	want, err := from.Digest(t.Context(), moving, revision)
	if err != nil {
		t.Fatal(err)
	}
	got, err := to.StagedDigest(t.Context(), moving, uid)
	if err != nil {
		t.Fatal(err)
	}
	return want.Difference(got)
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
	copyAll(t, from, to)
	if got := to.raw(t, "/core/"); !maps.Equal(got, before) {
		t.Errorf("staging changed what storages contain: %v", got)
	}
	from.put(t, moving, configMaps, "default/a", "1b")
	own[Key{configMaps, "default/a"}] = "1b"
	from.delete(t, moving, plain, "default/w")
	delete(own, Key{plain, "default/w"})
	from.put(t, moving, bound, "new", "9")
	own[Key{bound, "new"}] = "9"
	revision := copyAll(t, from, to)
	if got := difference(t, from, to, revision); got != "" {
		t.Error(got)
	}

	succeed(t, to.Activate(t.Context(), moving, uid, nil, nil))
	succeed(t, to.DropStaged(t.Context(), moving, uid))
	want := maps.Clone(before)
	for key, content := range own {
		want[strings.TrimPrefix(to.clusterKey(moving, key), to.prefix)] = content
	}
	if got := to.raw(t, "/"); !maps.Equal(got, want) {
		t.Errorf("the destination has %v, want %v", got, want)
	}
	if deleted, err := from.Purge(t.Context(), moving, nil, nil); err != nil || deleted != len(own) {
		t.Errorf("deleted %d, %v, want %d", deleted, err, len(own))
	}
	if got := from.raw(t, "/"); !maps.Equal(got, foreign) {
		t.Errorf("the origin has %v, want %v", got, foreign)
	}
}

// encryption encrypts secrets with a named provider, and no other resource.
type encryption struct{ secrets value.Transformer }

func (e encryption) TransformerForResource(resource schema.GroupResource) value.Transformer {
	if resource == (schema.GroupResource{Resource: "secrets"}) {
		return e.secrets
	}
	return identity.NewEncryptCheckTransformer()
}

func gcm(t testing.TB, name string) value.ResourceTransformers {
	block, err := aes.NewCipher(bytes.Repeat([]byte(name), 32))
	if err != nil {
		t.Fatal(err)
	}
	transformer, err := encryptaes.NewGCMTransformer(block)
	if err != nil {
		t.Fatal(err)
	}
	return encryption{value.NewPrefixTransformers(nil, value.PrefixTransformer{Prefix: []byte("k8s:enc:aesgcm:v1:" + name + ":"), Transformer: transformer})}
}

func box(name string) value.ResourceTransformers {
	return encryption{value.NewPrefixTransformers(nil, value.PrefixTransformer{
		Prefix: []byte("k8s:enc:secretbox:v1:" + name + ":"), Transformer: secretbox.NewSecretboxTransformer([32]byte([]byte(strings.Repeat(name, 32)))),
	})}
}

func testEncryption(t *testing.T) {
	const aesA, aesB, secretboxB = "k8s:enc:aesgcm:v1:a:", "k8s:enc:aesgcm:v1:b:", "k8s:enc:secretbox:v1:b:"
	for name, tc := range map[string]struct {
		from, to           value.ResourceTransformers
		atOrigin, atTarget string
	}{
		"two keys":                      {gcm(t, "a"), gcm(t, "b"), aesA, aesB},
		"two ciphers":                   {gcm(t, "a"), box("b"), aesA, secretboxB},
		"encrypted at the origin":       {gcm(t, "a"), nil, aesA, ""},
		"encrypted at the destination":  {nil, box("b"), "", secretboxB},
		"encrypted at none of the both": {nil, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := newShard(t, origin, tc.from), newShard(t, destination, tc.to)
			const content, visible = "of a secret", "of a config map"
			from.put(t, moving, secrets, "default/s", content)
			from.put(t, moving, configMaps, "default/c", visible)
			isStored := func(in *shard, key, prefix, content string) {
				t.Helper()
				stored := in.raw(t, key)[key]
				if !strings.HasPrefix(stored, prefix) || (prefix == "") != strings.Contains(stored, content) {
					t.Errorf("%s is %q", key, stored)
				}
			}
			isStored(from, "/core/secrets/moving/default/s", tc.atOrigin, content)
			if got := difference(t, from, to, copyAll(t, from, to)); got != "" {
				t.Error(got)
			}
			isStored(to, "/~incoming/moving/"+string(uid)+"/values/core/secrets/~/default/s", tc.atTarget, content)
			isStored(to, "/~incoming/moving/"+string(uid)+"/values/core/configmaps/~/default/c", "", visible)
			succeed(t, to.Activate(t.Context(), moving, uid, nil, nil))
			isStored(to, "/core/secrets/moving/default/s", tc.atTarget, content)
			isStored(to, "/core/configmaps/moving/default/c", "", visible)
			entries, _, err := to.Read(t.Context(), moving, []Key{{secrets, "default/s"}, {configMaps, "default/c"}}, 0)
			if err != nil || len(entries) != 2 || string(entries[0].Value) != content || string(entries[1].Value) != visible {
				t.Errorf("the destination reads %v, %v", entries, err)
			}
			if tc.from != nil && tc.to != nil { // a shard cannot read what another has encrypted
				copied := newShard(t, origin, tc.to)
				copied.prefix = from.prefix
				if _, err := copied.Digest(t.Context(), moving, 0); err == nil || strings.Contains(err.Error(), content) {
					t.Errorf("got error %v", err)
				}
			}
		})
	}
}

func testLeases(t *testing.T) {
	from, to := newShard(t, origin, nil), newShard(t, destination, nil)
	lease := func(ttl int64) clientv3.OpOption {
		granted, err := from.client.Grant(t.Context(), ttl)
		if err != nil {
			t.Fatal(err)
		}
		return clientv3.WithLease(granted.ID)
	}
	start := time.Now()
	hour, day := lease(3600), lease(86400)
	for i := range 20 {
		from.put(t, moving, events, fmt.Sprintf("default/hour-%02d", i), "e", hour)
	}
	from.put(t, moving, events, "default/day", "e", day)
	from.put(t, moving, events, "default/forever", "e")
	// An event that has expired since the revision of the manifest.
	revoked, err := from.client.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	from.put(t, moving, events, "default/expired", "e", clientv3.WithLease(revoked.ID))
	_, revision, err := from.Manifest(t.Context(), moving)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.client.Revoke(t.Context(), revoked.ID); err != nil {
		t.Fatal(err)
	}
	entries, _, err := from.Read(t.Context(), moving, []Key{{events, "default/day"}, {events, "default/expired"}, {events, "default/forever"}}, revision)
	if err != nil || len(entries) != 3 {
		t.Fatalf("got %v, %v", entries, err)
	}
	if end := entries[0].Expires; end.Before(start.Add(24*time.Hour-time.Second)) || end.After(time.Now().Add(24*time.Hour+time.Second)) {
		t.Errorf("a key with a lease of one day expires at %v", end)
	}
	if end := entries[1].Expires; end.IsZero() || end.After(time.Now().Add(time.Second)) {
		t.Errorf("a key that has expired expires at %v", end)
	}
	if !entries[2].Expires.IsZero() {
		t.Error("a key without a lease expires")
	}
	if err := to.Stage(t.Context(), moving, uid, entries[1:2]); err != nil {
		t.Fatal(err)
	}
	to.now = func() time.Time { return time.Now().Add(2 * time.Second) } // entries[1] has expired
	succeed(t, to.Activate(t.Context(), moving, uid, nil, nil))
	if got := to.raw(t, "/core/"); len(got) != 0 {
		t.Errorf("a key that has expired was activated: %v", got)
	}
	to.now = time.Now

	if got := difference(t, from, to, copyAll(t, from, to)); got != "" {
		t.Error(got)
	}
	succeed(t, to.Activate(t.Context(), moving, uid, nil, nil))
	found, err := to.client.Get(t.Context(), to.clusterPrefix(moving, events), clientv3.WithPrefix())
	if err != nil || len(found.Kvs) != 22 {
		t.Fatalf("got %d keys, %v", len(found.Kvs), err)
	}
	granted := map[int64]int{}
	for _, kv := range found.Kvs {
		name := string(kv.Key)
		if strings.HasSuffix(name, "/forever") {
			if kv.Lease != 0 {
				t.Error("a key without a lease has one")
			}
			continue
		}
		granted[kv.Lease]++
		want := time.Hour
		if strings.HasSuffix(name, "/day") {
			want = 24 * time.Hour
		}
		rest, err := to.client.TimeToLive(t.Context(), clientv3.LeaseID(kv.Lease))
		if err != nil {
			t.Fatal(err)
		}
		// etcd rounds the rest down.
		end := time.Now().Add(time.Duration(rest.TTL+1) * time.Second)
		if end.Before(start.Add(want)) || end.After(start.Add(want+time.Minute)) {
			t.Errorf("%s expires %v after the original time", name, end.Sub(start.Add(want)))
		}
	}
	if len(granted) != 2 {
		t.Errorf("the keys have %d leases, want 2", len(granted))
	}
}

// faultyKV fails transactions from one on, before or after etcd has applied that.
type faultyKV struct {
	clientv3.KV
	left    atomic.Int64
	applied bool
}

var errFault = errors.New("fault")

func (f *faultyKV) Txn(ctx context.Context) clientv3.Txn { return &faultyTxn{f.KV.Txn(ctx), f} }

type faultyTxn struct {
	clientv3.Txn
	kv *faultyKV
}

func (f *faultyTxn) If(conditions ...clientv3.Cmp) clientv3.Txn {
	return &faultyTxn{f.Txn.If(conditions...), f.kv}
}

func (f *faultyTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	return &faultyTxn{f.Txn.Then(ops...), f.kv}
}

func (f *faultyTxn) Commit() (*clientv3.TxnResponse, error) {
	left := f.kv.left.Add(-1)
	if left < 0 || (left == 0 && !f.kv.applied) {
		return nil, errFault
	}
	response, err := f.Txn.Commit()
	if left == 0 && err == nil {
		return nil, errFault
	}
	return response, err
}

func testActivateAgain(t *testing.T) {
	from := newShard(t, origin, gcm(t, "a"))
	for i := range 12 {
		from.put(t, moving, secrets, fmt.Sprintf("default/s-%d", i), fmt.Sprint(i))
		from.put(t, moving, plain, fmt.Sprintf("w-%d", i), fmt.Sprint(i))
	}
	granted, err := from.client.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	from.put(t, moving, events, "default/e", "e", clientv3.WithLease(granted.ID))
	want, err := from.Digest(t.Context(), moving, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, applied := range []bool{false, true} {
		to := newShard(t, destination, box("b"))
		copyAll(t, from, to)
		kv := to.client.KV
		// Each attempt gets a few transactions further than the one before.
		attempts := 0
		for ; ; attempts++ {
			faulty := &faultyKV{KV: kv, applied: applied}
			faulty.left.Store(int64(1 + 5*attempts))
			to.client.KV = faulty
			err := to.Activate(t.Context(), moving, uid, nil, nil)
			to.client.KV = kv
			if err == nil {
				break
			}
			if !errors.Is(err, errFault) {
				t.Fatalf("attempt %d: %v", attempts, err)
			}
		}
		if attempts < 3 {
			t.Errorf("only %d attempts failed", attempts)
		}
		got, err := to.Digest(t.Context(), moving, 0)
		if err != nil || want.Difference(got) != "" {
			t.Errorf("after %d attempts: %s, %v", attempts, want.Difference(got), err)
		}
	}
}

// fenceOn returns the condition that a key has its present revision.
func fenceOn(t testing.TB, s *shard, key string) []clientv3.Cmp {
	t.Helper()
	response, err := s.client.Get(t.Context(), key)
	if err != nil || len(response.Kvs) != 1 {
		t.Fatalf("%s: %v, %v", key, response, err)
	}
	return []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", response.Kvs[0].ModRevision)}
}

func testActivateRefuses(t *testing.T) {
	from, to := newShard(t, origin, nil), newShard(t, destination, nil)
	from.put(t, moving, configMaps, "default/a", "content")
	from.put(t, moving, configMaps, "default/b", "more")
	copyAll(t, from, to)

	to.put(t, moving, logical, "cluster", "arriving")
	fence := fenceOn(t, to, to.clusterKey(moving, Key{logical, "cluster"}))
	to.put(t, moving, configMaps, "default/a", "foreign-content")
	err := to.Activate(t.Context(), moving, uid, nil, fence)
	if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), configMaps) || strings.Contains(err.Error(), "foreign") || strings.Contains(err.Error(), "default/a") {
		t.Errorf("over another content: %v", err)
	}
	to.put(t, moving, configMaps, "default/a", "content", func() clientv3.OpOption {
		granted, err := to.client.Grant(t.Context(), 3600)
		if err != nil {
			t.Fatal(err)
		}
		return clientv3.WithLease(granted.ID)
	}())
	if err := to.Activate(t.Context(), moving, uid, nil, fence); !errors.Is(err, ErrConflict) {
		t.Errorf("over the same content with a lease: %v", err)
	}
	to.put(t, moving, configMaps, "default/a", "content")
	succeed(t, to.Activate(t.Context(), moving, uid, nil, fence))

	// The logical cluster opens, and a user deletes an object.
	to.put(t, moving, logical, "cluster", "open")
	to.delete(t, moving, configMaps, "default/b")
	if err := to.Activate(t.Context(), moving, uid, nil, fence); !errors.Is(err, ErrFenced) {
		t.Errorf("after the end of the fence: %v", err)
	}
	if _, restored := to.raw(t, configMaps)[configMaps+"/moving/default/b"]; restored {
		t.Error("a late activation restored what was deleted")
	}
}

func testReplace(t *testing.T) {
	from, to := newShard(t, origin, nil), newShard(t, destination, nil)
	from.put(t, moving, logical, "cluster", "skipped")
	from.put(t, moving, configMaps, "default/a", "shard-1")
	from.put(t, moving, configMaps, "default/b", "as it is")
	copyAll(t, from, to)
	replace := func(key Key, plaintext []byte) ([]byte, bool, error) {
		return bytes.ReplaceAll(plaintext, []byte("shard-1"), []byte("shard-2")), key.Resource == logical, nil
	}
	for range 2 {
		succeed(t, to.Activate(t.Context(), moving, uid, replace, nil))
	}
	want := map[string]string{configMaps + "/moving/default/a": "shard-2", configMaps + "/moving/default/b": "as it is"}
	if got := to.raw(t, "/core"); !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	failing := func(Key, []byte) ([]byte, bool, error) { return nil, false, errFault }
	if err := to.Activate(t.Context(), moving, uid, failing, nil); !errors.Is(err, errFault) {
		t.Errorf("got error %v", err)
	}
}

func testPurge(t *testing.T) {
	s := newShard(t, origin, nil)
	for i := range 40 {
		s.put(t, moving, configMaps, fmt.Sprintf("default/c-%d", i), "c")
	}
	s.put(t, moving, plain, "w", "w")
	s.put(t, moving, logical, "cluster", "l")
	s.put(t, other, configMaps, "default/c-1", "c")
	lc := s.clusterKey(moving, Key{logical, "cluster"})
	old := fenceOn(t, s, lc)
	s.put(t, moving, logical, "cluster", "changed")
	keep := func(key Key) bool { return key.Resource == logical }
	if deleted, err := s.Purge(t.Context(), moving, keep, old); !errors.Is(err, ErrFenced) || deleted != 0 {
		t.Errorf("with an old fence: deleted %d, %v", deleted, err)
	}
	watchCtx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := s.client.Watch(watchCtx, s.prefix+configMaps+"/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watch
	if deleted, err := s.Purge(t.Context(), moving, keep, fenceOn(t, s, lc)); err != nil || deleted != 41 {
		t.Errorf("deleted %d, %v, want 41", deleted, err)
	}
	revisions := map[int64]bool{}
	for seen := 0; seen < 40; {
		response := <-watch
		for _, event := range response.Events {
			seen++
			if revisions[event.Kv.ModRevision] {
				t.Errorf("two keys were deleted in revision %d", event.Kv.ModRevision)
			}
			revisions[event.Kv.ModRevision] = true
		}
	}
	want := []string{logical + "/moving/cluster", configMaps + "/other/default/c-1"}
	if got := slices.Sorted(maps.Keys(s.raw(t, "/"))); !slices.Equal(got, want) {
		t.Errorf("left are %v", got)
	}
	if deleted, err := s.Purge(t.Context(), moving, nil, fenceOn(t, s, lc)); err != nil || deleted != 1 {
		t.Errorf("without exception: deleted %d, %v", deleted, err)
	}
}

func testDigest(t *testing.T) {
	from, to := newShard(t, origin, gcm(t, "a")), newShard(t, destination, box("b"))
	from.put(t, moving, secrets, "default/a", "1")
	from.put(t, moving, secrets, "default/b", "2")
	from.put(t, moving, plain, "w", "3")
	revision := copyAll(t, from, to)
	entries, _, err := from.Read(t.Context(), moving, []Key{{secrets, "default/a"}, {plain, "w"}}, 0)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	a, w := entries[0], entries[1]
	stage := func(entry Entry) {
		t.Helper()
		succeed(t, to.Stage(t.Context(), moving, uid, []Entry{entry}))
	}
	unstage := func(key Key) {
		t.Helper()
		succeed(t, to.Unstage(t.Context(), moving, uid, []Key{key}))
	}
	changed, leased, additional, renamed := a, a, w, w
	changed.Value, leased.Expires, additional.Name, renamed.Name = []byte("other"), time.Now().Add(time.Hour), "w-2", "x"
	for _, tc := range []struct {
		name           string
		change, revert func()
		want           string
	}{
		{"equal", func() {}, func() {}, ""},
		{"a missing key", func() { unstage(a.Key) }, func() { stage(a) }, secrets + " has 2 keys at the origin and 1 at the destination"},
		{"an additional key", func() { stage(additional) }, func() { unstage(additional.Key) }, plain + " has 1 keys at the origin and 2 at the destination"},
		{"a missing storage", func() { unstage(w.Key) }, func() { stage(w) }, plain + " has 1 keys at the origin and 0 at the destination"},
		{"a changed value", func() { stage(changed) }, func() { stage(a) }, secrets + " has other content at the destination than at the origin"},
		{"an additional lease", func() { stage(leased) }, func() { stage(a) }, secrets + " has other content at the destination than at the origin"},
		{"another name", func() { stage(renamed); unstage(w.Key) }, func() { stage(w); unstage(renamed.Key) }, plain + " has other content at the destination than at the origin"},
	} {
		tc.change()
		if got := difference(t, from, to, revision); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
		tc.revert()
	}
	from.put(t, moving, secrets, "default/c", "later")
	if got := difference(t, from, to, revision); got != "" {
		t.Errorf("at the revision of the copy: %s", got)
	}
	if got := difference(t, from, to, 0); got == "" {
		t.Error("at a later revision: no difference")
	}
	digest, err := from.Digest(t.Context(), moving, 0)
	if err != nil || digest.Keys() != 4 {
		t.Errorf("got %v, %v", digest, err)
	}
	wire, err := json.Marshal(digest)
	var decoded Digest
	if err != nil || json.Unmarshal(wire, &decoded) != nil || digest.Difference(decoded) != "" {
		t.Errorf("%s decodes as %v, %v", wire, decoded, err)
	}
}

func testReadAtRevision(t *testing.T) {
	s := newShard(t, origin, nil)
	s.put(t, moving, configMaps, "default/a", "old")
	s.put(t, moving, configMaps, "default/b", "old")
	versions, revision, err := s.Manifest(t.Context(), moving)
	if err != nil || len(versions) != 2 {
		t.Fatalf("%v, %v", versions, err)
	}
	keys, _ := Difference(versions, nil)
	s.put(t, moving, configMaps, "default/a", "new")
	s.delete(t, moving, configMaps, "default/b")
	entries, rest, err := s.Read(t.Context(), moving, keys, revision)
	if err != nil || len(rest) != 0 || len(entries) != 2 || string(entries[0].Value) != "old" || entries[0].Version != versions[0] || entries[1].Version != versions[1] {
		t.Errorf("at the revision: %v, %v, %v", entries, rest, err)
	}
	entries, rest, err = s.Read(t.Context(), moving, keys, 0)
	if err != nil || len(rest) != 0 || len(entries) != 1 || string(entries[0].Value) != "new" || entries[0].ModRevision <= revision {
		t.Errorf("latest: %v, %v, %v", entries, rest, err)
	}
}

func testReadLimits(t *testing.T) {
	s := newShard(t, origin, nil)
	large := strings.Repeat("x", 900<<10)
	var keys []Key
	for i := range 5 {
		keys = append(keys, Key{configMaps, fmt.Sprintf("default/large-%d", i)})
		s.put(t, moving, configMaps, keys[i].Name, large)
	}
	entries, rest, err := s.Read(t.Context(), moving, keys, 0)
	if err != nil || len(entries) != 2 || len(rest) != 3 || rest[0] != keys[2] {
		t.Errorf("large values: %d entries, rest %v, %v", len(entries), rest, err)
	}
	missing := make([]Key, MaxReadKeys+1)
	for i := range missing {
		missing[i] = Key{configMaps, fmt.Sprintf("default/missing-%d", i)}
	}
	entries, rest, err = s.Read(t.Context(), moving, missing, 0)
	if err != nil || len(entries) != 0 || len(rest) != 1 {
		t.Errorf("missing keys: %d entries, rest %v, %v", len(entries), rest, err)
	}
}

// testLargeValue finds the largest value that the staging area takes: it must also fit when it is activated.
func testLargeValue(t *testing.T) {
	to := newShard(t, destination, gcm(t, "b"))
	to.put(t, moving, logical, "cluster", "arriving")
	fence := fenceOn(t, to, to.clusterKey(moving, Key{logical, "cluster"}))
	content := bytes.Repeat([]byte("x"), 1536<<10)
	fits, tooLarge := len(content)-4096, len(content)
	key := Key{secrets, "default/" + strings.Repeat("n", 200)}
	entry := func(size int) []Entry {
		return []Entry{{Version: Version{key, 1}, Value: content[:size], Expires: time.Now().Add(time.Hour)}}
	}
	for fits+1 < tooLarge {
		middle := (fits + tooLarge) / 2
		if err := to.Stage(t.Context(), moving, uid, entry(middle)); err != nil {
			tooLarge = middle
		} else {
			fits = middle
		}
	}
	succeed(t, to.Stage(t.Context(), moving, uid, entry(fits)))
	succeed(t, to.Activate(t.Context(), moving, uid, nil, fence))
}

func testRefusals(t *testing.T) {
	s := newShard(t, destination, nil)
	for name, key := range map[string]Key{
		"a storage that is not there":     {"/core/unknown", "a"},
		"a variant of a built-in storage": {secrets + "/customresources", "a"},
		"a variant with an identity":      {secrets + "/" + strings.Repeat("c", 64), "a"},
		"a storage without its variant":   {"/example.com/widgets", "a"},
		"another third segment":           {"/example.com/widgets/moving", "a"},
		"the staging area":                {"/~incoming/moving", "a"},
		"a parent segment":                {"/core/..", "a"},
		"no storage":                      {"", "a"},
		"no name":                         {secrets, ""},
		"an absolute name":                {secrets, "/a"},
		"an empty segment":                {secrets, "default//a"},
		"a segment of dots":               {secrets, "../other/default/a"},
	} {
		if err := s.Stage(t.Context(), moving, uid, []Entry{{Version: Version{Key: key}}}); err == nil {
			t.Errorf("%s: staged", name)
		}
		if _, _, err := s.Read(t.Context(), moving, []Key{key}, 0); err == nil && !strings.HasPrefix(key.Resource, "/example.com/widgets/") {
			t.Errorf("%s: read", name)
		}
	}
	twice := Entry{Version: Version{Key: Key{secrets, "default/a"}}}
	if err := s.Stage(t.Context(), moving, uid, []Entry{twice, twice}); err == nil {
		t.Error("a key was staged twice")
	}
	// The storage of a bound API need not exist at the destination yet.
	succeed(t, s.Stage(t.Context(), moving, uid, []Entry{{Version: Version{Key: Key{"/example.com/gadgets/" + strings.Repeat("c", 64), "a"}}}}))
	for _, bad := range []types.UID{"", "a/b", "..", "~", types.UID(strings.Repeat("a", 64))} {
		if err := s.DropStaged(t.Context(), moving, bad); err == nil {
			t.Errorf("UID %q is accepted", bad)
		}
	}
	for _, cluster := range []logicalcluster.Name{{}, logicalcluster.Wildcard, logicalcluster.Admin, logicalcluster.MustParseName("customresources")} {
		_, _, manifest := s.Manifest(t.Context(), cluster)
		_, digest := s.Digest(t.Context(), cluster, 0)
		_, purge := s.Purge(t.Context(), cluster, nil, nil)
		_, _, read := s.Read(t.Context(), cluster, nil, 0)
		_, staged := s.Staged(t.Context(), cluster, uid)
		for _, err := range []error{manifest, digest, purge, read, staged, s.Stage(t.Context(), cluster, uid, nil), s.Activate(t.Context(), cluster, uid, nil, nil)} {
			if err == nil {
				t.Errorf("logical cluster %q is accepted", cluster)
			}
		}
	}
}

// testPages has more keys than fit into one page or one transaction.
func testPages(t *testing.T) {
	const keys = 10000
	from, to := newShard(t, origin, nil), newShard(t, destination, nil)
	fill(t, from, keys, "content")
	revision := copyAll(t, from, to)
	if got := difference(t, from, to, revision); got != "" {
		t.Error(got)
	}
	succeed(t, to.Activate(t.Context(), moving, uid, nil, nil))
	succeed(t, to.DropStaged(t.Context(), moving, uid))
	if left := to.raw(t, "/~incoming"); len(left) != 0 {
		t.Errorf("%d staged keys are left", len(left))
	}
	want, err := from.Digest(t.Context(), moving, revision)
	if err != nil || want.Keys() != keys {
		t.Fatalf("%d keys, %v", want.Keys(), err)
	}
	got, err := to.Digest(t.Context(), moving, 0)
	if err != nil || want.Difference(got) != "" {
		t.Errorf("%s, %v", want.Difference(got), err)
	}
	if deleted, err := from.Purge(t.Context(), moving, nil, nil); err != nil || deleted != keys {
		t.Errorf("deleted %d, %v", deleted, err)
	}
}

// fill stores config maps, a transaction of many at a time.
func fill(t testing.TB, s *shard, keys int, content string) {
	t.Helper()
	var ops []clientv3.Op
	for i := range keys {
		ops = append(ops, clientv3.OpPut(s.clusterKey(moving, Key{configMaps, fmt.Sprintf("default/c-%05d", i)}), content))
		if len(ops) == opsPerRequest || i == keys-1 {
			if _, err := s.client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
			ops = nil
		}
	}
}

func testStagings(t *testing.T) {
	s := newShard(t, destination, nil)
	entry := []Entry{{Version: Version{Key: Key{secrets, "default/a"}, ModRevision: 7}}}
	all := []Staging{{moving, "1"}, {moving, "11"}, {moving, "2"}, {other, "1"}}
	for _, staging := range all {
		succeed(t, s.Stage(t.Context(), staging.Cluster, staging.UID, entry))
	}
	if got, err := s.Stagings(t.Context()); err != nil || !slices.Equal(got, all) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := s.Staged(t.Context(), moving, "11"); err != nil || !slices.Equal(got, []Version{entry[0].Version}) {
		t.Errorf("got %v, %v", got, err)
	}
	succeed(t, s.DropStaged(t.Context(), moving, "1"))
	if got, err := s.Stagings(t.Context()); err != nil || !slices.Equal(got, all[1:]) {
		t.Errorf("after one is dropped: %v, %v", got, err)
	}
	succeed(t, s.DropAllStagedExcept(t.Context(), func(staging Staging) bool { return staging == all[2] }))
	if got, err := s.Stagings(t.Context()); err != nil || !slices.Equal(got, all[2:3]) {
		t.Errorf("after all but one are dropped: %v, %v", got, err)
	}
}

func TestDifference(t *testing.T) {
	version := func(name string, revision int64) Version { return Version{Key{secrets, name}, revision} }
	changed, gone := Difference(
		[]Version{version("same", 1), version("changed", 3), version("new", 4)},
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
	var copied, verified, activated, purged time.Duration
	for b.Loop() {
		to := newShard(b, target, nil)
		start := time.Now()
		revision := copyAll(b, from, to)
		copied += time.Since(start)
		start = time.Now()
		if got := difference(b, from, to, revision); got != "" {
			b.Fatal(got)
		}
		verified += time.Since(start)
		start = time.Now()
		succeed(b, to.Activate(b.Context(), moving, uid, nil, nil))
		activated += time.Since(start)
		start = time.Now()
		if _, err := to.Purge(b.Context(), moving, nil, nil); err != nil {
			b.Fatal(err)
		}
		purged += time.Since(start)
	}
	for name, sum := range map[string]time.Duration{"copy": copied, "verify": verified, "activate": activated, "purge": purged} {
		b.ReportMetric(float64(sum.Milliseconds())/float64(b.N), name+"-ms/op")
	}
}
