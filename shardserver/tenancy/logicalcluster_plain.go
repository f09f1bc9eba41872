package tenancy

import (
	"cmp"
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/apis/core"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/content"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Most of what a logical cluster contains when it is deleted are objects without finalizers whose storage does nothing on
// their deletion, and objects whose only finalizer is for content that they do not have. A request for each would cost more
// than all the rest of the deletion. These plain objects are deleted in etcd, together, with an entry in the audit log each.
// Everything else, and what changes meanwhile, is deleted by requests.

// maxPlain bounds the plain objects that one reconcile deletes without requests, because workers are shared by all tenants.
const maxPlain = 200

var (
	// plainNamespaced and policy are resources whose storage does nothing on a deletion.
	plainNamespaced = []schema.GroupResource{
		{Resource: "configmaps"}, {Resource: "secrets"}, {Resource: "serviceaccounts"},
		{Group: "rbac.authorization.k8s.io", Resource: "roles"}, {Group: "rbac.authorization.k8s.io", Resource: "rolebindings"},
	}
	policy = []schema.GroupResource{clusterRoleBindings, clusterRoles}
)

// plainObject is an object that can be deleted without a request.
type plainObject struct {
	storage.Deletion
	uid types.UID
}

func newPlainObject(resource *storage.Resource, object metav1.Object) plainObject {
	return plainObject{storage.Deletion{
		Resource: resource, Namespace: object.GetNamespace(), Name: object.GetName(), ResourceVersion: object.GetResourceVersion(),
	}, object.GetUID()}
}

// deletePlain deletes the plain objects that find returns, and returns the UIDs of those that are gone.
func (c *logicalClusterController) deletePlain(ctx context.Context, cluster *corev1alpha1.LogicalCluster, all []*storage.Resource,
	find func(context.Context, []*storage.Resource) ([]plainObject, error)) (sets.Set[types.UID], error) {
	if c.cfg.DeleteKeys == nil {
		return nil, nil
	}
	objects, err := find(ctx, all)
	if err != nil || len(objects) == 0 || len(objects) > maxPlain {
		return nil, err
	}
	deletions := make([]storage.Deletion, 0, len(objects))
	for _, object := range objects {
		deletions = append(deletions, object.Deletion)
	}
	deleted, err := c.cfg.DeleteKeys(ctx, cluster, deletions)
	gone := sets.New[types.UID]()
	for i, done := range deleted {
		if !done {
			continue
		}
		gone.Insert(objects[i].uid)
		if c.cfg.AuditDeletion != nil {
			c.cfg.AuditDeletion(ctx, objects[i].Resource.GVR, objects[i].Namespace, objects[i].Name)
		}
	}
	return gone, err
}

// plainNamespaces returns all namespaces of the context's logical cluster, each after its content, if they contain nothing
// but plain objects.
func (c *logicalClusterController) plainNamespaces(ctx context.Context, all []*storage.Resource) ([]plainObject, error) {
	namespaced := slices.DeleteFunc(slices.Clone(all), func(resource *storage.Resource) bool { return !resource.Namespaced })
	found, err := c.namespaces.List(ctx, "", nil)
	if err != nil || len(found) == 0 || len(namespaced) > storage.MaxEmpty || slices.ContainsFunc(found, isNotPlainNamespace) {
		return nil, err
	}
	counts, err := c.cfg.Keys.CountIn(ctx, namespaced, "")
	if err != nil {
		return nil, err
	}
	var stored int64
	for _, count := range counts {
		stored += count
	}
	if stored+int64(len(found)) > maxPlain {
		return nil, nil
	}
	objects, err := listPlain(ctx, all, plainNamespaced)
	if err != nil || stored != int64(len(objects)) {
		return nil, err // without an error there is something else, which may have finalizers
	}
	resource, err := c.cfg.Registry.Get(namespaces)
	if err != nil {
		return nil, err
	}
	ordered := make([]plainObject, 0, len(found))
	for _, namespace := range found {
		object := newPlainObject(resource, namespace)
		object.Empty, object.EmptyNamespace = namespaced, namespace.Name
		ordered = append(ordered, object)
	}
	return inRounds(objects, ordered), nil
}

// inRounds orders the content of namespaces and the namespaces so that few transactions delete them, which take objects in their order and
// only one of each resource: a round has the next object of each resource. A namespace is in a later round than all that it contains.
func inRounds(objects, namespaces []plainObject) []plainObject {
	type placed struct {
		plainObject
		round int
	}
	all := make([]placed, 0, len(objects)+len(namespaces))
	next := map[*storage.Resource]int{} // of this call
	round := 0
	for _, namespace := range namespaces {
		for _, object := range objects {
			if object.Namespace == namespace.Name {
				all = append(all, placed{object, next[object.Resource]})
				next[object.Resource]++
				round = max(round, next[object.Resource])
			}
		}
		all = append(all, placed{namespace, round})
		round++
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(a.round, b.round) })
	ordered := make([]plainObject, 0, len(all))
	for _, object := range all {
		ordered = append(ordered, object.plainObject)
	}
	return ordered
}

// isNotPlainNamespace reports whether others than the controller of namespaces have to release a namespace, or it is being deleted.
func isNotPlainNamespace(namespace *core.Namespace) bool {
	return namespace.DeletionTimestamp != nil || len(namespace.Finalizers) > 0 ||
		len(namespace.Spec.Finalizers) > 1 || len(namespace.Spec.Finalizers) == 1 && namespace.Spec.Finalizers[0] != core.FinalizerKubernetes
}

// plainBindings returns the bindings to APIs that the shard itself has, such as the default ones, without claims.
func (c *logicalClusterController) plainBindings(ctx context.Context, _ []*storage.Resource) ([]plainObject, error) {
	found, err := c.apiBindings.List(ctx, "", nil)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	resource, err := c.cfg.Registry.Get(apiBindings)
	if err != nil {
		return nil, err
	}
	var objects []plainObject
	for _, binding := range found {
		object := newPlainObject(resource, binding)
		if bound, ok := c.plainResources(binding); ok {
			object.Empty = bound
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// plainResources returns the resources of a binding that can be deleted when they have no objects. For others, package
// binding has more to do.
func (c *logicalClusterController) plainResources(binding *apisv1alpha2.APIBinding) (bound []*storage.Resource, ok bool) {
	if binding.DeletionTimestamp != nil || !slices.Equal(binding.Finalizers, []string{apisv1alpha2.APIBindingFinalizer}) ||
		len(binding.Spec.PermissionClaims) > 0 || len(binding.Status.AppliedPermissionClaims) > 0 {
		return nil, false
	}
	for _, resource := range binding.Status.BoundResources {
		builtIn, err := c.cfg.Registry.Get(schema.GroupResource{Group: resource.Group, Resource: resource.Resource})
		if err != nil || resource.Schema.IdentityHash == "" || builtIn.Identity() != resource.Schema.IdentityHash {
			return nil, false
		}
		bound = append(bound, builtIn)
	}
	return bound, true
}

// plainPolicy returns the cluster roles and their bindings.
func (c *logicalClusterController) plainPolicy(ctx context.Context, all []*storage.Resource) ([]plainObject, error) {
	return listPlain(ctx, all, policy)
}

// listPlain returns the objects of some resources that the watch cache has in the context's logical cluster, without those
// that have finalizers or are being deleted.
func listPlain(ctx context.Context, all []*storage.Resource, of []schema.GroupResource) ([]plainObject, error) {
	var plain []plainObject
	for _, resource := range all {
		if !slices.Contains(of, resource.GVR.GroupResource()) || resource.Segment() != "" {
			continue
		}
		objects, err := content.List(ctx, resource, "", content.Cached)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			if len(object.GetFinalizers()) == 0 && object.GetDeletionTimestamp() == nil {
				plain = append(plain, newPlainObject(resource, object))
			}
		}
	}
	return plain, nil
}
