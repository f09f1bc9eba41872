// Package index knows which shard holds which logical cluster, and where every workspace path leads.
//
// Lookups read one immutable Snapshot behind an atomic pointer: no lock, no allocation on the path of a name, and
// never half an update. The snapshot is made of persistent hash tries (see trie), so a changed entry copies the few
// small nodes above it instead of a map of all workspaces: an update is O(log32 n), about a kilobyte of garbage at
// 100,000 workspaces. Writers are serialized by a mutex that no reader takes.
//
// Entries remember the shard they came from. An entry lives as long as its object on that shard is known; it is
// removed by the shard's delete event, by a relist that no longer has it, or with the shard. Nothing else is kept
// per workspace.
//
// What must not live here: clients, watches, HTTP. Package shards fills the index, package proxy reads it.
package index

import (
	"hash/maphash"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"unique"

	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// rootShard is the shard that has the logical cluster "root", whatever others say.
const rootShard = "root"

// Shard is one shard as its Shard object describes it. It is immutable.
type Shard struct {
	Name string
	// BaseURL is where the shard is reached, nil when the object has none or one that cannot be parsed.
	BaseURL *url.URL
	// Err says why BaseURL could not be parsed.
	Err error
	// Elsewhere is set for a shard to which this proxy does not lead. What is on it is known for the paths through it.
	Elsewhere bool
}

// read says what of a shard was read as a whole. Until all of it was, the absence of an entry means nothing.
type read uint8

const (
	clustersRead read = 1 << iota
	workspacesRead

	allRead = clustersRead | workspacesRead
)

// Workspace is what routing needs of a Workspace object.
type Workspace struct {
	// Parent is the logical cluster that holds the object; Name is the object's name.
	Parent logicalcluster.Name
	Name   string
	// Cluster is the workspace's own logical cluster; the zero Name for a mount. Shard is where it was put, or "" where that
	// is not said.
	Cluster logicalcluster.Name
	Shard   string
	// Mount is the URL that a mounted workspace leads to; empty for all others.
	Mount string
	// Unavailable is set in phase Unavailable.
	Unavailable bool
}

// Cluster is what routing needs of a LogicalCluster object.
type Cluster struct {
	Name logicalcluster.Name
	// Type is the workspace type it was created with, "<path>:<name>", or "" where that is of no interest.
	Type string
}

// Routable tells whether the index can say something of the workspace: where it leads, or that it is unavailable, as is
// a mount that was never ready and has no URL. Others are not indexed.
func (w Workspace) Routable() bool { return !w.Cluster.Empty() || w.Mount != "" || w.Unavailable }

type workspaceKey struct {
	parent logicalcluster.Name
	name   string
}

// owner is the identity of a shard: entries point to it, so that a new base URL touches none of them.
type owner struct {
	name string
	// contests says that the shard has claimed a logical cluster that another one has, which was told.
	contests bool
}

type workspaceEntry struct {
	workspaceKey
	cluster logicalcluster.Name
	// on names the shard where the cluster was put, if that is said. There are few, each held once.
	on unique.Handle[string]
	// mount is a pointer because hardly any workspace has one.
	mount       *string
	owner       *owner
	older       *workspaceEntry
	unavailable bool
}

type clusterEntry struct {
	name  logicalcluster.Name
	owner *owner
	// kind is the workspace type. There are few, so that each is held once however many clusters have it.
	kind unique.Handle[string]
	// next is what another shard says about the same cluster. Whoever said so first is in front; when that shard lets go,
	// the next one is believed. So no shard can take a name that another one has.
	next *clusterEntry
}

func (e *workspaceEntry) key() workspaceKey      { return e.workspaceKey }
func (e *clusterEntry) key() logicalcluster.Name { return e.name }

// Snapshot is one state of the index. It never changes.
type Snapshot struct {
	clusters   trie[logicalcluster.Name, *clusterEntry]
	workspaces trie[workspaceKey, *workspaceEntry]
	shards     map[string]*Shard
	// read is by shard; unread counts the shards of which something was not read yet.
	read   map[string]read
	unread int
}

// Index holds the current Snapshot and applies what shards report. Its methods may be called concurrently.
type Index struct {
	current atomic.Pointer[Snapshot]

	mu     sync.Mutex // serializes writers
	owners map[string]*owner
}

// New returns an empty index.
func New() *Index {
	// The seed is random: nobody can choose workspace names that collide.
	seed := maphash.MakeSeed()
	i := &Index{owners: map[string]*owner{}}
	i.current.Store(&Snapshot{
		clusters: trie[logicalcluster.Name, *clusterEntry]{hash: func(n logicalcluster.Name) uint64 {
			return maphash.String(seed, n.String())
		}},
		workspaces: trie[workspaceKey, *workspaceEntry]{hash: func(k workspaceKey) uint64 {
			var h maphash.Hash
			h.SetSeed(seed)
			h.WriteString(k.parent.String())
			h.WriteByte(':')
			h.WriteString(k.name)
			return h.Sum64()
		}},
		shards: map[string]*Shard{},
		read:   map[string]read{},
	})
	return i
}

// Load returns the current snapshot.
func (i *Index) Load() *Snapshot { return i.current.Load() }

// update runs f on a copy of the current snapshot and makes the result the current one.
func (i *Index) update(f func(*Snapshot)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	next := *i.current.Load()
	f(&next)
	i.current.Store(&next)
}

// owner returns the identity of the named shard. The caller holds mu.
func (i *Index) owner(shard string) *owner {
	o, ok := i.owners[shard]
	if !ok {
		o = &owner{name: shard}
		i.owners[shard] = o
	}
	return o
}

// SetShard adds a shard or replaces what is known about it. Its entries stay.
func (i *Index) SetShard(shard Shard) {
	i.update(func(s *Snapshot) {
		shards := make(map[string]*Shard, len(s.shards)+1)
		for name, other := range s.shards {
			shards[name] = other
		}
		shards[shard.Name] = &shard
		s.shards = shards
		s.countUnread()
	})
}

// RemoveShard forgets a shard and all that came from it.
func (i *Index) RemoveShard(name string) {
	i.update(func(s *Snapshot) {
		shards := make(map[string]*Shard, len(s.shards))
		for other, shard := range s.shards {
			if other != name {
				shards[other] = shard
			}
		}
		s.shards = shards
		s.setRead(name, 0)
		o := i.owner(name)
		s.keepClusters(o, nil)
		s.keepWorkspaces(o, nil)
		delete(i.owners, name)
	})
}

// SetUnread says that not everything on a shard is known any more. Its entries stay.
func (i *Index) SetUnread(shard string) {
	i.update(func(s *Snapshot) { s.setRead(shard, 0) })
}

// PutCluster says that the shard has the logical cluster. System clusters exist on every shard and are nobody's
// business outside: they are not indexed.
func (i *Index) PutCluster(shard string, cluster Cluster) {
	i.update(func(s *Snapshot) { i.putCluster(s, i.owner(shard), cluster) })
}

// putCluster tells, once for each shard, that it claims what another one has. The caller holds mu.
func (i *Index) putCluster(s *Snapshot, o *owner, cluster Cluster) {
	if holder := s.putCluster(o, cluster); holder != nil && !o.contests {
		o.contests = true
		klog.InfoS("A shard claims a logical cluster that another shard has, which is not believed as long as that one says so", "shard", o.name, "cluster", cluster.Name, "holder", holder.name)
	}
}

// DeleteCluster says that the shard no longer has the logical cluster.
func (i *Index) DeleteCluster(shard string, name logicalcluster.Name) {
	i.update(func(s *Snapshot) { s.deleteCluster(i.owner(shard), name) })
}

// ReplaceClusters says that the shard has exactly these logical clusters.
func (i *Index) ReplaceClusters(shard string, clusters []Cluster) {
	i.update(func(s *Snapshot) {
		o := i.owner(shard)
		keep := make(map[logicalcluster.Name]struct{}, len(clusters))
		for _, cluster := range clusters {
			keep[cluster.Name] = struct{}{}
			i.putCluster(s, o, cluster)
		}
		s.keepClusters(o, keep)
		s.setRead(shard, s.read[shard]|clustersRead)
	})
}

// PutWorkspace says that the shard has the workspace object.
func (i *Index) PutWorkspace(shard string, w Workspace) {
	i.update(func(s *Snapshot) { s.putWorkspace(i.owner(shard), w) })
}

// DeleteWorkspace says that the shard no longer has the object called name in the cluster parent.
func (i *Index) DeleteWorkspace(shard string, parent logicalcluster.Name, name string) {
	i.update(func(s *Snapshot) { s.deleteWorkspace(i.owner(shard), workspaceKey{parent, name}) })
}

// ReplaceWorkspaces says that the shard has exactly these workspace objects.
func (i *Index) ReplaceWorkspaces(shard string, workspaces []Workspace) {
	i.update(func(s *Snapshot) {
		o := i.owner(shard)
		keep := make(map[workspaceKey]struct{}, len(workspaces))
		for _, w := range workspaces {
			if !w.Routable() {
				continue
			}
			keep[workspaceKey{w.Parent, w.Name}] = struct{}{}
			if !s.hasWorkspace(o, w) {
				s.putWorkspace(o, w)
			}
		}
		s.keepWorkspaces(o, keep)
		s.setRead(shard, s.read[shard]|workspacesRead)
	})
}

// Counts returns the number of indexed workspaces for each shard. It walks the index: for metrics.
func (s *Snapshot) Counts() map[string]int {
	counts := make(map[string]int, len(s.shards))
	for name := range s.shards {
		counts[name] = 0
	}
	s.workspaces.each(func(e *workspaceEntry) { counts[e.owner.name]++ })
	return counts
}

// Contested returns, for each shard, how many logical clusters it claims that another shard has. It walks the index: for
// metrics.
func (s *Snapshot) Contested() map[string]int {
	counts := make(map[string]int, len(s.shards))
	for name := range s.shards {
		counts[name] = 0
	}
	s.clusters.each(func(first *clusterEntry) {
		for e := first.next; e != nil; e = e.next {
			counts[e.owner.name]++
		}
	})
	return counts
}

// canonical returns a name that shares its characters with the entry of the cluster, if there is one, so that the
// many mentions of a cluster cost its characters once. Otherwise the characters are copied: an entry must not hold
// on to the document it was read from.
func (s *Snapshot) canonical(name logicalcluster.Name) logicalcluster.Name {
	if name.Empty() {
		return name
	}
	if e, ok := s.clusters.get(name); ok {
		return e.name
	}
	return logicalcluster.MustParseName(strings.Clone(name.String()))
}

// ShardNames returns the names of all shards.
func (s *Snapshot) ShardNames() []string {
	names := make([]string, 0, len(s.shards))
	for name := range s.shards {
		names = append(names, name)
	}
	return names
}
