package index

import (
	"maps"
	"strings"
	"unique"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// The methods below change a copy of a snapshot that is not published yet.

// setSynced records what of a shard is synced; 0 removes the record.
func (s *Snapshot) setSynced(shard string, synced syncState) {
	if s.synced[shard] != synced {
		next := maps.Clone(s.synced)
		next[shard] = synced
		if synced == 0 {
			delete(next, shard)
		}
		s.synced = next
	}
	s.countNotSynced()
}

// countNotSynced counts the shards that have a base URL and are not synced.
func (s *Snapshot) countNotSynced() {
	s.notSynced = 0
	for name, shard := range s.shards {
		if shard.BaseURL != nil && s.synced[name] != allSynced {
			s.notSynced++
		}
	}
}

// putCluster returns the shard that keeps the cluster although o reports it, too, and has not handed it over to that
// shard; nil if there is none.
func (s *Snapshot) putCluster(o *owner, cluster Cluster) (holder *owner) {
	name := cluster.Name
	if name.Empty() || name.IsSystem() || name.IsWildcard() || name == logicalcluster.Root && o.name != rootShard {
		return nil
	}
	if !cluster.Routable() {
		s.deleteCluster(o, name)
		return nil
	}
	reported := clusterEntry{owner: o, workspaceType: unique.Make(cluster.Type), movedTo: shardHandle(cluster.MovedTo)}
	first := s.cluster(name)
	own := first.reportedBy(o.name)
	if own == nil || own.workspaceType != reported.workspaceType || own.movedTo != reported.movedTo {
		reported.name = s.canonical(name)
		o.hasClusters = true
		first = first.with(reported).handOver()
		s.clusters.ReplaceOrInsert(first)
		own = first.reportedBy(o.name)
	}
	if first.destination(own) == first {
		return nil
	}
	return first.owner
}

func (s *Snapshot) deleteCluster(o *owner, name logicalcluster.Name) {
	existing := s.cluster(name)
	switch others := existing.without(o); others {
	case existing:
	case nil:
		s.clusters.Delete(existing)
	default:
		s.clusters.ReplaceOrInsert(others.handOver())
	}
}

// pruneClusters removes the owner's clusters that are not in keep.
func (s *Snapshot) pruneClusters(o *owner, keep map[logicalcluster.Name]struct{}) {
	var removed []logicalcluster.Name
	s.clusters.Ascend(func(e *clusterEntry) bool {
		if _, ok := keep[e.name]; !ok && e.reportedBy(o.name) != nil {
			removed = append(removed, e.name)
		}
		return true
	})
	for _, name := range removed {
		s.deleteCluster(o, name)
	}
}

// reportedBy returns the entry of a shard, nil if it has none.
func (e *clusterEntry) reportedBy(shard string) *clusterEntry {
	for ; e != nil; e = e.next {
		if e.owner.name == shard {
			return e
		}
	}
	return nil
}

// with returns the list with the reported entry, which keeps the position of its owner's entry or is appended.
func (e *clusterEntry) with(reported clusterEntry) *clusterEntry {
	if e == nil {
		return &reported
	}
	if e.owner == reported.owner {
		reported.next = e.next
		return &reported
	}
	out := *e
	out.next = e.next.with(reported)
	return &out
}

// destination returns the entry that is used instead of from, both of the list e, since the owner of from has handed the
// cluster over. That is from itself if the owner has not, or if shards have handed it over in a circle, which happens
// with outdated entries only. Of a chain of moves it is the last entry that the index has.
func (e *clusterEntry) destination(from *clusterEntry) *clusterEntry {
	to := from
	for hop := e; hop != nil; hop = hop.next { // a longer chain is a circle
		if !to.hasMoved() {
			return to
		}
		next := e.reportedBy(to.movedTo.Value())
		if next == nil {
			return to
		}
		to = next
	}
	return from
}

// handOver returns the list with the entry first to which the owner of the first one has handed the cluster over.
func (e *clusterEntry) handOver() *clusterEntry {
	to := e.destination(e)
	if to == e {
		return e
	}
	first := *to
	first.next = e.without(to.owner)
	return &first
}

// hasMoved reports whether the owner has handed the cluster over.
func (e *clusterEntry) hasMoved() bool { return e.movedTo != unique.Handle[string]{} }

// without returns the list without the owner's entry: e itself if it has none, nil if the list is empty then.
func (e *clusterEntry) without(o *owner) *clusterEntry {
	if e == nil {
		return nil
	}
	if e.owner == o {
		return e.next
	}
	others := e.next.without(o)
	if others == e.next {
		return e
	}
	out := *e
	out.next = others
	return &out
}

func (s *Snapshot) putWorkspace(o *owner, w Workspace) {
	k := workspaceKey{w.Parent, w.Name}
	if !w.Routable() {
		s.deleteWorkspace(o, k)
		return
	}
	if existing := s.workspace(k); existing != nil && existing.owner == o && existing.equals(w) {
		return // most events change no field that is indexed
	}
	w.Parent, w.Cluster = s.canonical(w.Parent), s.canonical(w.Cluster)
	s.insertWorkspace(o, w)
}

// insertWorkspace adds or replaces an entry of a workspace that is routable. It retains the names of the logical clusters.
func (s *Snapshot) insertWorkspace(o *owner, w Workspace) {
	k := workspaceKey{w.Parent, w.Name}
	entry := &workspaceEntry{
		workspaceKey: workspaceKey{w.Parent, strings.Clone(w.Name)},
		cluster:      w.Cluster,
		owner:        o,
		unavailable:  w.Unavailable,
		next:         s.workspace(k).without(o),
	}
	o.hasWorkspaces = true
	if w.Cluster.Empty() {
		mount := strings.Clone(w.Mount)
		entry.mount = &mount
	} else {
		entry.shard = shardHandle(w.Shard)
	}
	s.workspaces.ReplaceOrInsert(entry)
}

func (s *Snapshot) deleteWorkspace(o *owner, k workspaceKey) {
	existing := s.workspace(k)
	switch others := existing.without(o); others {
	case existing:
	case nil:
		s.workspaces.Delete(existing)
	default:
		s.workspaces.ReplaceOrInsert(others)
	}
}

// hasWorkspace reports whether the owner has an equal entry for the workspace.
func (s *Snapshot) hasWorkspace(o *owner, w Workspace) bool {
	for e := s.workspace(workspaceKey{w.Parent, w.Name}); e != nil; e = e.next {
		if e.owner == o {
			return e.equals(w)
		}
	}
	return false
}

// pruneWorkspaces removes the owner's workspaces that are not in keep.
func (s *Snapshot) pruneWorkspaces(o *owner, keep map[workspaceKey]struct{}) {
	var removed []workspaceKey
	s.workspaces.Ascend(func(head *workspaceEntry) bool {
		if _, ok := keep[head.workspaceKey]; ok {
			return true
		}
		for e := head; e != nil; e = e.next {
			if e.owner == o {
				removed = append(removed, head.workspaceKey)
				break
			}
		}
		return true
	})
	for _, k := range removed {
		s.deleteWorkspace(o, k)
	}
}

// shardHandle returns the handle of a shard's name, the zero Handle for "".
func shardHandle(name string) unique.Handle[string] {
	if name == "" {
		return unique.Handle[string]{}
	}
	return unique.Make(name)
}

// shardName is the inverse of shardHandle.
func shardName(h unique.Handle[string]) string {
	if h == (unique.Handle[string]{}) {
		return ""
	}
	return h.Value()
}

func (e *workspaceEntry) equals(w Workspace) bool {
	if e.cluster != w.Cluster || e.unavailable != w.Unavailable {
		return false
	}
	if e.mount == nil {
		return !w.Cluster.Empty() && shardName(e.shard) == w.Shard
	}
	return w.Cluster.Empty() && *e.mount == w.Mount
}

// without is clusterEntry.without for workspaces.
func (e *workspaceEntry) without(o *owner) *workspaceEntry {
	if e == nil {
		return nil
	}
	if e.owner == o {
		return e.next
	}
	others := e.next.without(o)
	if others == e.next {
		return e
	}
	out := *e
	out.next = others
	return &out
}
