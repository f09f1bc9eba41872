package bindings

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// bindingKey identifies a binding.
type bindingKey struct {
	cluster logicalcluster.Name
	name    string
}

func bindingKeyOf(object *apisv1alpha2.APIBinding) bindingKey {
	return bindingKey{logicalcluster.Of(object), object.Name}
}

// parsedBinding holds the fields of an APIBinding that the index stores.
type parsedBinding struct {
	bindingKey
	version     uint64
	terminating bool
	state       State
	claims      claimsHash
	resources   []Resource
}

// parseBinding extracts the indexed fields of a binding. All resources in the status are bound, in every phase and
// whether or not the export still exists (contract 4.8).
func parseBinding(object *apisv1alpha2.APIBinding) (parsedBinding, error) {
	o := parsedBinding{
		bindingKey:  bindingKeyOf(object),
		terminating: object.DeletionTimestamp != nil && !IsWaitingForSuccessor(object),
		state:       stateOf(object),
		claims:      hashClaims(object),
		resources:   make([]Resource, 0, len(object.Status.BoundResources)),
	}
	var err error
	if o.version, err = storage.ParseRevision(object.ResourceVersion); err != nil {
		return o, fmt.Errorf("binding %s of %s: %w", o.name, o.cluster, err)
	}
	export := ExportKey{}
	if object.Spec.Reference.Export != nil {
		export.Name = object.Spec.Reference.Export.Name
	}
	if name := object.Status.APIExportClusterName; name != "" {
		if export.Cluster, err = logicalcluster.ParseName(name); err != nil {
			return o, fmt.Errorf("binding %s of %s: the cluster of its export: %w", o.name, o.cluster, err)
		}
	}
	for _, bound := range object.Status.BoundResources {
		o.resources = append(o.resources, Resource{
			GroupResource: schema.GroupResource{Group: bound.Group, Resource: bound.Resource},
			Export:        export,
			Identity:      bound.Schema.IdentityHash,
			Schema:        bound.Schema.Name,
			SchemaUID:     types.UID(bound.Schema.UID),
			Virtual:       len(bound.StorageVersions) == 0, // stored resources always list one (contract 4.7)
		})
	}
	return o, nil
}

// IsWaitingForSuccessor reports whether a binding that is being deleted serves its resources as before, until another
// binding has them. Every other condition than that of waiting means that objects are being deleted.
func IsWaitingForSuccessor(binding *apisv1alpha2.APIBinding) bool {
	condition := conditionsv1alpha1.Get(binding, apisv1alpha2.BindingResourceDeleteSuccess)
	return binding.DeletionTimestamp != nil && binding.Spec.DeletionPolicy == apisv1alpha2.DeletionPolicyWaitForSuccessor &&
		(condition == nil || condition.Reason == apisv1alpha2.WaitingForSuccessorReason)
}

// Run keeps the index up to date until the context ends. It is called once.
func (i *Index) Run(ctx context.Context) { i.informer.Run(ctx) }

// WaitForSync returns when every binding that existed at the start is indexed.
func (i *Index) WaitForSync(ctx context.Context) error { return i.informer.WaitForSync(ctx) }

func (i *Index) onReplace(ctx context.Context, objects []*apisv1alpha2.APIBinding, resourceVersion string) error {
	existing := sets.New[bindingKey]()
	for _, object := range objects {
		existing.Insert(bindingKeyOf(object))
		i.updateObject(ctx, object)
	}
	if version, err := storage.ParseRevision(resourceVersion); err == nil {
		i.prune(existing, version)
		i.setFirstVirtualVersion(version)
	}
	i.setSyncedVersion(resourceVersion)
	return nil
}

func (i *Index) onUpdate(ctx context.Context, object *apisv1alpha2.APIBinding) error {
	i.updateObject(ctx, object)
	i.setSyncedVersion(object.ResourceVersion)
	return nil
}

func (i *Index) onDelete(_ context.Context, object *apisv1alpha2.APIBinding) error {
	if version, err := storage.ParseRevision(object.ResourceVersion); err == nil {
		i.remove(bindingKeyOf(object), version)
	}
	i.setSyncedVersion(object.ResourceVersion)
	return nil
}

// updateObject updates the index with a binding. An invalid one changes nothing, so that others need not wait for it.
func (i *Index) updateObject(ctx context.Context, object *apisv1alpha2.APIBinding) {
	o, err := parseBinding(object)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Ignoring an invalid APIBinding")
		return
	}
	i.update(o, false)
}

// setSyncedVersion records up to which resource version the informer has delivered every change.
func (i *Index) setSyncedVersion(resourceVersion string) {
	version, err := storage.ParseRevision(resourceVersion)
	if err != nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.syncedVersion = max(i.syncedVersion, version)
}

// setFirstVirtualVersion records that changes before the first list are not known.
func (i *Index) setFirstVirtualVersion(version uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.syncedVersion == 0 {
		i.virtualVersion = max(i.virtualVersion, version)
	}
}

// prune removes bindings that were deleted while the watch was disconnected.
func (i *Index) prune(found sets.Set[bindingKey], version uint64) {
	var removed []bindingKey
	i.mu.RLock()
	for cluster, entries := range i.clusters {
		for _, b := range entries {
			if k := (bindingKey{cluster, b.name}); !found.Has(k) {
				removed = append(removed, k)
			}
		}
	}
	i.mu.RUnlock()
	for _, k := range removed {
		i.remove(k, version)
	}
}
