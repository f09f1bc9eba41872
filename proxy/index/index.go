// Package index maps logical clusters to their shards and resolves workspace paths.
//
// Resolve reads one immutable Snapshot behind an atomic pointer: without a lock, and never a partial update. A snapshot
// consists of B-trees, which are cloned for an update: the clone shares all nodes, and the update copies only those above
// the changed entries. A mutex, which readers do not take, serializes writers.
//
// Each entry has the shard that reported it. It is removed by the shard's delete event, by a list of the shard
// without it, or with the shard. There is no other state per workspace.
//
// Clients, watches and HTTP do not belong here. Package shards fills the index, package proxy reads it.
package index

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unique"

	"k8s.io/klog/v2"
	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// degree is that of the watch cache of Kubernetes.
const degree = 16

// rootShard is the only shard that may report the logical cluster "root".
const rootShard = "root"

// Shard is a shard as its Shard object describes it. It is immutable.
type Shard struct {
	Name string
	// BaseURL is the URL of the shard, nil if the object has none or an invalid one.
	BaseURL *url.URL
	// Err is the error of an invalid base URL.
	Err error
	// NotServed is set if this proxy does not forward requests to the shard. Its workspaces are indexed because paths
	// to other shards lead through them.
	NotServed bool
}

// syncState has the resources of a shard that were listed completely. Before that, a missing entry means nothing.
type syncState uint8

const (
	clustersSynced syncState = 1 << iota
	workspacesSynced

	allSynced = clustersSynced | workspacesSynced
)

// Workspace has the fields of a Workspace object that routing needs.
type Workspace struct {
	// Parent is the logical cluster of the object, Name its name.
	Parent logicalcluster.Name
	Name   string
	// Cluster is the workspace's own logical cluster, the zero Name for a mount; Shard is the shard of Cluster, "" if
	// the object does not name it.
	Cluster logicalcluster.Name
	Shard   string
	// Mount is the URL of a mounted workspace, empty for all others.
	Mount string
	// Unavailable is set in phase Unavailable.
	Unavailable bool
}

// Cluster has the fields of a LogicalCluster object that routing needs.
type Cluster struct {
	Name logicalcluster.Name
	// Type is its workspace type, "<path>:<name>", or "" if it is not needed.
	Type string
	// MovedTo is the shard to which the reporting shard has handed the cluster over, "" if it has not.
	MovedTo string
	// Arriving is set until the reporting shard, the destination of a move, has stored the complete content.
	Arriving bool
}

// Routable reports whether the cluster is indexed. One that arrives is not: its shard does not serve it, and lacks
// workspaces through which paths lead, and workspace types with issuers. Until then, the origin's entries are used.
func (c Cluster) Routable() bool { return !c.Arriving }

// Routable reports whether the workspace is indexed: it has a destination, or is unavailable, like a mount that never
// was ready and has no URL.
func (w Workspace) Routable() bool { return !w.Cluster.Empty() || w.Mount != "" || w.Unavailable }

type workspaceKey struct {
	parent logicalcluster.Name
	name   string
}

// owner identifies a shard. Entries point to it, so that a new base URL changes none of them.
type owner struct {
	name string
	// conflictLogged is set once a conflict of the shard with another one has been logged.
	conflictLogged bool
	// hasClusters and hasWorkspaces are set once the shard has had an entry: the first list of a shard has nothing to remove.
	hasClusters, hasWorkspaces bool
}

// workspaceEntry is what one shard reports about a workspace.
type workspaceEntry struct {
	workspaceKey
	cluster logicalcluster.Name
	// shard is the shard of cluster, if known. The names are few and stored once.
	shard unique.Handle[string]
	// mount is a pointer because few workspaces have one.
	mount *string
	owner *owner
	// next is the entry of another shard.
	next        *workspaceEntry
	unavailable bool
}

// clusterEntry is what one shard reports about a logical cluster.
type clusterEntry struct {
	name  logicalcluster.Name
	owner *owner
	// workspaceType is one of few, which are stored once.
	workspaceType unique.Handle[string]
	// movedTo is the shard to which owner has handed the cluster over, if it has.
	movedTo unique.Handle[string]
	// next is the entry of another shard. The first one to report the cluster is the head of the list and is used, so
	// that no shard can take over a name; when its entry is removed, the next one is used. Only the head can hand the
	// cluster over: the entry of the shard that it names becomes the head, and stays so when the previous one is removed.
	next *clusterEntry
}

// Snapshot is an immutable state of the index.
type Snapshot struct {
	clusters   *btree.BTree[*clusterEntry]   // by name
	workspaces *btree.BTree[*workspaceEntry] // by key
	shards     map[string]*Shard
	// synced has the state of each shard; notSynced counts the shards that are not completely synced.
	synced    map[string]syncState
	notSynced int
}

// Index publishes the current Snapshot and applies the events of shards. It is safe for concurrent use.
type Index struct {
	current atomic.Pointer[Snapshot]

	mu     sync.Mutex // serializes writers
	owners map[string]*owner
}

// New returns an empty index.
func New() *Index {
	i := &Index{owners: map[string]*owner{}}
	i.current.Store(&Snapshot{
		clusters: btree.New(degree, func(a, b *clusterEntry) bool { return a.name.String() < b.name.String() }),
		workspaces: btree.New(degree, func(a, b *workspaceEntry) bool {
			if a.parent != b.parent {
				return a.parent.String() < b.parent.String()
			}
			return a.name < b.name
		}),
		shards: map[string]*Shard{},
		synced: map[string]syncState{},
	})
	return i
}

// cluster returns the entry of a logical cluster, nil if there is none.
func (s *Snapshot) cluster(name logicalcluster.Name) *clusterEntry {
	e, _ := s.clusters.Get(&clusterEntry{name: name})
	return e
}

// workspace returns the entry of a workspace, nil if there is none.
func (s *Snapshot) workspace(k workspaceKey) *workspaceEntry {
	e, _ := s.workspaces.Get(&workspaceEntry{workspaceKey: k})
	return e
}

// Load returns the current snapshot.
func (i *Index) Load() *Snapshot { return i.current.Load() }

// update publishes a copy of the current snapshot that f has changed.
func (i *Index) update(f func(*Snapshot)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	next := *i.current.Load()
	next.clusters, next.workspaces = next.clusters.Clone(), next.workspaces.Clone()
	f(&next)
	i.current.Store(&next)
}

// owner returns the identity of the named shard. Callers must hold mu.
func (i *Index) owner(shard string) *owner {
	o, ok := i.owners[shard]
	if !ok {
		o = &owner{name: shard}
		i.owners[shard] = o
	}
	return o
}

// SetShard adds or replaces a shard. Its entries stay.
func (i *Index) SetShard(shard Shard) {
	i.update(func(s *Snapshot) {
		s.shards = maps.Clone(s.shards)
		s.shards[shard.Name] = &shard
		s.countNotSynced()
	})
}

// RemoveShard removes a shard and all its entries.
func (i *Index) RemoveShard(name string) {
	i.update(func(s *Snapshot) {
		s.shards = maps.Clone(s.shards)
		delete(s.shards, name)
		s.setSynced(name, 0)
		o := i.owner(name)
		s.pruneClusters(o, nil)
		s.pruneWorkspaces(o, nil)
		delete(i.owners, name)
	})
}

// SetNotSynced marks a shard as not synced. Its entries stay.
func (i *Index) SetNotSynced(shard string) {
	i.update(func(s *Snapshot) { s.setSynced(shard, 0) })
}

// PutCluster adds or replaces a logical cluster of the shard. One that is not routable is removed. System clusters are
// not indexed: they exist on every shard and are not accessible through the proxy.
func (i *Index) PutCluster(shard string, cluster Cluster) {
	i.update(func(s *Snapshot) { i.putCluster(s, i.owner(shard), cluster) })
}

// putCluster logs the first conflict of each shard. Callers must hold mu.
func (i *Index) putCluster(s *Snapshot, o *owner, cluster Cluster) {
	if holder := s.putCluster(o, cluster); holder != nil && !o.conflictLogged {
		o.conflictLogged = true
		klog.InfoS("Ignoring a logical cluster of a shard because another shard reported it first", "shard", o.name, "cluster", cluster.Name, "holder", holder.name)
	}
}

// DeleteCluster removes a logical cluster of the shard.
func (i *Index) DeleteCluster(shard string, name logicalcluster.Name) {
	i.update(func(s *Snapshot) { s.deleteCluster(i.owner(shard), name) })
}

// ReplaceClusters replaces all logical clusters of the shard.
func (i *Index) ReplaceClusters(shard string, clusters []Cluster) {
	i.update(func(s *Snapshot) {
		l := i.list(shard)
		l.addClusters(s, clusters)
		l.endClusters(s)
	})
}

// PutWorkspace adds or replaces a workspace of the shard. One that is not routable is removed.
func (i *Index) PutWorkspace(shard string, w Workspace) {
	i.update(func(s *Snapshot) { s.putWorkspace(i.owner(shard), w) })
}

// DeleteWorkspace removes a workspace of the shard.
func (i *Index) DeleteWorkspace(shard string, parent logicalcluster.Name, name string) {
	i.update(func(s *Snapshot) { s.deleteWorkspace(i.owner(shard), workspaceKey{parent, name}) })
}

// ReplaceWorkspaces replaces all workspaces of the shard.
func (i *Index) ReplaceWorkspaces(shard string, workspaces []Workspace) {
	i.update(func(s *Snapshot) {
		l := i.list(shard)
		l.addWorkspaces(s, workspaces)
		l.endWorkspaces(s)
	})
}

// Counts returns the number of workspaces of each shard. It walks the index, for metrics.
func (s *Snapshot) Counts() map[string]int {
	counts := make(map[string]int, len(s.shards))
	for name := range s.shards {
		counts[name] = 0
	}
	s.workspaces.Ascend(func(e *workspaceEntry) bool { counts[e.owner.name]++; return true })
	return counts
}

// Conflicts returns the number of logical clusters of each shard that another shard reported first, without those that
// the shard has handed over to the other one. It walks the index, for metrics.
func (s *Snapshot) Conflicts() map[string]int {
	counts := make(map[string]int, len(s.shards))
	for name := range s.shards {
		counts[name] = 0
	}
	s.clusters.Ascend(func(first *clusterEntry) bool {
		for e := first.next; e != nil; e = e.next {
			if first.destination(e) != first {
				counts[e.owner.name]++
			}
		}
		return true
	})
	return counts
}

// canonical returns the string of the cluster's entry, so that all references to a cluster share it. If there is
// none, it returns a copy: an entry must not retain the document from which it was decoded.
func (s *Snapshot) canonical(name logicalcluster.Name) logicalcluster.Name {
	if name.Empty() {
		return name
	}
	if e := s.cluster(name); e != nil {
		return e.name
	}
	return clone(name)
}

func clone(name logicalcluster.Name) logicalcluster.Name {
	if name.Empty() {
		return name
	}
	return logicalcluster.MustParseName(strings.Clone(name.String()))
}

// ShardNames returns the names of all shards.
func (s *Snapshot) ShardNames() []string {
	return slices.Collect(maps.Keys(s.shards))
}
