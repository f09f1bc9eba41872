package objectcount

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

var clusterA = logicalcluster.MustParseName("a")

// etcd is what the trackers of two replicas count, by object.
type etcd map[string]int64

func (e etcd) size() (sum int64) {
	for _, bytes := range e {
		sum += bytes
	}
	return sum
}

// replica is a process that writes to an etcd within the limit of its tracker.
type replica struct {
	*Tracker
	keys  *fakeKeyCounter
	etcd  etcd
	limit int64
	now   time.Time
}

func newReplica(stored etcd, limit int64) *replica {
	keys := &fakeKeyCounter{bytes: stored.size}
	return &replica{Tracker: New(Config{Keys: keys, Shard: "test"}), keys: keys, etcd: stored, limit: limit, now: time.Now()}
}

// write creates or updates an object, unless it is refused, and counts what is due.
func (r *replica) write(t *testing.T, name string, bytes int64) ByteState {
	t.Helper()
	state := r.writeUncounted(name, bytes)
	r.countDue(t)
	return state
}

// writeUncounted is write while a count lasts.
func (r *replica) writeUncounted(name string, bytes int64) ByteState {
	var state ByteState
	if r.isCheckDue(clusterA) {
		state = r.checkBytes(clusterA, r.limit, r.now).State
	}
	if added := bytes - r.etcd[name]; state == BytesUncertain && (added <= 0 || r.Grant(clusterA, added)) {
		state = BytesFit
	}
	if state == BytesFit {
		r.AddWritten(clusterA, int(bytes))
		r.etcd[name] = bytes
	}
	return state
}

func (r *replica) countDue(t *testing.T) {
	t.Helper()
	select {
	case cluster := <-r.due:
		if err := r.countBytes(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		r.now = r.now.Add(time.Minute) // the pause between counts passes
	default:
	}
}

func TestByteState(t *testing.T) {
	for name, tc := range map[string]struct {
		counted, written int64
		want             ByteState
		count            bool
	}{
		"nothing written":                             {0, 0, BytesFit, false},
		"little written, never counted":               {0, 9, BytesFit, false},
		"an eighth written before the first count":    {0, 10, BytesUncertain, true},
		"an eighth written since the last count":      {60, 10, BytesFit, true},
		"the limit was counted":                       {80, 0, BytesFull, true},
		"more than the limit was counted":             {90, 3, BytesFull, true},
		"the limit may be reached, with what changed": {75, 5, BytesUncertain, true},
		"it may be reached before the first count":    {0, 80, BytesUncertain, true},
		"close to the limit":                          {75, 4, BytesFit, false},
	} {
		t.Run(name, func(t *testing.T) {
			entry := &byteCount{counted: tc.counted, written: tc.written}
			if tc.counted > 0 {
				entry.counting = time.Unix(1, 0)
			}
			if state, count := entry.state(80); state != tc.want || count != tc.count {
				t.Errorf("got %d, count %t", state, count)
			}
			if !tc.count && (entry.nextCheck(80) <= tc.written || entry.nextCheck(80) > 80-tc.counted) {
				t.Errorf("next check at %d", entry.nextCheck(80))
			}
		})
	}
}

func TestByteAccounting(t *testing.T) {
	const limit = 1000
	r := newReplica(etcd{}, limit)
	accepted := func(what, name string, bytes int64) {
		t.Helper()
		if state := r.write(t, name, bytes); state == BytesUncertain {
			state = r.write(t, name, bytes) // as a client does
			if state != BytesFit {
				t.Errorf("%s: refused with %d of %d bytes", what, r.etcd.size(), limit)
			}
		}
	}
	refused := func(what, name string, bytes int64) {
		t.Helper()
		for range 3 { // the first attempts may be decided by an old count
			if state := r.write(t, name, bytes); state != BytesFit {
				return
			}
		}
		t.Errorf("%s: accepted with %d of %d bytes", what, r.etcd.size(), limit)
	}
	accepted("the first object", "first", 200)
	for range 100 {
		accepted("an update of the same size", "first", 200)
	}
	accepted("another object", "second", 300)
	accepted("an update that grows", "first", 600)
	accepted("the object that reaches the limit", "third", 150)
	refused("an object beyond the limit", "fourth", 100)
	r.etcd["first"] = 100 // the updates that shrink are not refused
	r.AddWritten(clusterA, 100)
	r.checkBytes(clusterA, limit, r.now)
	r.countDue(t)
	accepted("an object after an update that shrinks", "fourth", 400)
	accepted("the object that reaches the limit again", "fifth", 100)
	refused("an object beyond the limit", "sixth", 100)
	delete(r.etcd, "second")
	r.checkBytes(clusterA, limit, r.now)
	r.countDue(t)
	accepted("an object after a deletion", "sixth", 100)
	if size := r.etcd.size(); size > limit+limit/marginFraction {
		t.Errorf("%d bytes, the limit is %d", size, limit)
	}

	full := r.etcd.size()
	restarted := newReplica(r.etcd, full)
	for i := range limit {
		if restarted.write(t, fmt.Sprint("restarted", i), 10) == BytesFull {
			break
		}
	}
	if size := r.etcd.size(); size > full+full/recountFraction+full/marginFraction {
		t.Errorf("after a restart %d bytes are accepted, the limit is %d", size, full)
	}
	r.pruneBytes([]*corev1alpha1.LogicalCluster{newCluster("a")})
	if r.bytes[clusterA] == nil {
		t.Error("the entry of an existing logical cluster was removed")
	}
	r.pruneBytes([]*corev1alpha1.LogicalCluster{newCluster("b")})
	if len(r.bytes) != 0 {
		t.Error("the entry of a deleted logical cluster is left")
	}
}

func newCluster(name string) *corev1alpha1.LogicalCluster {
	return &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{logicalcluster.AnnotationKey: name}}}
}

// TestSlowCounts has counts that take long: nothing ends them but countDue.
func TestSlowCounts(t *testing.T) {
	const limit = 1000
	r := newReplica(etcd{"first": 630}, limit)
	write := func(name string, bytes int64) ByteState { return r.writeUncounted(name, bytes) }
	r.write(t, "first", 630) // and a count
	for range 10 {
		if state := write("first", 630); state != BytesFit {
			t.Fatalf("an update of the same size: %d", state)
		}
	}
	if usage := r.checkBytes(clusterA, limit, r.now); usage.State != BytesUncertain || len(r.due) != 1 {
		t.Fatalf("after updates: %+v, %d counts are due", usage, len(r.due))
	}
	var added int64
	for ; write(fmt.Sprint("added", added), 10) == BytesFit; added += 10 {
	}
	if want := int64(limit/marginFraction) / 10 * 10; added != want {
		t.Errorf("%d bytes were added while a count is due, want %d", added, want)
	}
	if state := write("first", 620); state != BytesFit {
		t.Errorf("an update that shrinks: %d", state)
	}
	r.countDue(t)
	if state := write("more", 200); state != BytesFit {
		t.Errorf("after the count: %d", state)
	}
	for i := range limit {
		write(fmt.Sprint("rest", i), 7)
	}
	if size := r.etcd.size(); size < limit || size > limit+limit/marginFraction {
		t.Errorf("%d bytes without a count, the limit is %d", size, limit)
	}
	for range 10 {
		r.checkBytes(clusterA, limit, r.now)
		r.countDue(t)
		for i := range limit {
			write(fmt.Sprint("end", i), 7)
		}
	}
	if size := r.etcd.size(); size > limit+limit/marginFraction {
		t.Errorf("%d bytes after counts, the limit is %d", size, limit)
	}
}

// TestGrantsDuringCounts has a count that ends after grants that it does not see.
func TestGrantsDuringCounts(t *testing.T) {
	const limit = 1000
	r := newReplica(etcd{"first": 630}, limit)
	r.write(t, "first", 630)
	r.writeUncounted("first", 630)
	r.writeUncounted("before", 100)
	seen := r.etcd.size()
	r.keys.bytes = func() int64 {
		if state := r.writeUncounted("during", 20); state != BytesFit {
			t.Errorf("an object during the count: %d", state)
		}
		return seen
	}
	r.countDue(t)
	if entry := r.bytes[clusterA]; entry.counted != seen || entry.written != 20 || entry.granted != 20 {
		t.Errorf("after the count: %+v", entry)
	}
}

func TestUrgentCounts(t *testing.T) {
	began := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		state  ByteState
		shrunk time.Time
		want   bool
	}{
		"everything fits":                 {BytesFit, began.Add(time.Minute), false},
		"requests may be refused":         {BytesUncertain, time.Time{}, true},
		"full, nothing changed":           {BytesFull, began.Add(-time.Minute), false},
		"full, deleted since the count":   {BytesFull, began.Add(time.Minute), true},
		"full, deleted as it was counted": {BytesFull, began.Add(-minPause / 2), true},
	} {
		t.Run(name, func(t *testing.T) {
			entry := &byteCount{counting: began, shrunk: tc.shrunk}
			if got := entry.isUrgent(tc.state); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
	now := time.Now()
	r := newReplica(etcd{"x": 100}, 100)
	r.AddWritten(clusterA, 100)
	entry := r.bytes[clusterA]
	entry.counted, entry.counting, entry.nextCount, entry.nextUrgent = 100, now.Add(-time.Minute), now.Add(time.Hour), now
	if r.checkBytes(clusterA, 100, now); len(r.due) != 0 {
		t.Error("a full logical cluster is counted again although nothing was deleted")
	}
	r.NoteShrinking(clusterA, now)
	if r.checkBytes(clusterA, 100, now); len(r.due) != 1 {
		t.Error("a deletion is not counted at once")
	}
}

// TestByteLimitOfReplicas has two replicas that each see only their own writes between counts.
func TestByteLimitOfReplicas(t *testing.T) {
	const limit = 8000
	stored := etcd{}
	replicas := []*replica{newReplica(stored, limit), newReplica(stored, limit)}
	for i := range 1000 {
		for _, r := range replicas {
			r.write(t, string(rune(len(stored))), 10+int64(i%7))
		}
	}
	if size := stored.size(); size < limit || size > limit+len64(replicas)*(limit/recountFraction+limit/marginFraction) {
		t.Errorf("%d bytes with a limit of %d", size, limit)
	}
	for n, r := range replicas {
		if calls := r.keys.byteCalls.Load(); calls > 1000 {
			t.Errorf("replica %d counted %d times", n, calls)
		}
	}
}

func len64[T any](of []T) int64 { return int64(len(of)) }

func TestCountsOfOneCluster(t *testing.T) {
	r := newReplica(etcd{"x": 100}, 10)
	r.AddWritten(clusterA, 100)
	for range 10 {
		r.checkBytes(clusterA, 10, r.now)
	}
	if len(r.due) != 1 {
		t.Errorf("%d counts are due, want one", len(r.due))
	}
	r.keys.failing.Store(true)
	if err := r.countBytes(t.Context(), <-r.due); err == nil || r.bytes[clusterA].written != 100 {
		t.Errorf("a count that failed: %v, entry %+v", err, r.bytes[clusterA])
	}
	r.keys.failing.Store(false)
	if r.checkBytes(clusterA, 10, time.Now()); len(r.due) != 0 {
		t.Error("counted again without a pause")
	}
	if r.checkBytes(clusterA, 10, time.Now().Add(time.Minute)); len(r.due) != 1 {
		t.Error("not counted again after the pause")
	}
	if usage := r.checkBytes(clusterA, 0, r.now); usage.State != BytesFit || r.isCheckDue(clusterA) {
		t.Errorf("without a limit: %+v, check due %t", usage, r.isCheckDue(clusterA))
	}
	r.pruneBytes([]*corev1alpha1.LogicalCluster{newCluster("a")})
	if !r.isCheckDue(clusterA) {
		t.Error("a new limit is not read")
	}
	if allocations := testing.AllocsPerRun(100, func() { r.AddWritten(clusterA, 1) }); allocations != 0 {
		t.Errorf("a write allocates %v times", allocations)
	}
	r.reset()
	if len(r.bytes) != 0 {
		t.Error("entries remain")
	}
}

func TestByteLimit(t *testing.T) {
	counts := New(Config{DefaultByteLimit: func() int64 { return 100 }})
	for name, tc := range map[string]struct {
		cluster, annotation string
		want                int64
	}{
		"default limit":      {"a", "", 100},
		"own limit":          {"a", "7", 7},
		"invalid limit":      {"a", "7Mi", 100},
		"zero is unlimited":  {"a", "0", 0},
		"no default in root": {"root", "", 0},
		"own limit of root":  {"root", "7", 7},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(tc.cluster)
			if tc.annotation != "" {
				cluster.Annotations[corev1alpha1.MaxTotalBytesAnnotationKey] = tc.annotation
			}
			if got := counts.ByteLimit(cluster); got != tc.want {
				t.Errorf("got %d", got)
			}
		})
	}
	for quota, want := range map[int64]int64{0: 128 << 20, -1: 128 << 20, 120 << 20: 7864320, 2 << 30: 128 << 20, 8 << 30: 128 << 20} {
		if got := ByteLimitFor(quota); got != want {
			t.Errorf("quota of %d bytes: got %d, want %d", quota, got, want)
		}
	}
}

// CountBytes implements KeyCounter.
func (f *fakeKeyCounter) CountBytes(context.Context, logicalcluster.Name) (int64, error) {
	f.byteCalls.Add(1)
	if f.failing.Load() {
		return 0, errors.New("no connection")
	}
	return f.bytes(), nil
}
