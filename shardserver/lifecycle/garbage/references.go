package garbage

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

var (
	// errUnknownKind is returned if a logical cluster does not serve the kind at present.
	errUnknownKind = errors.New("kind is not served in the logical cluster")
	// errOwnerScope is returned for a cluster-scoped object with a namespaced owner, which cannot be corrected.
	errOwnerScope = errors.New("cluster-scoped object has a namespaced owner")
)

// Resource versions of a read: from the watch cache, or from storage.
const (
	cached = "0"
	latest = ""
)

// references are the owners of an object by their state.
type references struct {
	// existing owners exist, absent ones do not, waiting ones exist and wait for the deletion of their dependents.
	existing, absent, waiting []metav1.OwnerReference
}

// classify looks up the owners of an object. An owner counts as absent if storage does not have it.
func (c *Collector) classify(ctx context.Context, n nodeSnapshot, owners []metav1.OwnerReference) (references, error) {
	var refs references
	for _, reference := range owners {
		owner, err := c.getOwner(ctx, n, reference)
		switch {
		case err != nil:
			return references{}, err
		case owner == nil:
			refs.absent = append(refs.absent, reference)
		case waitReasonOf(owner) == waitDependents:
			refs.waiting = append(refs.waiting, reference)
		default:
			refs.existing = append(refs.existing, reference)
		}
	}
	return refs, nil
}

// getOwner returns the referenced object, or nil if there is none.
func (c *Collector) getOwner(ctx context.Context, n nodeSnapshot, reference metav1.OwnerReference) (metav1.Object, error) {
	version, err := schema.ParseGroupVersion(reference.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("%w: %q", errUnknownKind, reference.APIVersion)
	}
	kind := version.WithKind(reference.Kind).GroupKind()
	resource, err := c.cfg.Registry.ResolveKind(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("finding the resource of kind %s: %w", kind, err)
	}
	if resource == nil {
		return nil, fmt.Errorf("%w: %s", errUnknownKind, kind)
	}
	namespace := ""
	if resource.Namespaced {
		namespace = n.namespace
		if namespace == "" {
			return nil, errOwnerScope
		}
	}
	versions := []string{cached, latest}
	if c.isDeleted(key{n.cluster, reference.UID}) {
		versions = versions[1:] // the watch cache may still have it
	}
	for _, version := range versions {
		owner, err := read(ctx, resource, namespace, reference.Name, version)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("reading owner %s %q: %w", kind, reference.Name, err)
		case owner.GetUID() == reference.UID:
			return owner, nil
		}
	}
	return nil, nil
}

// read reads the metadata of one object of the context's logical cluster.
func read(ctx context.Context, resource *storage.Resource, namespace, name, resourceVersion string) (metav1.Object, error) {
	object, err := resource.Store.Get(request.WithNamespace(ctx, namespace), name, &metav1.GetOptions{ResourceVersion: resourceVersion})
	if err != nil {
		return nil, err
	}
	return meta.Accessor(object)
}

// servedResource returns the resource of an object as the context's logical cluster serves it, for requests to its API.
func (c *Collector) servedResource(ctx context.Context, n node) (schema.GroupVersionResource, error) {
	name := n.resource.GVR.GroupResource()
	resource, err := c.cfg.Registry.Resolve(ctx, name)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("finding resource %s: %w", name, err)
	}
	if resource == nil || resource.Prefix != n.resource.Prefix {
		return schema.GroupVersionResource{}, fmt.Errorf("%w: %s", errUnknownKind, name)
	}
	return resource.GVR, nil
}
