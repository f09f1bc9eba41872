package crdregistry

import (
	"context"
	"fmt"
	"strings"

	apiextensionsinternal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
)

// boundDefinition is a definition in system:bound-crds: the schema of the resources that are bound with one schema.
type boundDefinition struct{ parsedDefinition }

// BoundDefinition is a resource that a logical cluster binds, with its definition.
type BoundDefinition struct {
	bindings.BoundResource
	// Definition is shared with the watch cache: read-only.
	Definition *apiextensionsinternal.CustomResourceDefinition
}

// isEstablished returns whether resources that are bound with the definition can be served. The receiver may be nil.
func (d *boundDefinition) isEstablished() bool { return d != nil && d.served }

// newUnavailableError is the error for a bound resource that cannot be served, because its definition is missing or not yet
// established.
func newUnavailableError(gr schema.GroupResource) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("%s is currently unavailable", gr))
}

// ListBoundDefinitions returns the resources that the context's logical cluster binds and that are neither built-in nor
// unavailable. It reflects every binding whose status was written before the call.
func (r *Registry) ListBoundDefinitions(ctx context.Context) ([]BoundDefinition, error) {
	if err := r.Bindings.Refresh(ctx); err != nil {
		return nil, err
	}
	var all []BoundDefinition
	for _, b := range r.Bindings.List(ctx) {
		if r.ServesBuiltIn(ctx, b.GroupResource) || !(b.Virtual || r.storesObjects(b.Resource)) {
			continue
		}
		d, err := r.getBoundDefinition(ctx, b.GroupResource, b.SchemaUID)
		if err != nil && !apierrors.IsServiceUnavailable(err) {
			return nil, err
		}
		if d.isEstablished() && d.resource == b.GroupResource {
			all = append(all, BoundDefinition{b, d.object})
		}
	}
	return all, nil
}

// ListBoundNames returns the names of the resources of a group that the context's logical cluster binds, built-in ones
// included. It reflects every binding whose status was written before the call, and none that was deleted before it.
func (r *Registry) ListBoundNames(ctx context.Context, group string) ([]apiextensionsinternal.CustomResourceDefinitionNames, error) {
	bound, err := r.Bindings.ListLatest(ctx)
	if err != nil {
		return nil, err
	}
	var all []apiextensionsinternal.CustomResourceDefinitionNames
	for _, b := range bound {
		if b.Group != group {
			continue
		}
		names, err := r.boundNames(ctx, b)
		if err != nil {
			return nil, err
		}
		all = append(all, names)
	}
	return all, nil
}

// boundNames returns the names of a bound resource; only the plural if its definition is unavailable.
func (r *Registry) boundNames(ctx context.Context, b bindings.BoundResource) (apiextensionsinternal.CustomResourceDefinitionNames, error) {
	names := apiextensionsinternal.CustomResourceDefinitionNames{Plural: b.GroupResource.Resource}
	if r.IsBuiltIn(b.Resource) {
		builtIn, err := r.Resources.Get(b.GroupResource)
		if err != nil {
			return names, err
		}
		kind := builtIn.Kind.Kind
		names.Singular, names.Kind, names.ListKind = strings.ToLower(kind), kind, kind+"List"
		return names, nil
	}
	d, err := r.getBoundDefinition(ctx, b.GroupResource, b.SchemaUID)
	if err != nil && !apierrors.IsServiceUnavailable(err) {
		return names, err
	}
	if d != nil && d.resource == b.GroupResource {
		names = d.object.Spec.Names
	}
	return names, nil
}

// cachedBoundDefinition returns a definition of system:bound-crds as the informer has it, or nil.
func (r *Registry) cachedBoundDefinition(uid types.UID) *boundDefinition {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.boundDefinitions[uid]
}

// getBoundDefinition returns a definition of system:bound-crds, reading it if the informer does not have it.
func (r *Registry) getBoundDefinition(ctx context.Context, gr schema.GroupResource, uid types.UID) (*boundDefinition, error) {
	if d := r.cachedBoundDefinition(uid); d != nil {
		return d, nil
	}
	if err := r.readBoundDefinition(ctx, gr, uid); err != nil {
		return nil, err
	}
	return r.cachedBoundDefinition(uid), nil
}

// readBoundDefinition reads a definition of system:bound-crds that the informer may not have received yet.
func (r *Registry) readBoundDefinition(ctx context.Context, gr schema.GroupResource, uid types.UID) error {
	object, err := r.reader.GetLatest(logicalcluster.With(ctx, logicalcluster.BoundCRDs), "", string(uid))
	if apierrors.IsNotFound(err) {
		return newUnavailableError(gr)
	}
	if err != nil {
		return fmt.Errorf("reading the definition of the bound resource %s: %w", gr, err)
	}
	d, err := parseDefinition(r.Specs, object)
	if err != nil {
		return err
	}
	return r.update(d, true)
}

// updateBoundDefinition records a definition of system:bound-crds. Callers must hold updateMu.
func (r *Registry) updateBoundDefinition(d parsedDefinition, fromRequest bool) error {
	uid := types.UID(d.name)
	r.mu.Lock()
	current := r.boundDefinitions[uid]
	stale := current == nil && fromRequest && d.version <= r.observedVersion
	if !stale && (current == nil || current.version < d.version) {
		r.boundDefinitions[uid] = &boundDefinition{d}
	}
	r.mu.Unlock()
	return r.syncBound(uid)
}

// removeBoundDefinition removes a definition of system:bound-crds. Callers must hold updateMu.
func (r *Registry) removeBoundDefinition(key definitionKey, version uint64) {
	uid := types.UID(key.name)
	r.mu.Lock()
	if current := r.boundDefinitions[uid]; current == nil || current.version > version {
		r.mu.Unlock()
		return
	}
	delete(r.boundDefinitions, uid)
	r.mu.Unlock()
	if err := r.syncBound(uid); err != nil {
		klog.Background().Error(err, "Failed to remove the definition of bound resources", "definition", key.name)
	}
}
