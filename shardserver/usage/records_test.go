package usage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// keys returns the keys of all records.
func keys(t *testing.T, etcd *clientv3.Client, r *records) (all []string) {
	t.Helper()
	found, err := etcd.Get(t.Context(), r.root(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range found.Kvs {
		all = append(all, strings.TrimPrefix(string(kv.Key), r.root()))
	}
	return all
}

func TestRecords(t *testing.T) {
	etcd := etcdtest.NewClient(t, etcdtest.Start(t))
	connect := func() (*clientv3.Client, error) { return etcd, nil }
	alpha, beta, gone := logicalcluster.MustParseName("alpha"), logicalcluster.MustParseName("beta"), logicalcluster.MustParseName("gone")
	stored := func(cluster logicalcluster.Name) (string, error) { return "/logicalclusters/" + cluster.String(), nil }
	newRecords := func(prefix string) *records { return &records{connect, prefix, stored} }
	create := func(cluster logicalcluster.Name) (deletion func()) {
		key, _ := stored(cluster)
		if _, err := etcd.Put(t.Context(), key, "exists"); err != nil {
			t.Fatal(err)
		}
		return func() {
			if _, err := etcd.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, cluster := range []logicalcluster.Name{alpha, beta} {
		create(cluster)
	}
	read := func(t *testing.T, r *records, cluster logicalcluster.Name) Counts {
		t.Helper()
		months, err := r.of(t.Context(), cluster)
		if err != nil || months["2026-11"] == nil {
			t.Fatalf("got %v, %v", months, err)
		}
		return months["2026-11"].Counts
	}

	t.Run("replicas that write at once add up", func(t *testing.T) {
		r := newRecords("/together")
		var writers sync.WaitGroup
		for _, replica := range []string{"a", "b"} {
			writers.Go(func() {
				for i := range 100 {
					left := []addition{{alpha, &Counts{Gets: 1, SentBytes: 7}}, {beta, &Counts{Writes: 2}}}
					for flush := replica + strings.Repeat("x", i); len(left) > 0 && t.Context().Err() == nil; {
						left, _ = r.add(t.Context(), flush, "2026-11", left)
					}
				}
			})
		}
		writers.Wait()
		if got, want := read(t, r, alpha), (Counts{Gets: 200, SentBytes: 1400}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if got, want := read(t, r, beta), (Counts{Writes: 400}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})

	t.Run("a flush is added once if the answer of etcd was lost", func(t *testing.T) {
		r := newRecords("/lost")
		for _, flush := range []string{"mine", "mine", "other-1", "other-2", "other-3", "mine"} { // other replicas go on meanwhile
			if left, err := r.add(t.Context(), flush, "2026-11", []addition{{alpha, &Counts{Gets: 3}}}); err != nil || len(left) > 0 {
				t.Fatalf("%v left, %v", left, err)
			}
		}
		if got := read(t, r, alpha).Gets; got != 12 {
			t.Errorf("got %d, want 12: four flushes of 3", got)
		}
	})

	t.Run("a record that cannot be read does not stop others", func(t *testing.T) {
		r := newRecords("/broken")
		if _, err := etcd.Put(t.Context(), r.keysOf(alpha)+"2026-11", "{"); err != nil {
			t.Fatal(err)
		}
		left, err := r.add(t.Context(), "flush", "2026-11", []addition{{alpha, &Counts{Gets: 3}}, {beta, &Counts{Gets: 4}}})
		if got := read(t, r, beta).Gets; got != 4 || err != nil || len(left) > 0 {
			t.Errorf("got %d, %v, %v left, want 4", got, err, left)
		}
	})

	t.Run("a deleted logical cluster has no records, and gets none", func(t *testing.T) {
		r := newRecords("/deleted")
		late := logicalcluster.MustParseName("late")
		key, _ := stored(late)
		if _, err := etcd.Put(t.Context(), key, "exists"); err != nil {
			t.Fatal(err)
		}
		add := func(flush string) {
			t.Helper()
			if left, err := r.add(t.Context(), flush, "2026-11", []addition{{late, &Counts{Gets: 1}}, {alpha, &Counts{Gets: 1}}}); err != nil || len(left) > 0 {
				t.Fatalf("%v left, %v", left, err)
			}
		}
		add("before")
		if _, err := etcd.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if err := r.delete(t.Context(), []logicalcluster.Name{late}); err != nil {
			t.Fatal(err)
		}
		add("after")
		if err := r.delete(t.Context(), []logicalcluster.Name{alpha}); err != nil { // it exists
			t.Fatal(err)
		}
		if got, want := keys(t, etcd, r), []string{"alpha/2026-11"}; !slices.Equal(got, want) || read(t, r, alpha).Gets != 2 {
			t.Errorf("got %q, want %q with both flushes", got, want)
		}
	})

	t.Run("idle logical clusters take no memory", func(t *testing.T) {
		exists := func(logicalcluster.Name) (string, error) { return stored(alpha) }
		r := NewRecorder(Config{Connect: connect, Prefix: "/idle", StoredKey: exists, Exists: func(context.Context) bool { return true }})
		handler := r.WithCounting(http.HandlerFunc(echo), nothingSkipped)
		use := func(name string, n int) (bytes uintptr) {
			for i := range n {
				send(handler, logicalcluster.MustParseName(fmt.Sprintf("%s%04d", name, i)), "get", "four")
			}
			if err := r.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			return memory(r)
		}
		few, many := use("few", 2*topLength), use("lot", 1000)
		if few == 0 || many != few {
			t.Errorf("the recorder takes %d bytes after a flush of 1000 logical clusters, and %d after one of %d: want the same", many, few, 2*topLength)
		}
		if got := len(keys(t, etcd, &r.records)); got != 1000+2*topLength {
			t.Errorf("%d logical clusters have a record, want all", got)
		}
	})

	t.Run("a flush that has begun does not end with its context", func(t *testing.T) {
		r := NewRecorder(Config{Connect: connect, Prefix: "/stopping", StoredKey: stored, Exists: func(context.Context) bool { return true }})
		r.putBack(alpha, &Counts{Gets: 5})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.flushUntil(ctx); err != nil {
			t.Fatal(err)
		}
		months, err := r.records.of(t.Context(), alpha)
		if err != nil || len(months) != 1 {
			t.Errorf("got %v, %v", months, err)
		}
	})

	t.Run("a logical cluster takes its counts to another shard and back, whatever is left from its earlier stay", func(t *testing.T) {
		newRecorder := func(prefix string) *Recorder {
			return NewRecorder(Config{Connect: connect, Prefix: prefix, StoredKey: stored, Exists: func(context.Context) bool { return true }})
		}
		origin, destination := newRecorder("/origin"), newRecorder("/destination")
		now := time.Now().UTC()
		month := now.Format(monthFormat)
		move := func(from, to *Recorder, add map[string]Counts) {
			t.Helper()
			if err := from.flushOnly(t.Context(), []logicalcluster.Name{alpha}); err != nil {
				t.Fatal(err)
			}
			months, err := from.Handed(t.Context(), alpha)
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(months, add)
			operations, err := to.Replacement(t.Context(), alpha, months, now)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := etcd.Txn(t.Context()).Then(operations...).Commit(); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(r *Recorder, want map[string]Counts) {
			t.Helper()
			got, err := r.Handed(t.Context(), alpha)
			if err != nil || !maps.Equal(got, want) {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
		}
		if _, err := etcd.Put(t.Context(), origin.records.keysOf(alpha)+"broken", "{"); err != nil {
			t.Fatal(err)
		}
		origin.putBack(alpha, &Counts{Gets: 5, WatchMilliseconds: 7})
		origin.putBack(beta, &Counts{Gets: 1})
		last := now.AddDate(0, 0, -now.Day()).Format(monthFormat)
		move(origin, destination, map[string]Counts{last: {Writes: 2}, "1999-01": {Gets: 1}, "../other": {Gets: 1}})
		expect(destination, map[string]Counts{month: {Gets: 5, WatchMilliseconds: 7}, last: {Writes: 2}})
		if got := len(origin.clusters); got != 1 {
			t.Errorf("the origin has counts of %d logical clusters, want that of the one that has stayed", got)
		}
		destination.putBack(alpha, &Counts{Gets: 3})
		move(destination, origin, nil)
		expect(origin, map[string]Counts{month: {Gets: 8, WatchMilliseconds: 7}, last: {Writes: 2}})
		move(origin, destination, map[string]Counts{month: {Gets: -1}})
		expect(destination, map[string]Counts{last: {Writes: 2}})
	})

	t.Run("a sweep goes on after what it cannot decide", func(t *testing.T) {
		r, deleteGone := newRecords("/undecided"), create(gone)
		if left, err := r.add(t.Context(), "flush", "2026-11", []addition{{alpha, &Counts{Gets: 1}}, {beta, &Counts{Gets: 1}}, {gone, &Counts{Gets: 1}}}); err != nil || len(left) > 0 {
			t.Fatalf("%v left, %v", left, err)
		}
		if _, err := etcd.Put(t.Context(), r.root()+"No Name/2026-11", "{}"); err != nil {
			t.Fatal(err)
		}
		deleteGone()
		err := r.sweep(t.Context(), time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), func(_ context.Context, cluster logicalcluster.Name) (bool, error) {
			if cluster == alpha {
				return true, errors.New("etcd does not answer")
			}
			return cluster == gone, nil
		})
		if got, want := keys(t, etcd, r), []string{"No Name/2026-11", "alpha/2026-11", "beta/2026-11"}; !slices.Equal(got, want) || err == nil {
			t.Errorf("got %q and %v, want %q and an error", got, err, want)
		}
	})

	t.Run("a sweep deletes old months, and logical clusters that are gone", func(t *testing.T) {
		r, deleteGone := newRecords("/swept"), create(gone)
		for _, month := range []string{"2025-10", "2025-11", "2026-11"} {
			if _, err := r.add(t.Context(), "flush", month, []addition{{alpha, &Counts{Gets: 1}}, {gone, &Counts{Gets: 1}}}); err != nil {
				t.Fatal(err)
			}
		}
		deleteGone()
		isGone := func(_ context.Context, cluster logicalcluster.Name) (bool, error) { return cluster == gone, nil }
		if err := r.sweep(t.Context(), time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), isGone); err != nil {
			t.Fatal(err)
		}
		if got, want := keys(t, etcd, r), []string{"alpha/2025-11", "alpha/2026-11"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
