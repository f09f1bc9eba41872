package syncer

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
func (re *reconciliation) guardOrigin(resource *RelatedResource, pair related.Pair) error {
	if resource.Spec.Origin != syncagentv1alpha1.RelatedResourceOriginService || !re.isReserved(pair.Origin.Namespace) ||
		related.OwnerChoosesNamespace(resource.Spec, re.spec().Naming, re.request.Cluster.String(), pair.Origin.Namespace) {
		return nil
	}
	return &GuardedError{re.service().describe(resource.Origin, pair.Origin), reservedReason}
}

// guardPrimary refuses the same namespaces for copies of primary objects.
func (re *reconciliation) guardPrimary(key types.NamespacedName) error {
	if !re.isReserved(key.Namespace) || related.OwnerChoosesPrimary(re.spec().Naming, re.request.Cluster.String(), key) {
		return nil
	}
	return &GuardedError{re.service().describe(re.config.ServiceResource, key), reservedReason}
}

const reservedReason = "the namespace belongs to the cluster or to the agent"

// isReserved reports whether a namespace belongs to the service cluster or to the agent.
func (re *reconciliation) isReserved(namespace string) bool {
	return namespace != "" && namespace == re.config.Namespace || strings.HasPrefix(namespace, "kube-")
}

// guard refuses related objects because of the location of their copies, their owners, or the types of Secrets. copied is the existing
// copy, or nil.
func (re *reconciliation) guard(r relation, copied *unstructured.Unstructured, content map[string]any) error {
	if err := re.confine(r); err != nil {
		return err
	}
	from, to := re.sides(r.Side)
	onService := r.origin
	if r.Side == syncagentv1alpha1.RelatedResourceOriginKcp {
		onService = copied
	}
	reason := re.foreignReason(onService, r.Side)
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
func (re *reconciliation) foreignReason(object *unstructured.Unstructured, origin syncagentv1alpha1.RelatedResourceOrigin) string {
	if object == nil {
		return ""
	}
	labels := object.GetLabels()
	cluster, namespaceHash := labels[publication.LabelRemoteCluster], labels[publication.LabelRemoteNamespaceHash]
	own := re.request.Source().Labels()
	switch {
	case labels[publication.LabelObjectState] != "":
		return "it is the state of an agent"
	case cluster != "" && (cluster != own[publication.LabelRemoteCluster] || namespaceHash != own[publication.LabelRemoteNamespaceHash]):
		return "it is the copy of an object of another namespace or logical cluster"
	case origin == syncagentv1alpha1.RelatedResourceOriginService && re.isCopyForOthers(object):
		return "it is a copy that has been made for another object"
	}
	return ""
}

// isCopyForOthers reports whether an object is the copy of a related object of other primary objects only.
func (re *reconciliation) isCopyForOthers(object metav1.Object) bool {
	owners := ownersOf(object, re.ownerKey(), "")
	return owners.foreign && !owners.own
}

// confine refuses to write a related object of a workspace to a namespace of the service cluster other than the one of the primary
// object's copy, unless the owner has chosen or allowed that namespace, because the agent has more permissions than any consumer. For
// cluster-scoped objects it checks the name. It checks the result of the locator, independent of how the locator computed it.
func (re *reconciliation) confine(r relation) error {
	if r.Side != syncagentv1alpha1.RelatedResourceOriginKcp {
		return nil
	}
	key, cluster, to := keyOf(r.Copy), re.request.Cluster.String(), re.service()
	if !r.resource.Copy.Namespaced {
		if related.OwnerChoosesCopyName(r.resource.Spec, cluster, key.Name) || re.allowsKey(key) {
			return nil
		}
		return &GuardedError{to.describe(r.resource.Copy, key), notAllowed(publication.AnnotationAllowedClusterScopedNames, key.Name)}
	}
	if key.Namespace == re.home || related.OwnerChoosesNamespace(r.resource.Spec, re.spec().Naming, cluster, key.Namespace) || re.allowsKey(key) {
		return nil
	}
	return &GuardedError{to.describe(r.resource.Copy, key), notAllowed(publication.AnnotationAllowedNamespaces, key.Namespace)}
}

// confineAdoption refuses to adopt an object without identification as a copy if the consumer has chosen its location: the agent would
// write later changes of the consumer to it, and delete it with the source. It accepts an object that an earlier reconciliation has recorded.
func (re *reconciliation) confineAdoption(existing *unstructured.Unstructured) error {
	key, cluster := client.ObjectKeyFromObject(existing), re.request.Cluster.String()
	recorded, found := re.state.Copy()
	known := found && recorded == key && (re.state.CopyUID() == existing.GetUID() || re.state.CopyUID() == "")
	if known || key.Namespace == cluster || related.OwnerChoosesPrimary(re.spec().Naming, cluster, key) || re.allowsKey(key) {
		return nil
	}
	annotation, name := publication.AnnotationAllowedNamespaces, key.Namespace
	if key.Namespace == "" {
		annotation, name = publication.AnnotationAllowedClusterScopedNames, key.Name
	}
	return &GuardedError{re.service().describeObject(existing), "it exists and is no copy yet; " + notAllowed(annotation, name)}
}

// allowsKey reports whether the annotations of the PublishedResource allow a namespace, or the name of a cluster-scoped object. Owners
// must list the namespaces of the cluster and of the agent by their names, without patterns.
func (re *reconciliation) allowsKey(key types.NamespacedName) bool {
	allowed, cluster := re.config.Publication.Allowed, re.request.Cluster.String()
	switch {
	case key.Namespace == "":
		return allowed.ClusterScopedNames.Match(cluster, key.Name)
	case re.isReserved(key.Namespace):
		return allowed.Namespaces.Contains(key.Namespace)
	}
	return allowed.Namespaces.Match(cluster, key.Namespace)
}

func notAllowed(annotation, name string) string {
	return "the object of the consumer leads there; if it should, add " + name + " to the annotation " + annotation + " of the PublishedResource"
}
