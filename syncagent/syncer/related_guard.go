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
	"github.com/atoll-dev/atoll/internal/endpoints"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/related"
)

// GuardedError means that a primary object leads to an object that a consumer must neither read nor write. Locators may depend on what
// consumers write, and the agent may access more of the service cluster than any of them.
type GuardedError struct {
	Object string
	Reason string
}

func (e *GuardedError) Error() string { return fmt.Sprintf("%s is not synced: %s", e.Object, e.Reason) }

// guardedTypes are the types of Secrets that a cluster itself gives a meaning to: who may read or write them has rights in that cluster.
var guardedTypes = []string{string(corev1.SecretTypeServiceAccountToken), string(corev1.SecretTypeBootstrapToken)}

// guardOrigin refuses originals in namespaces of the service cluster that no consumer has anything in, unless the owner has chosen them.
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

// guard refuses related objects by where they are written, and by what they are. copied is the existing copy, or nil.
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
	if isSecret := func(resource endpoints.Resource) bool { return resource.GroupKind() == secretKind }; isSecret(r.resource.Origin) || isSecret(r.resource.Copy) {
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

// foreignReason returns why an object on the service cluster is somebody else's, empty if nothing says so. A copy of a related object is
// refused as an origin only: whether a copy may be overwritten depends on its owners.
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

// isCopyForOthers reports whether an object is the copy of a related object of other primary objects alone.
func (p *pass) isCopyForOthers(object metav1.Object) bool {
	owners := ownersOf(object, p.ownerKey(), "")
	return owners.foreign && !owners.own
}
