package index

import (
	"unique"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// The methods below build a next snapshot; they are called on a copy that nobody else sees yet.

// setRead says what of a shard was read; nothing for a shard that is gone.
func (s *Snapshot) setRead(shard string, what read) {
	if s.read[shard] != what {
		next := make(map[string]read, len(s.read)+1)
		for other, r := range s.read {
			next[other] = r
		}
		next[shard] = what
		if what == 0 {
			delete(next, shard)
		}
		s.read = next
	}
	s.countUnread()
}

// countUnread counts the shards that are there, have an address, and were not read yet.
func (s *Snapshot) countUnread() {
	s.unread = 0
	for name, shard := range s.shards {
		if shard.BaseURL != nil && s.read[name] != allRead {
			s.unread++
		}
	}
}

// putCluster returns the shard that keeps the cluster although this one says that it has it; nil if none does.
func (s *Snapshot) putCluster(o *owner, cluster Cluster) (holder *owner) {
	name, kind := cluster.Name, unique.Make(cluster.Type)
	if name.Empty() || name.IsSystem() || name.IsWildcard() || name == logicalcluster.Root && o.name != rootShard {
		return nil
	}
	first, _ := s.clusters.get(name)
	if own := first.of(o.name); own == nil || own.kind != kind {
		first = first.with(s.canonical(name), o, kind)
		s.clusters = s.clusters.put(first)
	}
	if first.owner == o {
		return nil
	}
	return first.owner
}

func (s *Snapshot) deleteCluster(o *owner, name logicalcluster.Name) {
	existing, ok := s.clusters.get(name)
	if !ok {
		return
	}
	switch rest := existing.without(o); rest {
	case existing:
	case nil:
		s.clusters = s.clusters.remove(name)
	default:
		s.clusters = s.clusters.put(rest)
	}
}

// keepClusters removes the owner's clusters that are not in keep.
func (s *Snapshot) keepClusters(o *owner, keep map[logicalcluster.Name]struct{}) {
	var gone []logicalcluster.Name
	s.clusters.each(func(e *clusterEntry) {
		if _, ok := keep[e.name]; !ok && e.of(o.name) != nil {
			gone = append(gone, e.name)
		}
	})
	for _, name := range gone {
		s.deleteCluster(o, name)
	}
}

// of returns what the shard with that name says, or nil.
func (e *clusterEntry) of(shard string) *clusterEntry {
	for ; e != nil; e = e.next {
		if e.owner.name == shard {
			return e
		}
	}
	return nil
}

// with returns the chain with the owner's entry, where that was, or at the end.
func (e *clusterEntry) with(name logicalcluster.Name, o *owner, kind unique.Handle[string]) *clusterEntry {
	if e == nil {
		return &clusterEntry{name: name, owner: o, kind: kind}
	}
	out := *e
	if e.owner == o {
		out.kind = kind
		return &out
	}
	out.next = e.next.with(e.name, o, kind)
	return &out
}

// without returns the chain without the owner's entry: itself when it has none, nil when nothing is left.
func (e *clusterEntry) without(o *owner) *clusterEntry {
	if e == nil {
		return nil
	}
	if e.owner == o {
		return e.next
	}
	rest := e.next.without(o)
	if rest == e.next {
		return e
	}
	out := *e
	out.next = rest
	return &out
}

func (s *Snapshot) putWorkspace(o *owner, w Workspace) {
	k := workspaceKey{w.Parent, w.Name}
	if !w.Routable() {
		s.deleteWorkspace(o, k)
		return
	}
	existing, _ := s.workspaces.get(k)
	if existing != nil && existing.owner == o && existing.same(w) {
		return // most events change nothing that matters here
	}
	entry := &workspaceEntry{
		workspaceKey: workspaceKey{s.canonical(w.Parent), string([]byte(w.Name))},
		cluster:      s.canonical(w.Cluster),
		owner:        o,
		unavailable:  w.Unavailable,
		older:        existing.without(o),
	}
	if w.Cluster.Empty() {
		mount := string([]byte(w.Mount))
		entry.mount = &mount
	} else if w.Shard != "" {
		entry.on = unique.Make(w.Shard)
	}
	s.workspaces = s.workspaces.put(entry)
}

func (s *Snapshot) deleteWorkspace(o *owner, k workspaceKey) {
	existing, ok := s.workspaces.get(k)
	if !ok {
		return
	}
	switch rest := existing.without(o); rest {
	case existing:
	case nil:
		s.workspaces = s.workspaces.remove(k)
	default:
		s.workspaces = s.workspaces.put(rest)
	}
}

// hasWorkspace tells whether the owner already said the same about the workspace.
func (s *Snapshot) hasWorkspace(o *owner, w Workspace) bool {
	e, _ := s.workspaces.get(workspaceKey{w.Parent, w.Name})
	for ; e != nil; e = e.older {
		if e.owner == o {
			return e.same(w)
		}
	}
	return false
}

func (s *Snapshot) keepWorkspaces(o *owner, keep map[workspaceKey]struct{}) {
	var gone []workspaceKey
	s.workspaces.each(func(head *workspaceEntry) {
		if _, ok := keep[head.workspaceKey]; ok {
			return
		}
		for e := head; e != nil; e = e.older {
			if e.owner == o {
				gone = append(gone, head.workspaceKey)
				return
			}
		}
	})
	for _, k := range gone {
		s.deleteWorkspace(o, k)
	}
}

// shard returns where the workspace's logical cluster was put, or "".
func (e *workspaceEntry) shard() string {
	if e.on == (unique.Handle[string]{}) {
		return ""
	}
	return e.on.Value()
}

func (e *workspaceEntry) same(w Workspace) bool {
	if e.cluster != w.Cluster || e.unavailable != w.Unavailable {
		return false
	}
	if e.mount == nil {
		return !w.Cluster.Empty() && e.shard() == w.Shard
	}
	return w.Cluster.Empty() && *e.mount == w.Mount
}

func (e *workspaceEntry) without(o *owner) *workspaceEntry {
	if e == nil {
		return nil
	}
	if e.owner == o {
		return e.older
	}
	rest := e.older.without(o)
	if rest == e.older {
		return e
	}
	out := *e
	out.older = rest
	return &out
}
