package index

import "github.com/atoll-dev/atoll/logicalcluster"

// List replaces the entries of a shard by a list that arrives in parts, so that it is never in memory as a whole.
type List struct {
	index *Index
	owner *owner
	// clusters and workspaces are what the list has had so far, nil for a shard that has had no entry before: there is nothing to remove.
	clusters   map[logicalcluster.Name]struct{}
	workspaces map[workspaceKey]struct{}
	// parent is the parent of the last workspace, as in the entries: lists are sorted by it.
	parent logicalcluster.Name
}

// StartList starts the list of a shard. No other caller may write entries of the shard until the list ends.
func (i *Index) StartList(shard string) *List {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.list(shard)
}

// list is StartList. Callers must hold mu.
func (i *Index) list(shard string) *List {
	l := &List{index: i, owner: i.owner(shard)}
	if l.owner.hasClusters {
		l.clusters = map[logicalcluster.Name]struct{}{}
	}
	if l.owner.hasWorkspaces {
		l.workspaces = map[workspaceKey]struct{}{}
	}
	return l
}

// Add adds a part of the list, which is used at once.
func (l *List) Add(clusters []Cluster, workspaces []Workspace) {
	l.index.update(func(s *Snapshot) {
		l.addClusters(s, clusters)
		l.addWorkspaces(s, workspaces)
	})
}

// End removes what the list has not had, and marks the shard as synced. A list that is not complete has no end.
func (l *List) End() {
	l.index.update(func(s *Snapshot) {
		l.endClusters(s)
		l.endWorkspaces(s)
	})
}

func (l *List) addClusters(s *Snapshot, clusters []Cluster) {
	for _, cluster := range clusters {
		if !cluster.Routable() {
			continue
		}
		if l.clusters != nil {
			l.clusters[cluster.Name] = struct{}{}
		}
		l.index.putCluster(s, l.owner, cluster)
	}
}

func (l *List) addWorkspaces(s *Snapshot, workspaces []Workspace) {
	for _, w := range workspaces {
		if !w.Routable() {
			continue
		}
		if l.workspaces != nil {
			l.workspaces[workspaceKey{w.Parent, w.Name}] = struct{}{}
			if s.hasWorkspace(l.owner, w) {
				continue
			}
		}
		if w.Parent != l.parent {
			l.parent = s.canonical(w.Parent)
		}
		// To find the string of each entry of a logical cluster would take half of the time of a list.
		w.Parent, w.Cluster = l.parent, clone(w.Cluster)
		s.insertWorkspace(l.owner, w)
	}
}

func (l *List) endClusters(s *Snapshot) {
	if l.clusters != nil {
		s.pruneClusters(l.owner, l.clusters)
	}
	s.setSynced(l.owner.name, s.synced[l.owner.name]|clustersSynced)
}

func (l *List) endWorkspaces(s *Snapshot) {
	if l.workspaces != nil {
		s.pruneWorkspaces(l.owner, l.workspaces)
	}
	s.setSynced(l.owner.name, s.synced[l.owner.name]|workspacesSynced)
}
