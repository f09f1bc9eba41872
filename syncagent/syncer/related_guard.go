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

// guardNamespace refuses namespaces of the service cluster that no consumer has anything in, unless the owner has chosen them.
func (p *pass) guardNamespace(resource *RelatedResource, pair related.Pair) error {
	key := pair.Copy
	if resource.Spec.Origin == syncagentv1alpha1.RelatedResourceOriginService {
		key = pair.Origin
	}
	return p.guardKey(serviceSide(resource), key, resource.Spec)
}

// guardKey refuses the key of an object on the service cluster; entry says what leads there, the naming of primary objects if it is empty.
func (p *pass) guardKey(resource endpoints.Resource, key types.NamespacedName, entry syncagentv1alpha1.RelatedResourceSpec) error {
	guarded := key.Namespace != "" && key.Namespace == p.config.Namespace || strings.HasPrefix(key.Namespace, "kube-")
	if !guarded || related.OwnerChoosesNamespace(entry, p.spec().Naming, p.request.Cluster.String(), key.Namespace) {
		return nil
	}
	return &GuardedError{p.service().describe(resource, key), "the namespace belongs to the cluster or to the agent"}
}

func serviceSide(resource *RelatedResource) endpoints.Resource {
	if resource.Spec.Origin == syncagentv1alpha1.RelatedResourceOriginService {
		return resource.Origin
	}
	return resource.Copy
}

// guard refuses related objects by what they are. copied is the existing copy, or nil.
func (p *pass) guard(r relation, copied *unstructured.Unstructured, content map[string]any) error {
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
	owners := ownersOf(object.GetLabels(), p.ownerLabel(), "")
	return owners.foreign && !owners.own
}
