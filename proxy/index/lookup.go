package index

import (
	"strings"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Verdict says what a path leads to.
type Verdict int

const (
	// NotFound is everything that must look alike from outside: an unknown name, workspace or cluster, the
	// wildcard, a system cluster, a shard without a base URL.
	NotFound Verdict = iota
	// Found is a logical cluster on a known shard.
	Found
	// Mounted is a workspace that leads to a URL of its own.
	Mounted
	// Unavailable is a path that resolves, but through a workspace that is Unavailable.
	Unavailable
	// Undecided is what is not known while a shard that may have it was not read yet.
	Undecided
)

// Route is where a path leads.
type Route struct {
	// Cluster and Shard are set when Found. Shard.Err may be set.
	Cluster logicalcluster.Name
	Shard   *Shard
	// Type is the workspace type of the cluster, "<path>:<name>", or "" where it is not known.
	Type string
	// Mount is set when Mounted.
	Mount string
}

// homeSegment is the first segment of a path into the home workspace of a user: "user:<name>[:...]".
const homeSegment = "user"

// Lookup follows the path from its first segment, the name of a logical cluster, through the workspaces named by
// the other segments. Segments behind a mount belong to the mount's own server and are dropped.
//
// A path from root is proven: root is on the root shard, what its workspaces are that shard says, and each workspace says
// on which shard its logical cluster was put, which then has the word about the workspaces in it. So what shards say of
// logical clusters that are not theirs leads no path astray. A name alone proves nothing: there the shard is believed that
// was first to say that it has it, as long as it says so.
func (s *Snapshot) Lookup(path logicalcluster.Path) (Route, Verdict) {
	if name, ok := path.Name(); ok {
		if name.IsSystem() || name.IsWildcard() {
			return Route{}, NotFound // whatever is read
		}
		at, _ := s.clusters.get(name)
		return s.route(at)
	}
	first, rest, _ := strings.Cut(path.String(), ":")
	if first == homeSegment {
		user, below, _ := strings.Cut(rest, ":")
		first, rest = logicalcluster.HomeName(user).String(), below
	}
	cluster, err := logicalcluster.ParseName(first)
	if err != nil {
		return Route{}, NotFound
	}
	at, known := s.clusters.get(cluster)
	if !known {
		return Route{}, s.unknown()
	}

	unavailable := false
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, ":")
		head, _ := s.workspaces.get(workspaceKey{cluster, name})
		w := head.saidBy(at)
		if w == nil {
			return Route{}, s.unknownIn(at)
		}
		unavailable = unavailable || w.unavailable
		if w.mount != nil {
			if unavailable {
				return Route{}, Unavailable
			}
			return Route{Mount: *w.mount}, Mounted
		}
		cluster = w.cluster
		if at, _ = s.clusters.get(cluster); w.shard() != "" {
			at = at.of(w.shard())
		}
	}

	route, verdict := s.route(at)
	if verdict == Found && unavailable {
		return Route{}, Unavailable
	}
	return route, verdict
}

// route returns where a logical cluster is, of which a shard says that it has it; nil if none does.
func (s *Snapshot) route(e *clusterEntry) (Route, Verdict) {
	if e == nil {
		return Route{}, s.unknown()
	}
	shard, ok := s.shards[e.owner.name]
	if !ok || shard.Elsewhere || (shard.BaseURL == nil && shard.Err == nil) {
		return Route{}, NotFound
	}
	return Route{Cluster: e.name, Shard: shard, Type: e.kind.Value()}, Found
}

// saidBy returns what the shard of the logical cluster that holds the workspace says about it. Other shards have no say:
// one that is in wrong hands must not lead the paths of others astray.
func (e *workspaceEntry) saidBy(holder *clusterEntry) *workspaceEntry {
	for ; e != nil && holder != nil; e = e.older {
		if e.owner == holder.owner {
			return e
		}
	}
	return nil
}

// unknown is the verdict on a logical cluster that is not indexed. Any shard may have it, those that were not read too.
func (s *Snapshot) unknown() Verdict {
	if s.unread > 0 {
		return Undecided
	}
	return NotFound
}

// unknownIn is the verdict on a workspace that is not indexed, in a logical cluster that is. Its shard alone knows.
func (s *Snapshot) unknownIn(at *clusterEntry) Verdict {
	if at == nil {
		return s.unknown()
	}
	if s.read[at.owner.name]&workspacesRead == 0 {
		return Undecided
	}
	return NotFound
}
