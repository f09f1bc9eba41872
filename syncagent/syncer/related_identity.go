package syncer

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/endpoints"
	"github.com/atoll-dev/atoll/internal/expression"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/state"
)

// ownerKeyPrefix is the prefix of annotations of copies of related objects. There is one per primary object that a copy is made for: the
// key is a hash of agent and primary object, the value one of the origin. A copy is deleted with the last of them. The labels of a copy are exactly
// those of its origin. A label with such a key, as agents without the annotations write them, means the same, and is replaced.
const ownerKeyPrefix = "related." + publication.Prefix

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

func (p *pass) ownerKey() string { return ownerKeyPrefix + p.ownerHash() }

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

// WithoutRelatedFinalizers removes finalizers of related objects, and with the last of its kind the contract's, which agents that have one for
// all related objects depend on. An object that may be primary itself keeps that: it is the finalizer of primary objects.
func WithoutRelatedFinalizers(finalizers []string, remove func(finalizer string) bool, maybePrimary bool) []string {
	remaining := slices.DeleteFunc(slices.Clone(finalizers), remove)
	others := slices.ContainsFunc(remaining, func(f string) bool { return strings.Contains(f, relatedFinalizerInfix) })
	if others || maybePrimary {
		return remaining
	}
	return slices.DeleteFunc(remaining, isContractFinalizer)
}

func isContractFinalizer(finalizer string) bool { return finalizer == publication.Finalizer }

// withRelatedFinalizers returns the finalizers of an origin that has a copy: the own one, which nobody else removes, and the contract's, unless
// the object may be primary itself. If api-syncagent has put it on such an object, the own one replaces it: an agent that has the object as a primary
// one adds it again.
func withRelatedFinalizers(finalizers []string, own string, maybePrimary, former bool) []string {
	wanted := slices.Clone(finalizers)
	if !slices.Contains(finalizers, own) {
		if maybePrimary && former {
			wanted = slices.DeleteFunc(wanted, isContractFinalizer)
		}
		wanted = append(wanted, own)
	}
	if !maybePrimary && !slices.Contains(wanted, publication.Finalizer) {
		wanted = append(wanted, publication.Finalizer)
	}
	return wanted
}

// copyOwners is what the metadata of an existing object says about the primary objects that it is a copy for.
type copyOwners struct {
	// own means that the primary object of this pass is one of them, shared that others are, with the same origin.
	own, shared bool
	// foreign means that it is a copy of another origin.
	foreign bool
}

// ownersIn returns the owners that annotations or labels name.
func ownersIn(values map[string]string) map[string]string {
	owners := map[string]string{}
	for key, value := range values {
		if strings.HasPrefix(key, ownerKeyPrefix) {
			owners[key] = value
		}
	}
	return owners
}

func ownersOf(copied metav1.Object, ownerKey, originHash string) copyOwners {
	var owners copyOwners
	for key, value := range merged(ownersIn(copied.GetLabels()), ownersIn(copied.GetAnnotations())) {
		switch {
		case key == ownerKey:
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
