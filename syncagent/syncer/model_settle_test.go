package syncer

import (
	"errors"
	"slices"
	"strings"
)

// settle ends all faults, and runs passes until no event and no result requests another.
func (m *model) settle() {
	m.log("--- settling")
	for len(m.passes) > 0 { // these have started before
		if m.rand.IntN(4) == 0 {
			m.end(pick(m, m.passes))
		} else {
			m.advance(pick(m, m.passes))
		}
	}
	m.faults = false
	m.endSlowDeletions()
	m.written = 0
	seen := map[string]string{}
	for round := range 40 {
		before := m.written
		again := m.round(seen)
		if !again && round > 0 && m.written == before {
			break
		}
		if round == 39 {
			m.violation("not settled")
		}
	}
	if limit := 15 * len(m.publications) * len(primaryKeys) * 2; m.written > limit {
		m.violation("%d writes after the last action, more than %d", m.written, limit)
	}
	m.log("--- idle")
	m.written = 0
	m.round(map[string]string{})
	if m.written > 0 {
		m.violation("%d writes of idle agents", m.written)
	}
}

// round makes a reconciliation over each primary object that has changed, whose copy has changed, or whose last reconciliation requested another. It reports
// whether any such object exists, except those whose copies belong to other owners.
func (m *model) round(seen map[string]string) (again bool) {
	for _, i := range m.rand.Perm(len(m.publications)) {
		pub := m.publications[i]
		for _, w := range pub.workspaces {
			for _, name := range primaryKeys {
				key := modelKey{w, name}
				m.refresh(pub)
				id, now := pub.name+w.name+name.String(), m.version(pub, key)
				if last, found := seen[id]; found && last == now {
					continue
				}
				seen[id] = now
				p := m.start(pub, key)
				for slices.Contains(m.passes, p) {
					m.advance(p)
				}
				var owned *OwnedError
				if p.err != nil || p.result.RequeueAfter > 0 {
					delete(seen, id)
					again = again || !errors.As(p.err, &owned) || p.result.RequeueAfter > 0
				}
			}
		}
	}
	return again
}

// version returns the versions of a primary object and its copy, because the agent gets events of both.
func (m *model) version(pub *modelPublication, key modelKey) string {
	var versions []string
	if primary := pub.primaries[key]; primary != nil {
		versions = append(versions, primary.GetResourceVersion())
	}
	for _, o := range pub.copies {
		if source, ok := SourceOf(&o); ok && source == (Source{key.workspace.cluster, key.NamespacedName}) {
			versions = append(versions, string(o.GetUID())+o.GetResourceVersion())
		}
	}
	return strings.Join(versions, " ")
}
