package usage

import (
	"context"
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
	read := func(t *testing.T, r *records, cluster logicalcluster.Name) Counts {
		t.Helper()
		months, err := r.of(t.Context(), cluster)
		if err != nil || months["2026-11"] == nil {
			t.Fatalf("got %v, %v", months, err)
		}
		return months["2026-11"].Counts
	}

	t.Run("replicas that write at once add up", func(t *testing.T) {
		r := &records{connect, "/together"}
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
		r := &records{connect, "/lost"}
		for range 2 {
			if left, err := r.add(t.Context(), "flush", "2026-11", []addition{{alpha, &Counts{Gets: 3}}}); err != nil || len(left) > 0 {
				t.Fatalf("%v left, %v", left, err)
			}
		}
		if got := read(t, r, alpha).Gets; got != 3 {
			t.Errorf("got %d, want 3", got)
		}
	})

	t.Run("a record that cannot be read does not stop others", func(t *testing.T) {
		r := &records{connect, "/broken"}
		if _, err := etcd.Put(t.Context(), r.keysOf(alpha)+"2026-11", "{"); err != nil {
			t.Fatal(err)
		}
		left, err := r.add(t.Context(), "flush", "2026-11", []addition{{alpha, &Counts{Gets: 3}}, {beta, &Counts{Gets: 4}}})
		if got := read(t, r, beta).Gets; got != 4 || err != nil || len(left) > 0 {
			t.Errorf("got %d, %v, %v left, want 4", got, err, left)
		}
	})

	t.Run("a sweep deletes old months, and logical clusters that are gone", func(t *testing.T) {
		r := &records{connect, "/swept"}
		for _, month := range []string{"2025-10", "2025-11", "2026-11"} {
			if _, err := r.add(t.Context(), "flush", month, []addition{{alpha, &Counts{Gets: 1}}, {gone, &Counts{Gets: 1}}}); err != nil {
				t.Fatal(err)
			}
		}
		isGone := func(_ context.Context, cluster logicalcluster.Name) (bool, error) { return cluster == gone, nil }
		if err := r.sweep(t.Context(), time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), isGone); err != nil {
			t.Fatal(err)
		}
		if got, want := keys(t, etcd, r), []string{"alpha/2025-11", "alpha/2026-11"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
