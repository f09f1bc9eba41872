package index

import (
	"strings"
	"unique"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Resolution is the result of resolving a path.
type Resolution int

const (
	// NotFound is an unknown name, workspace or cluster, the wildcard, a system cluster, or a shard that has no base
	// URL or is not served. Clients must not be able to distinguish these.
	NotFound Resolution = iota
	// Found is a logical cluster on a known shard.
	Found
	// Mounted is a workspace with the URL of another server.
	Mounted
	// Unavailable is a path that resolves, but through a workspace in phase Unavailable.
	Unavailable
	// NotSynced is a path that does not resolve while a shard that may have it is not synced.
	NotSynced
	// Moving is a path that does not resolve because the index has the change of one shard by the move of a logical cluster, and
	// not yet that of another.
	Moving
)

// Route is where a path leads.
type Route struct {
	// Cluster and Shard are set if Found. Shard.Err may be set.
	Cluster logicalcluster.Name
	Shard   *Shard
	// Type is the workspace type of the cluster, "<path>:<name>", or "" if it is not known.
	Type string
	// Mount is set if Mounted.
	Mount string
}

// Resolve follows the path from its first segment, the name of a logical cluster, through the workspaces named by the
// other segments. Segments after a mount are dropped: they belong to the mounted server.
//
// A path from root is trustworthy: root is on the root shard, each shard defines the workspaces in its own logical
// clusters, and each workspace names the shard of its logical cluster. So a shard that reports logical clusters of
// others cannot divert paths. A name alone has no such chain: the shard that reported it first is used, while it
// reports it. Both lead on to the shard to which that shard has handed the logical cluster over.
func (s *Snapshot) Resolve(path logicalcluster.Path) (Route, Resolution) {
	if name, ok := path.Name(); ok {
		if name.IsSystem() || name.IsWildcard() {
			return Route{}, NotFound // even before the shards are synced
		}
		return s.route(s.cluster(name))
	}
	first, rest, _ := strings.Cut(path.String(), ":")
	if first == logicalcluster.HomePrefix {
		user, below, _ := strings.Cut(rest, ":")
		first, rest = logicalcluster.HomeName(user).String(), below
	}
	name, err := logicalcluster.ParseName(first)
	if err != nil {
		return Route{}, NotFound
	}
	cluster := s.cluster(name)
	if cluster == nil {
		return Route{}, s.missingCluster()
	}

	unavailable := false
	for rest != "" {
		var segment string
		segment, rest, _ = strings.Cut(rest, ":")
		w := s.workspace(workspaceKey{name, segment}).reportedBy(cluster)
		if w == nil {
			return Route{}, s.missingWorkspace(cluster, workspaceKey{name, segment})
		}
		unavailable = unavailable || w.unavailable
		if w.mount != nil {
			if unavailable {
				return Route{}, Unavailable
			}
			return Route{Mount: *w.mount}, Mounted
		}
		name = w.cluster
		if cluster = s.cluster(name); cluster != nil && w.shard != (unique.Handle[string]{}) {
			named := cluster.reportedBy(w.shard.Value())
			if named == nil {
				// After a move, the index may have the end of the origin's entry before the change of the workspace, or this
				// one before the destination's entry. Another shard's entry alone proves nothing, so it is not used.
				return Route{}, Moving
			}
			cluster = cluster.destination(named)
		}
	}

	route, resolution := s.route(cluster)
	if resolution == Found && unavailable {
		return Route{}, Unavailable
	}
	return route, resolution
}

// route returns the route to a logical cluster, which is nil if no shard reports it.
func (s *Snapshot) route(e *clusterEntry) (Route, Resolution) {
	if e == nil {
		return Route{}, s.missingCluster()
	}
	shard, ok := s.shards[e.owner.name]
	if !ok || shard.NotServed || (shard.BaseURL == nil && shard.Err == nil) {
		return Route{}, NotFound
	}
	return Route{Cluster: e.name, Shard: shard, Type: e.workspaceType.Value()}, Found
}

// reportedBy returns the entry of the shard that has the parent logical cluster, nil if it has none. Entries of other
// shards do not count: a compromised shard must not divert paths through logical clusters of others.
func (e *workspaceEntry) reportedBy(parent *clusterEntry) *workspaceEntry {
	for ; e != nil && parent != nil; e = e.next {
		if e.owner == parent.owner {
			return e
		}
	}
	return nil
}

// missingCluster is the resolution of a logical cluster that is not indexed. Any shard that is not synced may have it.
func (s *Snapshot) missingCluster() Resolution {
	if s.notSynced > 0 {
		return NotSynced
	}
	return NotFound
}

// missingWorkspace is the resolution of a workspace that is not indexed, in a logical cluster whose shard alone may
// have it. If the logical cluster has moved, the shard's workspaces may be indexed later than the logical cluster, and
// the origin removes its own: what one of them has, or had, is not missing yet.
func (s *Snapshot) missingWorkspace(parent *clusterEntry, k workspaceKey) Resolution {
	if parent == nil {
		return s.missingCluster()
	}
	switch {
	case s.synced[parent.owner.name]&workspacesSynced == 0:
		return NotSynced
	case parent.hasMoved():
		return Moving
	}
	first := s.cluster(k.parent)
	for w := s.workspace(k); w != nil; w = w.next {
		if from := first.reportedBy(w.owner.name); from != nil && first.destination(from) == parent {
			return Moving
		}
	}
	return NotFound
}
