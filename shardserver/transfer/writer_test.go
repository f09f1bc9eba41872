package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
	copyAll(t, from, to)
	if got := difference(t, from, to); got != "" {
		t.Error(got)
	}
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
	for lease := range granted {
		if _, err := to.client.Revoke(t.Context(), clientv3.LeaseID(lease)); err != nil {
			t.Fatal(err)
		}
	}
	if copied, err := to.Copied(t.Context(), in); err != nil || len(copied) != 1 {
		t.Errorf("after the end of the leases there are records of %v, %v", copied, err)
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

func testCopyAgain(t *testing.T) {
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
	want := from.digest(t)
	for _, applied := range []bool{false, true} {
		to := newShard(t, destination, box("b"))
		to.put(t, other, secrets, "default/s-1", "of another logical cluster")
		before := to.raw(t, "/")
		untilNoFault(t, to, applied, func() error { _, err := tryCopyAll(t, from, to); return err })
		if got := to.digest(t); want.Difference(got) != "" {
			t.Errorf("copied: %s", want.Difference(got))
		}
		untilNoFault(t, to, applied, func() error { return to.NewWriter(in, nil).DeleteAll(t.Context()) })
		if got := to.raw(t, "/"); !maps.Equal(got, before) {
			t.Errorf("an aborted copy leaves %v, want %v", got, before)
		}
	}
}

// untilNoFault calls a function again and again. Each attempt gets a few transactions further than the one before.
func untilNoFault(t *testing.T, s *shard, applied bool, run func() error) {
	t.Helper()
	kv := s.client.KV
	defer func() { s.client.KV = kv }()
	for attempts := 0; ; attempts++ {
		faulty := &faultyKV{KV: kv, applied: applied}
		faulty.left.Store(int64(1 + 5*attempts))
		s.client.KV = faulty
		err := run()
		switch {
		case err == nil && attempts < 3:
			t.Errorf("only %d attempts failed", attempts)
			return
		case err == nil:
			return
		case !errors.Is(err, errFault):
			t.Fatalf("attempt %d: %v", attempts, err)
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

func testFence(t *testing.T) {
	from, to := newShard(t, origin, nil), newShard(t, destination, nil)
	from.put(t, moving, configMaps, "default/a", "content")
	from.put(t, moving, configMaps, "default/b", "more")
	to.put(t, moving, logical, "cluster", "arriving")
	late := to.NewWriter(in, fenceOn(t, to, to.clusterKey(moving, Key{logical, "cluster"})))
	entries, _, err := from.Read(t.Context(), moving, []Key{{configMaps, "default/a"}, {configMaps, "default/b"}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	succeed(t, late.Store(t.Context(), entries))

	// The logical cluster opens, and a user deletes an object.
	to.put(t, moving, logical, "cluster", "open")
	to.delete(t, moving, configMaps, "default/b")
	before := to.raw(t, "/")
	for name, err := range map[string]error{
		"store": late.Store(t.Context(), entries), "delete": late.Delete(t.Context(), []Key{entries[0].Key}), "delete all": late.DeleteAll(t.Context()),
	} {
		if !errors.Is(err, ErrFenced) || strings.Contains(err.Error(), "default/") {
			t.Errorf("%s after the end of the fence: %v", name, err)
		}
	}
	if got := to.raw(t, "/"); !maps.Equal(got, before) {
		t.Errorf("a late replica changed %v to %v", before, got)
	}
	succeed(t, to.Forget(t.Context(), in))
	if got := to.raw(t, configMaps); got[configMaps+"/moving/default/a"] != "content" || len(to.raw(t, "/"+incomingSegment)) != 0 {
		t.Errorf("without records there is %v", got)
	}
}

// watchRevisions watches a storage. The function that it returns fails unless the given number of keys change, each in a revision of
// its own.
func watchRevisions(t *testing.T, s *shard, resource string) func(int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	watch := s.client.Watch(ctx, s.prefix+resource+"/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watch
	return func(keys int) {
		t.Helper()
		defer cancel()
		revisions := map[int64]bool{}
		for seen := 0; seen < keys; {
			for _, event := range (<-watch).Events {
				seen++
				if revisions[event.Kv.ModRevision] {
					t.Errorf("two keys were changed in revision %d", event.Kv.ModRevision)
				}
				revisions[event.Kv.ModRevision] = true
			}
		}
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
	if deleted, err := s.Purge(t.Context(), moving, storages, keep, old); !errors.Is(err, ErrFenced) || deleted != 0 {
		t.Errorf("with an old fence: deleted %d, %v", deleted, err)
	}
	if deleted, err := s.Purge(t.Context(), moving, []string{configMaps, logical}, keep, fenceOn(t, s, lc)); err == nil || !strings.Contains(err.Error(), "1 keys below "+s.clusterPrefix(moving, plain)+" that were not handed over") || deleted != 0 {
		t.Errorf("with keys in no digest: deleted %d, %v", deleted, err)
	}
	revisions := watchRevisions(t, s, configMaps)
	if deleted, err := s.Purge(t.Context(), moving, storages, keep, fenceOn(t, s, lc)); err != nil || deleted != 41 {
		t.Errorf("deleted %d, %v, want 41", deleted, err)
	}
	revisions(40)
	want := []string{logical + "/moving/cluster", configMaps + "/other/default/c-1"}
	if got := slices.Sorted(maps.Keys(s.raw(t, "/"))); !slices.Equal(got, want) {
		t.Errorf("left are %v", got)
	}
	if deleted, err := s.Purge(t.Context(), moving, storages, nil, fenceOn(t, s, lc)); err != nil || deleted != 1 {
		t.Errorf("without exception: deleted %d, %v", deleted, err)
	}
}

// testDeleteWithoutSpace: an aborted copy gives its space back to an etcd that has no other.
func testDeleteWithoutSpace(t *testing.T) {
	from, to := newShard(t, origin, nil), newShard(t, destination, nil)
	from.put(t, moving, configMaps, "default/a", "content")
	copyAll(t, from, to)
	status, err := to.client.Status(t.Context(), to.client.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	alarm := func(action pb.AlarmRequest_AlarmAction) {
		t.Helper()
		request := &pb.AlarmRequest{Action: action, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE}
		if _, err := pb.NewMaintenanceClient(to.client.ActiveConnection()).Alarm(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	alarm(pb.AlarmRequest_ACTIVATE)
	defer alarm(pb.AlarmRequest_DEACTIVATE)
	if _, err := to.client.Put(t.Context(), to.prefix+"/fence", ""); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("a write: %v", err)
	}
	fence := clientv3.Compare(clientv3.ModRevision(to.prefix+"/fence"), "=", 0)
	if err := to.NewWriter(in, []clientv3.Cmp{fence}).DeleteAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := to.raw(t, ""); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
