package objectcount

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// fakeKeyCounter is a fake KeyCounter with a number of keys for each logical cluster, and one size for all.
type fakeKeyCounter struct {
	keys  map[logicalcluster.Name]int64
	calls atomic.Int64
	// bytes returns the size of any logical cluster, byteCalls counts the calls for it.
	bytes     func() int64
	byteCalls atomic.Int64
	failing   atomic.Bool
	// onCount runs after one logical cluster was counted.
	onCount func()
}

func (f *fakeKeyCounter) CountAll(_ context.Context, count func(logicalcluster.Name, int64)) error {
	for cluster, keys := range f.keys {
		count(cluster, keys)
	}
	return nil
}

func (f *fakeKeyCounter) Count(_ context.Context, cluster logicalcluster.Name) (int64, error) {
	f.calls.Add(1)
	if f.failing.Load() {
		return 0, errors.New("no connection")
	}
	if f.onCount != nil {
		f.onCount()
	}
	return f.keys[cluster], nil
}

func TestLimit(t *testing.T) {
	counts := New(Config{DefaultLimit: 100})
	for name, tc := range map[string]struct {
		cluster, annotation string
		want                int64
	}{
		"default limit":                         {"a", "", 100},
		"own limit":                             {"a", "7", 7},
		"invalid limit":                         {"a", "many", 100},
		"zero is unlimited":                     {"a", "0", 0},
		"negative is unlimited":                 {"a", "-1", 0},
		"no default in root":                    {"root", "", 0},
		"no default in system logical clusters": {"system:admin", "", 0},
		"own limit of root":                     {"root", "7", 7},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{logicalcluster.AnnotationKey: tc.cluster}}}
			if tc.annotation != "" {
				cluster.Annotations[corev1alpha1.MaxTotalObjectsAnnotationKey] = tc.annotation
			}
			if got := counts.Limit(cluster); got != tc.want {
				t.Errorf("got %d", got)
			}
			cluster.Annotations[corev1alpha1.ArrivingAnnotationKey] = "a move that copies it here"
			if scanned := counts.limits([]*corev1alpha1.LogicalCluster{cluster}); len(scanned) != 0 {
				t.Errorf("a scan counts a part of it: %v", scanned)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	a, b := logicalcluster.MustParseName("a"), logicalcluster.MustParseName("b")
	storage := &fakeKeyCounter{keys: map[logicalcluster.Name]int64{a: 8, b: 1}}
	counts := New(Config{Keys: storage, Shard: "test"})
	add := func(cluster logicalcluster.Name, limit int64, want bool) {
		t.Helper()
		if _, fits, err := counts.Add(t.Context(), cluster, limit, false); err != nil || fits != want {
			t.Errorf("one more in %s with limit %d: fits %t, %v", cluster, limit, fits, err)
		}
	}
	storage.failing.Store(true)
	if _, _, err := counts.Add(t.Context(), a, 10, false); err == nil || counts.Len() != 0 {
		t.Errorf("an entry that could not be counted exists: %v", err)
	}
	storage.failing.Store(false)
	storage.calls.Store(0)
	add(a, 10, true)
	add(a, 10, true)
	add(a, 10, false)
	if calls := storage.calls.Load(); calls != 1 {
		t.Errorf("keys were counted %d times", calls)
	}
	counts.Remove(a)
	add(a, 10, true)
	add(b, 10, true)
	counts.Remove(logicalcluster.MustParseName("unknown"))
	if counts.Len() != 2 {
		t.Errorf("%d entries", counts.Len())
	}

	storage.keys = map[logicalcluster.Name]int64{a: 9, b: 2}
	limits := map[logicalcluster.Name]clusterLimit{a: {limit: 10}, b: {limit: 10}}
	before := counts.deltas()
	add(a, 20, true) // while the scan runs
	counts.replace(limits, storage.keys, before)
	if counts.Len() != 1 {
		t.Errorf("%d entries, want only the one above the tracked percentage of its limit", counts.Len())
	}
	add(a, 10, false)
	counts.replace(map[logicalcluster.Name]clusterLimit{b: {limit: 10, own: true}}, map[logicalcluster.Name]int64{b: 2}, counts.deltas())
	if counts.Len() != 1 {
		t.Errorf("%d entries, want only the logical cluster with its own limit", counts.Len())
	}
	counts.reset()
	if counts.Len() != 0 {
		t.Errorf("%d entries remain", counts.Len())
	}
}

func TestAddDuringScan(t *testing.T) {
	a := logicalcluster.MustParseName("a")
	storage := &fakeKeyCounter{keys: map[logicalcluster.Name]int64{a: 8}}
	counts := New(Config{Keys: storage, Shard: "test"})
	storage.onCount = func() {
		storage.onCount = nil
		counts.replace(map[logicalcluster.Name]clusterLimit{a: {limit: 10}}, storage.keys, counts.deltas())
	}
	for i, want := range []bool{true, true, false} {
		if _, fits, err := counts.Add(t.Context(), a, 10, false); err != nil || fits != want {
			t.Errorf("object %d with a limit of 10: fits %t, %v", 9+i, fits, err)
		}
	}
}
