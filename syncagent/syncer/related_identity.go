package syncer

import (
	"slices"
	"strings"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/endpoints"
	"github.com/atoll-dev/atoll/internal/expression"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/state"
)

// ownerLabelPrefix is the prefix of the labels of copies of related objects. There is one per primary object that a copy is made for: the
// key is a hash of agent and primary object, the value one of the origin. A copy is deleted with the last of them.
const ownerLabelPrefix = "related." + publication.Prefix

// relatedFinalizerInfix is between the name of an agent and a hash of a primary object in finalizers of related objects.
const relatedFinalizerInfix = ".syncagent.kcp.io/cleanup-"

// ownerHash identifies the agent and the primary object. It tells nothing to those who do not know both.
func (p *pass) ownerHash() string {
	return ownerHash(p.config.AgentName, p.config.WorkspaceResource, p.request.Source())
}

func ownerHash(agentName string, resource endpoints.Resource, source Source) string {
	return expression.ShortHash(strings.Join([]string{
		agentName, source.Cluster.String(), resource.Group, resource.Kind, source.Namespace, source.Name,
	}, "/"))
}

// IsRelatedFinalizer reports whether an agent has set a finalizer for some primary object, on a related one.
func IsRelatedFinalizer(agentName, finalizer string) bool {
	return strings.HasPrefix(finalizer, agentName+relatedFinalizerInfix)
}

// RelatedFinalizer returns the finalizer that an agent sets for a primary object of a resource.
func RelatedFinalizer(agentName string, resource endpoints.Resource, source Source) string {
	return agentName + relatedFinalizerInfix + ownerHash(agentName, resource, source)
}

func (p *pass) ownerLabel() string { return ownerLabelPrefix + p.ownerHash() }

// relatedFinalizer is the finalizer of the agent and the primary object on origins in workspaces. Agents and primary objects that share one
// remove only their own.
func (p *pass) relatedFinalizer() string {
	return RelatedFinalizer(p.config.AgentName, p.config.WorkspaceResource, p.request.Source())
}

// originHash identifies an origin. One in a workspace is identified by its UID, too: logical clusters of two installations may have one name.
// It is not created anew before all finalizers, and with them the labels, are gone. One on the service cluster may be.
func (p *pass) originHash(r relation) string {
	cluster, uid := "", ""
	if r.Side == syncagentv1alpha1.RelatedResourceOriginKcp {
		cluster, uid = p.request.Cluster.String(), string(r.origin.GetUID())
	}
	origin := r.Origin
	return expression.SHA1Hex(strings.Join([]string{cluster, uid, origin.Group, origin.Resource, origin.Namespace, origin.Name}, "/"))
}

// withoutRelatedFinalizer removes a finalizer, and with the last of its kind the one that older agents have left. An object that may be
// primary itself keeps that: it is the finalizer of primary objects.
func withoutRelatedFinalizer(finalizers []string, own string, maybePrimary bool) []string {
	remaining := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == own })
	others := slices.ContainsFunc(remaining, func(f string) bool { return strings.Contains(f, relatedFinalizerInfix) })
	if others || maybePrimary {
		return remaining
	}
	return slices.DeleteFunc(remaining, func(f string) bool { return f == publication.Finalizer })
}

// copyOwners is what the labels of an existing object say about the primary objects that it is a copy for.
type copyOwners struct {
	// own means that the primary object of this pass is one of them, shared that others are, with the same origin.
	own, shared bool
	// foreign means that it is a copy of another origin.
	foreign bool
}

func ownersOf(labels map[string]string, ownerLabel, originHash string) copyOwners {
	var owners copyOwners
	for key, value := range labels {
		switch {
		case !strings.HasPrefix(key, ownerLabelPrefix):
		case key == ownerLabel:
			owners.own = true
		case value == originHash:
			owners.shared = true
		default:
			owners.foreign = true
		}
	}
	return owners
}

// mayWrite reports whether an existing object may be overwritten. recorded means that the state knows it. One that has
// the same content by chance is not taken over: it would be deleted later.
func (o copyOwners) mayWrite(recorded bool) bool {
	return !o.foreign && (o.own || o.shared || recorded)
}

// cleanupPolicy returns when copies in workspaces are deleted.
func cleanupPolicy(spec syncagentv1alpha1.RelatedResourceSpec) syncagentv1alpha1.RelatedResourceCleanupPolicy {
	switch {
	case spec.CleanupPolicy != "":
		return spec.CleanupPolicy
	case spec.Cleanup:
		return syncagentv1alpha1.CleanupOnPrimaryDeletion
	}
	return syncagentv1alpha1.CleanupOrphan
}

// presence is what a pass has found of an origin.
type presence int

const (
	originLive presence = iota
	originTerminating
	originMissing
)

// relatedAction is what a pass does about a related object.
type relatedAction int

const (
	// actionKeep leaves origin and copy as they are.
	actionKeep relatedAction = iota
	// actionSync brings the copy up to date.
	actionSync
	// actionCleanUp deletes the copy and releases the origin.
	actionCleanUp
)

// actionFor decides about a related object of a live primary object. referenced means that the primary object still refers to it.
func actionFor(entry state.Related, referenced bool, origin presence) relatedAction {
	switch {
	case referenced && origin == originLive:
		return actionSync
	case entry.Side == syncagentv1alpha1.RelatedResourceOriginKcp:
		return actionCleanUp
	case entry.Policy == syncagentv1alpha1.CleanupMatchOrigin && origin != originLive:
		return actionCleanUp
	}
	return actionKeep
}

// cleansUpWithPrimary decides about a related object whose primary object is being deleted.
func cleansUpWithPrimary(entry state.Related) bool {
	return entry.Side == syncagentv1alpha1.RelatedResourceOriginKcp ||
		entry.Policy == syncagentv1alpha1.CleanupOnPrimaryDeletion || entry.Policy == syncagentv1alpha1.CleanupMatchOrigin
}
