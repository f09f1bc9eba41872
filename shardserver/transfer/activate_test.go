package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

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
