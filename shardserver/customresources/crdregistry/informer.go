package crdregistry

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Run runs the informer until the context ends. It must be called once.
func (r *Registry) Run(ctx context.Context) { r.informer.Run(ctx) }

// WaitForSync returns when the registry has every definition that existed when Run was called.
func (r *Registry) WaitForSync(ctx context.Context) error { return r.informer.WaitForSync(ctx) }

func (r *Registry) onReplace(ctx context.Context, objects []metav1.Object, resourceVersion string) error {
	listed := sets.New[definitionKey]()
	for _, object := range objects {
		key := newDefinitionKey(object)
		listed.Insert(key)
		if err := r.updateFromCache(ctx, key); err != nil {
			return err
		}
	}
	if version, err := storage.ParseRevision(resourceVersion); err == nil {
		r.removeUnlisted(listed, version)
	}
	r.onBookmark(resourceVersion)
	return nil
}

func (r *Registry) onUpdate(ctx context.Context, object metav1.Object) error {
	if err := r.updateFromCache(ctx, newDefinitionKey(object)); err != nil {
		return err
	}
	r.onBookmark(object.GetResourceVersion())
	return nil
}

func (r *Registry) onDelete(_ context.Context, object metav1.Object) error {
	version, err := storage.ParseRevision(object.GetResourceVersion())
	if err != nil {
		return err
	}
	r.remove(newDefinitionKey(object), version)
	r.onBookmark(object.GetResourceVersion())
	return nil
}

func newDefinitionKey(object metav1.Object) definitionKey {
	return definitionKey{logicalcluster.Of(object), object.GetName()}
}

// watchAll is storage.Reader.WatchAll without a copy of each definition, which may be large.
func (r *Registry) watchAll(ctx context.Context) (watch.Interface, error) {
	resource, err := r.Resources.Get(apiextensions.Definitions)
	if err != nil {
		return nil, err
	}
	return storage.WatchAllMetadata(ctx, resource)
}

// updateFromCache updates a definition from the watch cache, where all equal specifications share memory. The cached
// object may be newer than the event.
func (r *Registry) updateFromCache(ctx context.Context, key definitionKey) error {
	object, err := r.reader.Get(logicalcluster.With(ctx, key.cluster), "", key.name)
	if apierrors.IsNotFound(err) {
		return nil // a deletion event follows
	}
	if err != nil {
		return fmt.Errorf("reading definition %s of %s: %w", key.name, key.cluster, err)
	}
	d, err := parseDefinition(r.Specs, object)
	if err != nil {
		return err
	}
	return r.update(d, false)
}

// onBookmark records the resource version up to which the informer has delivered every change.
func (r *Registry) onBookmark(resourceVersion string) {
	version, err := storage.ParseRevision(resourceVersion)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observedVersion = max(r.observedVersion, version)
}

// removeUnlisted removes the definitions that were deleted while the informer was not watching.
func (r *Registry) removeUnlisted(listed sets.Set[definitionKey], version uint64) {
	var deleted []definitionKey
	r.mu.RLock()
	for cluster, definitions := range r.definitions {
		for name := range definitions {
			if key := (definitionKey{cluster, name}); !listed.Has(key) {
				deleted = append(deleted, key)
			}
		}
	}
	for uid := range r.boundDefinitions {
		if key := (definitionKey{logicalcluster.BoundCRDs, string(uid)}); !listed.Has(key) {
			deleted = append(deleted, key)
		}
	}
	r.mu.RUnlock()
	for _, key := range deleted {
		r.remove(key, version)
	}
}
