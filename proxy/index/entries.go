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

func (s *Snapshot) putCluster(o *owner, cluster Cluster) {
	name, kind := cluster.Name, unique.Make(cluster.Type)
	if name.Empty() || name.IsSystem() || name.IsWildcard() || name == logicalcluster.Root && o.name != rootShard {
		return
	}
	existing, _ := s.clusters.get(name)
	if existing != nil && existing.owner == o && existing.kind == kind {
		return
	}
	s.clusters = s.clusters.put(&clusterEntry{name: s.canonical(name), owner: o, kind: kind, older: existing.without(o)})
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

func (s *Snapshot) hasCluster(o *owner, name logicalcluster.Name) bool {
	e, _ := s.clusters.get(name)
	for ; e != nil; e = e.older {
		if e.owner == o {
			return true
		}
	}
	return false
}

// leads tells whether the owner's word on the cluster is the one that counts.
func (s *Snapshot) leads(o *owner, name logicalcluster.Name) bool {
	e, ok := s.clusters.get(name)
	return ok && e.owner == o
}

// keepClusters removes the owner's clusters that are not in keep.
func (s *Snapshot) keepClusters(o *owner, keep map[logicalcluster.Name]struct{}) {
	var gone []logicalcluster.Name
	s.clusters.each(func(e *clusterEntry) {
		if _, ok := keep[e.name]; !ok && s.hasCluster(o, e.name) {
			gone = append(gone, e.name)
		}
	})
	for _, name := range gone {
		s.deleteCluster(o, name)
	}
}

// without returns the chain without the owner's entry: itself when it has none, nil when nothing is left.
func (e *clusterEntry) without(o *owner) *clusterEntry {
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

func (e *workspaceEntry) same(w Workspace) bool {
	if e.cluster != w.Cluster || e.unavailable != w.Unavailable {
		return false
	}
	if e.mount == nil {
		return !w.Cluster.Empty()
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
