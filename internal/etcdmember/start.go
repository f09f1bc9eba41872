package etcdmember

import (
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Start is how etcd starts on an empty volume. The zero Start keeps its arguments.
type Start struct {
	// Existing starts with --initial-cluster-state=existing, and Cluster as --initial-cluster.
	Existing bool
	Cluster  string
	// Token is the --initial-cluster-token of a bootstrap; if it is empty, the token of the arguments applies.
	Token string
}

// decideStart decides how a member with an empty volume starts. listed is the member list of a quorum, or nil if no quorum responds. The
// reason is why it must not start yet, or empty.
//
// A member that has been part of a cluster has acknowledged entries. If it started again with the same identity but without them, its vote
// could elect a leader that lacks acknowledged entries: it is never started again with that identity.
func decideStart(record Record, name, peerURL string, listed []*etcdserverpb.Member) (start Start, reason string) {
	if listed == nil {
		if record.ClusterID != "" {
			return Start{}, "the volume of this member is empty, cluster " + record.ClusterID + " was bootstrapped before, and no quorum of its members answers: it starts once the operator has replaced it"
		}
		if record.Token == "" {
			return Start{}, "the volume of this member is empty, and the cluster was started by an older version: it starts once the operator has recorded the cluster and replaced this member"
		}
		return Start{Token: record.Token}, ""
	}
	at := slices.IndexFunc(listed, func(m *etcdserverpb.Member) bool { return slices.Contains(m.PeerURLs, peerURL) })
	switch {
	case at < 0:
		return Start{}, "the volume of this member is empty, and the cluster does not list it: it starts once the operator has added it"
	case isStarted(listed[at]):
		return Start{}, fmt.Sprintf("the volume of this member is empty, and it was member %x: it starts once the operator has replaced it", listed[at].ID)
	case record.ClusterID == "" && listed[at].Name != "":
		return Start{Token: record.Token}, "" // other members of this bootstrap have started first
	}
	return Start{Existing: true, Cluster: initialCluster(name, peerURL, listed)}, ""
}

// isStarted reports whether a member has ever served, because it then publishes its client URLs.
func isStarted(member *etcdserverpb.Member) bool { return len(member.ClientURLs) > 0 }

// initialCluster returns the list of members in the form of a flag, with the name of this one. A member that has not started yet has no
// name in the list; etcd needs one, but accepts any.
func initialCluster(name, peerURL string, members []*etcdserverpb.Member) string {
	var out []string
	for _, member := range members {
		label := member.Name
		switch {
		case slices.Contains(member.PeerURLs, peerURL):
			label = name
		case label == "":
			label = fmt.Sprintf("%x", member.ID)
		}
		for _, peer := range member.PeerURLs {
			out = append(out, label+"="+peer)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}
