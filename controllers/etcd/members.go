package etcd

import (
	"fmt"
	"slices"
	"strings"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/etcdmember"
)

// Endpoint is the address of a member.
type Endpoint struct{ Name, ClientURL, PeerURL, MetricsURL string }

// Endpoints are those of all members, by ordinal.
func (c Cluster) Endpoints() []Endpoint {
	var out []Endpoint
	for i := range c.members {
		host := c.memberHost(i)
		out = append(out, Endpoint{
			Name: c.memberName(i), ClientURL: fmt.Sprintf("https://%s:%d", host, clientPort),
			PeerURL: fmt.Sprintf("https://%s:%d", host, peerPort), MetricsURL: fmt.Sprintf("http://%s:%d", host, metricsPort),
		})
	}
	return out
}

// MemberFacts are the observed responses of one member.
type MemberFacts struct {
	Serving bool // it responds, and has a leader
	Empty   bool // it waits, because its volume is empty
	// ID, Leader, Size, InUse and Quota are reported by a member that serves. Sizes are in bytes.
	ID                 uint64
	Leader             bool
	Size, InUse, Quota int64
	NoSpace            bool // an alarm rejects writes
}

// Listed is a member in the member list of a quorum.
type Listed struct {
	ID      uint64
	Index   int // its ordinal; -1 if it is none of the pods
	Learner bool
	Started bool // it has served
}

// Facts are a cluster as observed.
type Facts struct {
	Record  etcdmember.Record
	Members []MemberFacts // by ordinal
	// ClusterID and Listed are the response of a quorum of the members; the ID is empty without a quorum.
	ClusterID string
	Listed    []Listed
	// Confirmed is the cluster whose loss the user has confirmed.
	Confirmed string
	// Replaced is the cluster whose data a Restore has replaced by that of a backup, in all volumes.
	Replaced string
}

// Action is one change of a cluster.
type Action int

// The actions. A reconcile executes one of them; the next one decides with the facts observed at that time.
const (
	None    Action = iota
	Record         // the bootstrap
	Forget         // the recorded bootstrap, so that the empty members bootstrap again
	Remove         // the member ID
	Add            // the member of the ordinal Index, as a learner
	Promote        // the learner ID
)

// Decision is the next action on a cluster, and the results to report.
type Decision struct {
	Action Action
	ID     uint64
	Index  int
	// Available overrides the result about the quorum, unless it has no type. Healthy is the result about the members.
	Available, Healthy status.Result
}

// ChangesMembers reports whether the action is one on the members of the cluster.
func (d Decision) ChangesMembers() bool {
	return d.Action == Remove || d.Action == Add || d.Action == Promote
}

// MayDefragment reports whether all members serve, so that one at a time may stop responding.
func (c Cluster) MayDefragment(f Facts, d Decision) bool {
	return d.Action == None && f.Record.ClusterID != "" && c.allServe(f)
}

// IsRepairing reports whether a member has lost its volume or is being replaced, so that no other may be missing.
func (d Decision) IsRepairing() bool {
	return d.Healthy.Reason == reasonMemberLost || d.Healthy.Reason == reasonReplacing
}

const (
	reasonMemberLost = "MemberLost"
	reasonReplacing  = "ReplacingMember"
)

// unrecorded replaces the ID of a cluster that was never recorded, in confirmations.
const unrecorded = "unrecorded"

// Decide decides how to repair a cluster. It replaces a member only while all others serve, so never two at once, and never without a
// quorum: repairing a lost quorum requires a decision of the user about the data.
func (c Cluster) Decide(f Facts) Decision {
	if f.ClusterID == "" {
		return c.decideWithoutQuorum(f)
	}
	if recorded := f.Record.ClusterID; recorded != "" && recorded != f.ClusterID {
		switch recorded {
		case f.Confirmed:
			return Decision{Action: Forget, Healthy: c.healthy(f)}
		case f.Replaced: // a quorum has the data, so that no member may begin without it
			return Decision{Action: Record, Healthy: c.healthy(f)}
		}
		return c.stall("EtcdForeignCluster", "the members are those of cluster %s, and the data of this object is in cluster %s: restore its volumes; or set the annotation %s=%s to continue with what the members have, and what is in the other cluster is lost",
			f.ClusterID, recorded, operatorv1alpha1.AnnotationEtcdDataLost, recorded)
	}
	if decision, ok := c.decideLearner(f); ok {
		return decision
	}
	if decision, ok := c.decideLost(f); ok {
		return decision
	}
	decision := Decision{Healthy: c.healthy(f)}
	if f.Record.ClusterID == "" {
		if c.allServe(f) {
			decision.Action = Record
		} else {
			decision.Available = c.bootstrapping(f)
		}
	}
	return decision
}

// decideWithoutQuorum reports on a cluster without a quorum. Members that are down may return, empty ones do not.
func (c Cluster) decideWithoutQuorum(f Facts) Decision {
	if f.Record.ClusterID == "" && f.Record.Token != "" {
		return Decision{Available: c.bootstrapping(f)}
	}
	id := f.Record.ClusterID
	if id == "" {
		id = unrecorded
	}
	empty := c.names(f, func(_ int, m MemberFacts) bool { return m.Empty })
	intact := int(c.members) - len(empty)
	switch {
	case intact == 0 && (f.Confirmed == id || c.storage.EmptyDir != nil):
		return Decision{Action: Forget}
	case intact == 0:
		return c.stall("EtcdDataLost", "the volume of every member (%s) is empty, and cluster %s had data there: it is gone unless there is a backup. Restore it (docs/operator-etcd.md, \"Repair etcd\"); or set the annotation %s=%s to begin with nothing",
			strings.Join(empty, ", "), id, operatorv1alpha1.AnnotationEtcdDataLost, id)
	case intact < int(c.Quorum()):
		return c.stall("EtcdQuorumLost", "the volumes of %s are empty, so %d of %d members have data and %d are needed. The operator changes nothing, because what they have may not be the newest: restore a backup, or start again from the member that is left (docs/operator-etcd.md, \"Repair etcd\")",
			strings.Join(empty, " and "), intact, c.members, c.Quorum())
	}
	return Decision{}
}

// decideLearner continues the replacement of a member that is already a learner.
func (c Cluster) decideLearner(f Facts) (Decision, bool) {
	at := slices.IndexFunc(f.Listed, func(m Listed) bool { return m.Learner && m.Index >= 0 })
	if at < 0 {
		return Decision{}, false
	}
	learner := f.Listed[at]
	member, name := f.Members[learner.Index], c.memberName(int32(learner.Index))
	switch {
	case learner.Started && member.Empty: // it has lost its volume again
		return Decision{Action: Remove, ID: learner.ID, Index: learner.Index, Healthy: c.replacing(name, "it lost its volume again while it was being filled, and is removed")}, true
	case learner.Started && member.Serving && member.ID == learner.ID:
		return Decision{Action: Promote, ID: learner.ID, Index: learner.Index, Healthy: c.replacing(name, "step 3 of 3, it is promoted as soon as it has caught up")}, true
	}
	return Decision{Healthy: c.replacing(name, "step 2 of 3, it is added as a learner and starts")}, true
}

// decideLost replaces a member that has lost its volume: it removes the member and, when the member is not listed any more, adds it.
func (c Cluster) decideLost(f Facts) (Decision, bool) {
	for i, member := range f.Members {
		if !member.Empty {
			continue
		}
		name := c.memberName(int32(i))
		at := slices.IndexFunc(f.Listed, func(m Listed) bool { return m.Index == i })
		if at >= 0 && !f.Listed[at].Started {
			continue // it has not started yet, and starts without a repair
		}
		if down := c.names(f, func(at int, m MemberFacts) bool { return at != i && !m.Serving }); len(down) > 0 {
			return Decision{Healthy: status.Warn(operatorv1alpha1.ConditionEtcdHealthy, reasonMemberLost,
				"the volume of member %s is empty. It is replaced once all others serve, because the quorum would be lost otherwise: see `kubectl -n %s describe pods %s`",
				name, c.owner.Namespace, strings.Join(down, " "))}, true
		}
		if at < 0 {
			return Decision{Action: Add, Index: i, Healthy: c.replacing(name, "step 2 of 3, it is added as a learner")}, true
		}
		return Decision{Action: Remove, ID: f.Listed[at].ID, Index: i, Healthy: c.replacing(name, "step 1 of 3, it is removed from the cluster")}, true
	}
	return Decision{}, false
}

// healthy reports on the members of a cluster that needs no repair.
func (c Cluster) healthy(f Facts) status.Result {
	const condition = operatorv1alpha1.ConditionEtcdHealthy
	if f.ClusterID == "" {
		return status.Result{}
	}
	if down := c.names(f, func(_ int, m MemberFacts) bool { return !m.Serving }); len(down) > 0 {
		return status.Warn(condition, "MemberUnavailable", "member %s does not serve: see `kubectl -n %s describe pods %s`. One whose claim and data are damaged is replaced after both are deleted: `kubectl -n %s delete pvc/%s-%s pod/%s`",
			strings.Join(down, " and "), c.owner.Namespace, strings.Join(down, " "), c.owner.Namespace, dataVolume, down[0], down[0])
	}
	if strangers := slices.IndexFunc(f.Listed, func(m Listed) bool { return m.Index < 0 }); strangers >= 0 {
		return status.Warn(condition, "UnknownMember", "member %x is none of the pods of this etcd: remove it with `etcdctl member remove %x`", f.Listed[strangers].ID, f.Listed[strangers].ID)
	}
	if full := c.names(f, func(_ int, m MemberFacts) bool { return m.NoSpace }); len(full) > 0 {
		return status.Warn(condition, "NoSpace", "etcd rejects writes, because the database has reached its quota: delete objects, then set the annotation %s to a new value, and the operator compacts and defragments the members and clears the alarm",
			operatorv1alpha1.AnnotationDefragmentEtcd)
	}
	return status.OK(condition, "MembersServe", "all %d members serve", c.members)
}

func (c Cluster) bootstrapping(f Facts) status.Result {
	return status.Wait(operatorv1alpha1.ConditionEtcdAvailable, "Bootstrapping",
		"%d of %d members serve, and the first start waits for all; see `kubectl -n %s describe pods -l app.kubernetes.io/component=etcd,app.kubernetes.io/instance=%s`",
		c.countServing(f), c.members, c.owner.Namespace, c.owner.Name)
}

func (c Cluster) replacing(name, step string) status.Result {
	return status.Warn(operatorv1alpha1.ConditionEtcdHealthy, reasonReplacing, "the volume of member %s was lost, and the member is being replaced while the others serve: %s", name, step)
}

func (c Cluster) stall(reason, format string, args ...any) Decision {
	available := status.Stall(operatorv1alpha1.ConditionEtcdAvailable, reason, format, args...)
	return Decision{Available: available, Healthy: status.Warn(operatorv1alpha1.ConditionEtcdHealthy, reason, "see condition %s", operatorv1alpha1.ConditionEtcdAvailable)}
}

// allServe reports whether every member serves, is listed as a voter, and has served.
func (c Cluster) allServe(f Facts) bool {
	voters := 0
	for _, listed := range f.Listed {
		if listed.Index >= 0 && listed.Started && !listed.Learner && f.Members[listed.Index].Serving {
			voters++
		}
	}
	return voters == int(c.members) && len(f.Listed) == voters
}

func (c Cluster) countServing(f Facts) int {
	return int(c.members) - len(c.names(f, func(_ int, m MemberFacts) bool { return !m.Serving }))
}

// names returns the names of the members for which a condition holds.
func (c Cluster) names(f Facts, holds func(int, MemberFacts) bool) []string {
	var out []string
	for i, member := range f.Members {
		if holds(i, member) {
			out = append(out, c.memberName(int32(i)))
		}
	}
	return out
}

// NewRecord returns the record of a cluster that is bootstrapped for the first time, or again after the loss of a previous one: the token
// makes it a different cluster.
func (c Cluster) NewRecord(former string) etcdmember.Record {
	token := c.owner.Namespace + "/" + c.Name()
	for _, reference := range c.owner.References {
		token += "/" + string(reference.UID)
	}
	if former != "" {
		token += "/" + former
	}
	return etcdmember.Record{Token: token}
}
