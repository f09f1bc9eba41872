package syncer

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/related"
)

// confine refuses to write a related object of a workspace to a namespace of the service cluster other than the one of the primary
// object's copy, unless the owner has chosen or allowed that namespace, because the agent has more permissions than any consumer. For
// cluster-scoped objects it checks the name. It checks the result of the locator, independent of how the locator computed it.
func (p *pass) confine(r relation) error {
	if r.Side != syncagentv1alpha1.RelatedResourceOriginKcp {
		return nil
	}
	key, cluster, to := keyOf(r.Copy), p.request.Cluster.String(), p.service()
	if !r.resource.Copy.Namespaced {
		if related.OwnerChoosesCopyName(r.resource.Spec, cluster, key.Name) || p.allowsKey(key) {
			return nil
		}
		return &GuardedError{to.describe(r.resource.Copy, key), notAllowed(publication.AnnotationAllowedClusterScopedNames, key.Name)}
	}
	if key.Namespace == p.home || related.OwnerChoosesNamespace(r.resource.Spec, p.spec().Naming, cluster, key.Namespace) || p.allowsKey(key) {
		return nil
	}
	return &GuardedError{to.describe(r.resource.Copy, key), notAllowed(publication.AnnotationAllowedNamespaces, key.Namespace)}
}

// confineAdoption refuses to adopt an object without identification as a copy if the consumer has chosen its location: the agent would
// write later changes of the consumer to it, and delete it with the source. It accepts an object that an earlier pass has recorded.
func (p *pass) confineAdoption(existing *unstructured.Unstructured) error {
	key, cluster := client.ObjectKeyFromObject(existing), p.request.Cluster.String()
	recorded, found := p.state.Copy()
	known := found && recorded == key && (p.state.CopyUID() == existing.GetUID() || p.state.CopyUID() == "")
	if known || key.Namespace == cluster || related.OwnerChoosesPrimary(p.spec().Naming, cluster, key) || p.allowsKey(key) {
		return nil
	}
	annotation, name := publication.AnnotationAllowedNamespaces, key.Namespace
	if key.Namespace == "" {
		annotation, name = publication.AnnotationAllowedClusterScopedNames, key.Name
	}
	return &GuardedError{p.service().describeObject(existing), "it exists and is no copy yet; " + notAllowed(annotation, name)}
}

// allowsKey reports whether the annotations of the PublishedResource allow a namespace, or the name of a cluster-scoped object. Owners
// must list the namespaces of the cluster and of the agent by their names, without patterns.
func (p *pass) allowsKey(key types.NamespacedName) bool {
	allowed, cluster := p.config.Publication.Allowed, p.request.Cluster.String()
	switch {
	case key.Namespace == "":
		return allowed.ClusterScopedNames.Match(cluster, key.Name)
	case p.isReserved(key.Namespace):
		return allowed.Namespaces.Contains(key.Namespace)
	}
	return allowed.Namespaces.Match(cluster, key.Namespace)
}

func notAllowed(annotation, name string) string {
	return "the object of the consumer leads there; if it should, add " + name + " to the annotation " + annotation + " of the PublishedResource"
}
