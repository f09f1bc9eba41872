package syncer

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/state"
)

// ownerKeyPrefix is the prefix of annotations of copies of related objects. A copy has one annotation for each primary object that uses
// it: the key contains a hash of the agent and the primary object, the value is a hash of the origin. The copy is deleted with the last
// of them. The labels of a copy are exactly those of its origin. Agents that do not support the annotations write labels with the same
// keys and meaning; this agent replaces its own label by the annotation.
const ownerKeyPrefix = "related." + publication.Prefix

// relatedFinalizerInfix separates the name of an agent from a hash of a primary object in finalizers of related objects.
const relatedFinalizerInfix = ".syncagent.kcp.io/cleanup-"

// ownerHash identifies the agent and the primary object. It reveals neither of them.
func (re *reconciliation) ownerHash() string {
	return ownerHash(re.config.AgentName, re.config.WorkspaceResource, re.request.Source())
}

func ownerHash(agentName string, resource workspaces.Resource, source Source) string {
	return expression.ShortHash(strings.Join([]string{
		agentName, source.Cluster.String(), resource.Group, resource.Kind, source.Namespace, source.Name,
	}, "/"))
}

// IsRelatedFinalizer reports whether an agent has set a finalizer on a related object, for any primary object.
func IsRelatedFinalizer(agentName, finalizer string) bool {
	return strings.HasPrefix(finalizer, agentName+relatedFinalizerInfix)
}

// RelatedFinalizer returns the finalizer that an agent sets for a primary object of a resource.
func RelatedFinalizer(agentName string, resource workspaces.Resource, source Source) string {
	return agentName + relatedFinalizerInfix + ownerHash(agentName, resource, source)
}

func (re *reconciliation) ownerKey() string { return ownerKeyPrefix + re.ownerHash() }

// relatedFinalizer is the finalizer of the agent and the primary object on origins in workspaces. Agents and primary objects that share
// an origin remove only their own finalizer.
func (re *reconciliation) relatedFinalizer() string {
	return RelatedFinalizer(re.config.AgentName, re.config.WorkspaceResource, re.request.Source())
}

// originHash identifies an origin. The hash of an origin in a workspace includes its UID, because logical clusters of two installations
// may have the same name. Such an origin cannot be created again before all finalizers are removed, and the copies with their annotations
// are deleted before that. An origin on the service cluster can be created again at any time, so its hash does not include the UID.
func (re *reconciliation) originHash(r relation) string {
	cluster, uid := "", ""
	if r.Side == syncagentv1alpha1.RelatedResourceOriginKcp {
		cluster, uid = re.request.Cluster.String(), string(r.origin.GetUID())
	}
	origin := r.Origin
	return expression.SHA1Hex(strings.Join([]string{cluster, uid, origin.Group, origin.Resource, origin.Namespace, origin.Name}, "/"))
}

// WithoutRelatedFinalizers removes finalizers of related objects. With the last of them it also removes the contract's finalizer, which
// agents that use one finalizer for all related objects depend on. It does not remove that from an object that may itself be primary,
// because it is the finalizer of primary objects.
func WithoutRelatedFinalizers(finalizers []string, remove func(finalizer string) bool, maybePrimary bool) []string {
	remaining := slices.DeleteFunc(slices.Clone(finalizers), remove)
	others := slices.ContainsFunc(remaining, func(f string) bool { return strings.Contains(f, relatedFinalizerInfix) })
	if others || maybePrimary {
		return remaining
	}
	return slices.DeleteFunc(remaining, isContractFinalizer)
}

func isContractFinalizer(finalizer string) bool { return finalizer == publication.Finalizer }

// withRelatedFinalizers returns the finalizers of an origin that has a copy: the agent's own, which no other agent removes, and the
// contract's, unless the object may itself be primary. If api-syncagent has set the contract's finalizer on such an object, the agent's
// own replaces it; an agent for which the object is primary adds the contract's again.
func withRelatedFinalizers(finalizers []string, own string, maybePrimary, previous bool) []string {
	wanted := slices.Clone(finalizers)
	if !slices.Contains(finalizers, own) {
		if maybePrimary && previous {
			wanted = slices.DeleteFunc(wanted, isContractFinalizer)
		}
		wanted = append(wanted, own)
	}
	if !maybePrimary && !slices.Contains(wanted, publication.Finalizer) {
		wanted = append(wanted, publication.Finalizer)
	}
	return wanted
}

// copyOwners are the owners that the metadata of an existing object names: the primary objects that use it as a copy.
type copyOwners struct {
	// own means that the primary object of this reconciliation is an owner, shared that others with the same origin are.
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

// mayWrite reports whether the agent may overwrite an existing object. recorded means that the state contains it. The agent does not take
// over an object only because its content is the same: it would delete the object later.
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

// presence is whether an origin exists, as observed by a reconciliation.
type presence int

const (
	originLive presence = iota
	originTerminating
	originMissing
)

// relatedAction is the action of a reconciliation on a related object.
type relatedAction int

const (
	// actionKeep changes neither the origin nor the copy.
	actionKeep relatedAction = iota
	// actionSync updates the copy.
	actionSync
	// actionCleanUp deletes the copy and removes the finalizer of the origin.
	actionCleanUp
)

// actionFor returns the action on a related object of a primary object that is not being deleted. referenced means that the primary
// object still references it.
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

// cleansUpWithPrimary reports whether the copy of a related object is deleted with its primary object.
func cleansUpWithPrimary(entry state.Related) bool {
	return entry.Side == syncagentv1alpha1.RelatedResourceOriginKcp ||
		entry.Policy == syncagentv1alpha1.CleanupOnPrimaryDeletion || entry.Policy == syncagentv1alpha1.CleanupMatchOrigin
}
