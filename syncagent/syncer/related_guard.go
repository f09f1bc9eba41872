package syncer

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/related"
)

// GuardedError means that a primary object leads to an object that a consumer must neither read nor write. Locators may depend on fields
// that consumers write, and the agent has more permissions on the service cluster than any consumer.
type GuardedError struct {
	Object string
	Reason string
}

func (e *GuardedError) Error() string { return fmt.Sprintf("%s is not synced: %s", e.Object, e.Reason) }

// guardedTypes are the types of Secrets that the cluster itself interprets: access to them grants permissions in that cluster.
var guardedTypes = []string{string(corev1.SecretTypeServiceAccountToken), string(corev1.SecretTypeBootstrapToken)}

// guardOrigin refuses origins in reserved namespaces of the service cluster, in which consumers have no objects, unless the owner has
// chosen them.
func (p *pass) guardOrigin(resource *RelatedResource, pair related.Pair) error {
	if resource.Spec.Origin != syncagentv1alpha1.RelatedResourceOriginService || !p.isReserved(pair.Origin.Namespace) ||
		related.OwnerChoosesNamespace(resource.Spec, p.spec().Naming, p.request.Cluster.String(), pair.Origin.Namespace) {
		return nil
	}
	return &GuardedError{p.service().describe(resource.Origin, pair.Origin), reservedReason}
}

// guardPrimary refuses the same namespaces for copies of primary objects.
func (p *pass) guardPrimary(key types.NamespacedName) error {
	if !p.isReserved(key.Namespace) || related.OwnerChoosesPrimary(p.spec().Naming, p.request.Cluster.String(), key) {
		return nil
	}
	return &GuardedError{p.service().describe(p.config.ServiceResource, key), reservedReason}
}

const reservedReason = "the namespace belongs to the cluster or to the agent"

// isReserved reports whether a namespace belongs to the service cluster or to the agent.
func (p *pass) isReserved(namespace string) bool {
	return namespace != "" && namespace == p.config.Namespace || strings.HasPrefix(namespace, "kube-")
}

// guard refuses related objects because of the location of their copies, their owners, or the types of Secrets. copied is the existing
// copy, or nil.
func (p *pass) guard(r relation, copied *unstructured.Unstructured, content map[string]any) error {
	if err := p.confine(r); err != nil {
		return err
	}
	from, to := p.sides(r.Side)
	onService := r.origin
	if r.Side == syncagentv1alpha1.RelatedResourceOriginKcp {
		onService = copied
	}
	reason := p.foreignReason(onService, r.Side)
	secretTypes := []any{content["type"]}
	for _, object := range []*unstructured.Unstructured{r.origin, copied} {
		if object != nil {
			secretTypes = append(secretTypes, object.Object["type"])
		}
	}
	if isSecret := func(resource workspaces.Resource) bool { return resource.GroupKind() == secretKind }; isSecret(r.resource.Origin) || isSecret(r.resource.Copy) {
		for _, t := range secretTypes {
			if name, _ := t.(string); slices.Contains(guardedTypes, name) {
				reason = "Secrets of type " + name + " stay where they are"
			}
		}
	}
	switch {
	case reason == "":
		return nil
	case r.Side == syncagentv1alpha1.RelatedResourceOriginKcp:
		return &GuardedError{to.describe(r.resource.Copy, keyOf(r.Copy)), reason}
	}
	return &GuardedError{from.describe(r.resource.Origin, keyOf(r.Origin)), reason}
}

// foreignReason returns why an object on the service cluster belongs to another owner, or an empty string if its metadata names none. It
// refuses a copy of a related object only as an origin: mayWrite decides by its owners whether a copy may be overwritten.
func (p *pass) foreignReason(object *unstructured.Unstructured, origin syncagentv1alpha1.RelatedResourceOrigin) string {
	if object == nil {
		return ""
	}
	labels := object.GetLabels()
	cluster, namespaceHash := labels[publication.LabelRemoteCluster], labels[publication.LabelRemoteNamespaceHash]
	own := p.request.Source().Labels()
	switch {
	case labels[publication.LabelObjectState] != "":
		return "it is the state of an agent"
	case cluster != "" && (cluster != own[publication.LabelRemoteCluster] || namespaceHash != own[publication.LabelRemoteNamespaceHash]):
		return "it is the copy of an object of another namespace or logical cluster"
	case origin == syncagentv1alpha1.RelatedResourceOriginService && p.isCopyForOthers(object):
		return "it is a copy that has been made for another object"
	}
	return ""
}

// isCopyForOthers reports whether an object is the copy of a related object of other primary objects only.
func (p *pass) isCopyForOthers(object metav1.Object) bool {
	owners := ownersOf(object, p.ownerKey(), "")
	return owners.foreign && !owners.own
}
