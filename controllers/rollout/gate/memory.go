package gate

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/controllers/rollout"
)

// sight is one look at a component: which custom resource it was made for at which generation, and what is wanted of it.
type sight struct {
	namespace, workload string
	owner               types.UID
	generation          int64
	revision            string
	pending             bool
}

// memory is what was seen of components last. It is empty after a start, and until a component has been looked at nobody
// knows whether it is as its spec, under this version of the operator, wants it. It has one entry for each workload of
// the cluster; those that are gone stay until the process ends, which is some bytes each.
type memory struct {
	mu   sync.Mutex
	last map[types.NamespacedName]remembered
}

type remembered struct {
	sight
	since time.Time // of the first sight of this revision
}

// look notes a sight, and returns when this revision was wanted first.
func (m *memory) look(s sight, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[types.NamespacedName]remembered{}
	}
	key := types.NamespacedName{Namespace: s.namespace, Name: s.workload}
	entry := remembered{sight: s, since: now}
	if had, ok := m.last[key]; ok && had.owner == s.owner && had.revision == s.revision && had.pending == s.pending {
		entry.since = had.since
	}
	m.last[key] = entry
	return entry.since
}

// passed notes that what was pending is allowed, and pending no more.
func (m *memory) passed(s sight) {
	s.pending = false
	m.look(s, time.Time{})
}

// recall returns the last sight of a component, if it was of this owner.
func (m *memory) recall(namespace, workload string, owner types.UID) (sight, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	had, ok := m.last[types.NamespacedName{Namespace: namespace, Name: workload}]
	return had.sight, ok && had.owner == owner
}

// slotSights remembers since when, by the clock of this process, the slot of each installation is as it is. It has one entry
// for each installation, which stays until the process ends, as those of memory do.
type slotSights struct {
	mu    sync.Mutex
	first map[types.NamespacedName]slotSight
}

type slotSight struct {
	slot rollout.Slot
	at   time.Time
}

// since returns when a slot was first seen as it is.
func (m *slotSights) since(name types.NamespacedName, slot rollout.Slot, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first == nil {
		m.first = map[types.NamespacedName]slotSight{}
	}
	had, ok := m.first[name]
	if !ok || had.slot != slot {
		had = slotSight{slot, now}
		m.first[name] = had
	}
	return had.at
}
