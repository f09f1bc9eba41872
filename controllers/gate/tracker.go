package gate

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/controllers/rollout"
)

// record is the last reconcile of a component: the custom resource it belongs to, the generation that was reconciled,
// and the revision of the desired pod template.
type record struct {
	namespace, workload string
	owner               types.UID
	generation          int64
	revision            string
	pending             bool // the pods do not run the revision yet
}

// componentTracker holds the last record of each component. It is empty after a start: until a component is reconciled, it is unknown
// whether it matches its spec under this version of the operator. It has one small entry for each workload of the cluster; entries of
// deleted workloads remain until the process ends.
type componentTracker struct {
	mu   sync.Mutex
	last map[types.NamespacedName]trackedRecord
}

type trackedRecord struct {
	record
	since time.Time // of the first record of this revision
}

// observe stores a record, and returns when its revision was first desired.
func (t *componentTracker) observe(r record, now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		t.last = map[types.NamespacedName]trackedRecord{}
	}
	key := types.NamespacedName{Namespace: r.namespace, Name: r.workload}
	entry := trackedRecord{record: r, since: now}
	if last, ok := t.last[key]; ok && last.owner == r.owner && last.revision == r.revision && last.pending == r.pending {
		entry.since = last.since
	}
	t.last[key] = entry
	return entry.since
}

// markAdmitted stores that the pods of a pending component may be replaced.
func (t *componentTracker) markAdmitted(r record) {
	r.pending = false
	t.observe(r, time.Time{})
}

// get returns the last record of a component, if it belongs to this owner.
func (t *componentTracker) get(namespace, workload string, owner types.UID) (record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ok := t.last[types.NamespacedName{Namespace: namespace, Name: workload}]
	return last.record, ok && last.owner == owner
}

// slotTracker records how long the slot of each installation has not changed, by the clock of this process. It has one entry for each
// installation, which remains until the process ends.
type slotTracker struct {
	mu    sync.Mutex
	slots map[types.NamespacedName]trackedSlot
}

type trackedSlot struct {
	slot  rollout.Slot
	since time.Time
}

// firstObserved returns when a slot was first observed with this content.
func (t *slotTracker) firstObserved(name types.NamespacedName, slot rollout.Slot, now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots == nil {
		t.slots = map[types.NamespacedName]trackedSlot{}
	}
	tracked, ok := t.slots[name]
	if !ok || tracked.slot != slot {
		tracked = trackedSlot{slot, now}
		t.slots[name] = tracked
	}
	return tracked.since
}
