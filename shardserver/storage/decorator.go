// Package storage adds the logical cluster to storage keys and objects: one decorator around the stock storage and
// watch cache of a resource, through the stock extension point generic.StorageDecorator. Registries, strategies and
// handlers of Kubernetes run above it unchanged, without support for logical clusters.
//
// It also provides direct reads of that storage in the server's process (Registry, Reader). It must not depend on any
// API group or type.
package storage

import (
	"context"
	"fmt"
	"path"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"github.com/atoll-dev/atoll/internal/etcdrequest"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// indexField is the field by which the watch cache indexes the watchers of events. Every watch of one logical cluster
// requires it, so that an event is delivered only to the watchers of its own logical cluster. It is not a field of
// objects: keys separate logical clusters.
const indexField = logicalcluster.AnnotationKey

// CacheOptions are the options of the watch cache of a resource. The zero value is that of most resources.
type CacheOptions struct {
	// MaxPageSize bounds the pages in which the watch cache reads etcd, for resources with large objects. 0 means the
	// pages of upstream.
	MaxPageSize int64
	// Compact shrinks an object in place before the watch cache stores it, when no other reference to it exists.
	Compact func(runtime.Object)
	// Transactions is the etcd client with which creations of Together are stored; nil to store each alone.
	Transactions *clientv3.Client
}

// WithCache returns the decorator for resources that have a watch cache.
func WithCache(options CacheOptions) generic.StorageDecorator {
	return decorate(options.Transactions != nil, func(
		config *storagebackend.ConfigForResource,
		resourcePrefix string,
		keyFunc func(obj runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object,
		getAttrs storage.AttrFunc,
		trigger storage.IndexerFuncs,
		indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		return newCachedStorage(options, config, resourcePrefix, keyFunc, newFunc, newListFunc, getAttrs, trigger, indexers)
	})
}

// WithoutCache returns the decorator for resources without a watch cache (events).
func WithoutCache() generic.StorageDecorator { return decorate(false, generic.UndecoratedStorage) }

func decorate(together bool, inner generic.StorageDecorator) generic.StorageDecorator {
	return func(
		config *storagebackend.ConfigForResource,
		resourcePrefix string,
		keyFunc func(obj runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object,
		getAttrs storage.AttrFunc,
		_ storage.IndexerFuncs, // the stock triggers (by name) are not needed within one logical cluster
		indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		layout := layout{prefix: "/" + strings.Trim(resourcePrefix, "/")}
		annotating := *config
		annotating.Transformer = annotateFromKeys(config.Transformer, config.Prefix, resourcePrefix)
		config = &annotating
		base, destroy, err := inner(config, resourcePrefix, layout.objectKey(keyFunc), newFunc, newListFunc, getAttrs,
			storage.IndexerFuncs{indexField: clusterIndex}, indexers)
		if err != nil {
			return nil, nil, fmt.Errorf("creating storage for %s: %w", config.GroupResource, err)
		}
		return &clusterStorage{Interface: base, layout: layout, together: together, resource: config.GroupResource}, destroy, nil
	}
}

// layout is the layout of a resource's keys: the logical cluster follows the resource's prefix.
type layout struct{ prefix string }

// key returns the key with the logical cluster of the context inserted, for requests to one logical cluster.
func (l layout) key(ctx context.Context, key string) (string, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok {
		return "", storage.NewInternalError(fmt.Errorf("storage key %q: no logical cluster in the request", key))
	}
	if cluster.IsWildcard() {
		return "", storage.NewInternalError(fmt.Errorf("storage key %q: only list and watch may span logical clusters", key))
	}
	return l.insert(cluster, key)
}

// rangeKey is key for LIST and WATCH, in which the wildcard selects the whole prefix.
func (l layout) rangeKey(ctx context.Context, key string) (string, logicalcluster.Name, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok {
		return "", cluster, storage.NewInternalError(fmt.Errorf("storage key %q: no logical cluster in the request", key))
	}
	if cluster.IsWildcard() {
		if strings.TrimSuffix(key, "/") != l.prefix {
			return "", cluster, storage.NewInternalError(fmt.Errorf("storage key %q: a range over all logical clusters cannot be narrowed to a namespace or name", key))
		}
		return key, cluster, nil
	}
	inserted, err := l.insert(cluster, key)
	return inserted, cluster, err
}

// expandNameRange converts a wildcard range for objects of one name into a range of all objects. The predicate, which selects
// the name, filters them.
func (l layout) expandNameRange(ctx context.Context, key string, opts storage.ListOptions) (string, storage.ListOptions) {
	if cluster, ok := logicalcluster.From(ctx); !ok || !cluster.IsWildcard() {
		return key, opts
	}
	if name, single := opts.Predicate.MatchesSingle(); single && key == l.prefix+"/"+name {
		opts.Recursive = true
		return l.prefix, opts
	}
	return key, opts
}

func (l layout) insert(cluster logicalcluster.Name, key string) (string, error) {
	rest, ok := strings.CutPrefix(key, l.prefix)
	if !ok || (rest != "" && rest[0] != '/') {
		return "", storage.NewInternalError(fmt.Errorf("storage key %q lies outside of %q", key, l.prefix))
	}
	return l.prefix + "/" + cluster.String() + rest, nil
}

// objectKey adapts the registry's key function for the watch cache: the logical cluster comes from the object itself.
func (l layout) objectKey(keyFunc func(runtime.Object) (string, error)) func(runtime.Object) (string, error) {
	return func(obj runtime.Object) (string, error) {
		cluster, err := clusterOf(obj)
		if err != nil {
			return "", err
		}
		key, err := keyFunc(obj)
		if err != nil {
			return "", err
		}
		return l.insert(cluster, "/"+strings.TrimPrefix(key, "/"))
	}
}

func clusterOf(obj runtime.Object) (logicalcluster.Name, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return logicalcluster.Name{}, err
	}
	cluster := logicalcluster.Of(accessor)
	if cluster.Empty() {
		return cluster, fmt.Errorf("stored object %s/%s has no annotation %s", accessor.GetNamespace(), accessor.GetName(), logicalcluster.AnnotationKey)
	}
	return cluster, nil
}

func clusterIndex(obj runtime.Object) string {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return logicalcluster.Of(accessor).String()
}

// setClusterAnnotation sets the logical cluster of the context in the object, overwriting any other value.
func setClusterAnnotation(ctx context.Context, obj runtime.Object) error {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() {
		return storage.NewInternalError(fmt.Errorf("writing %T: no single logical cluster in the request", obj))
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	annotations := accessor.GetAnnotations()
	if annotations[logicalcluster.AnnotationKey] == cluster.String() {
		return nil
	}
	annotated := make(map[string]string, len(annotations)+1)
	for key, value := range annotations {
		annotated[key] = value
	}
	annotated[logicalcluster.AnnotationKey] = cluster.String()
	accessor.SetAnnotations(annotated)
	return nil
}

// clusterStorage restricts every operation to the logical cluster of its context.
type clusterStorage struct {
	storage.Interface
	layout layout
	// together is whether creations of Together share transactions.
	together bool
	resource schema.GroupResource
}

func (s *clusterStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	key, err := s.layout.key(ctx, key)
	if err != nil {
		return err
	}
	if IsInNewNamespace(ctx) && !s.together {
		return newNamespaceConflict(s.resource, path.Base(key))
	}
	if err := setClusterAnnotation(ctx, obj); err != nil {
		return err
	}
	return etcdrequest.WithTooLarge(s.Interface.Create(ctx, key, obj, out, ttl))
}

func (s *clusterStorage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	key, err := s.layout.key(ctx, key)
	if err != nil {
		return err
	}
	return s.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
}

func (s *clusterStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	key, err := s.layout.key(ctx, key)
	if err != nil {
		return err
	}
	return s.Interface.Get(ctx, key, opts, out)
}

func (s *clusterStorage) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	key, err := s.layout.key(ctx, key)
	if err != nil {
		return err
	}
	annotatedUpdate := func(input runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
		output, ttl, err := tryUpdate(input, meta)
		if err != nil {
			return nil, nil, err
		}
		return output, ttl, setClusterAnnotation(ctx, output)
	}
	return etcdrequest.WithTooLarge(s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, annotatedUpdate, cached))
}

func (s *clusterStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	key, opts = s.layout.expandNameRange(ctx, key, opts)
	key, _, err := s.layout.rangeKey(ctx, key)
	if err != nil {
		return err
	}
	return s.Interface.GetList(ctx, key, opts, list)
}

func (s *clusterStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	key, opts = s.layout.expandNameRange(ctx, key, opts)
	key, cluster, err := s.layout.rangeKey(ctx, key)
	if err != nil {
		return nil, err
	}
	if !cluster.IsWildcard() {
		opts.Predicate = withClusterIndex(opts.Predicate, cluster)
	}
	return s.Interface.Watch(ctx, key, opts)
}

// withClusterIndex adds the index value of one logical cluster to a predicate, for the watch cache.
func withClusterIndex(predicate storage.SelectionPredicate, cluster logicalcluster.Name) storage.SelectionPredicate {
	if predicate.Field == nil {
		predicate.Field = fields.Everything()
	}
	predicate.Field = clusterSelector{predicate.Field, cluster}
	if predicate.Label == nil {
		predicate.Label = labels.Everything()
	}
	predicate.IndexFields = []string{indexField}
	return predicate
}

// clusterSelector is a field selector for one logical cluster. It provides the index value only: whether an object is
// in the logical cluster is decided by its key.
type clusterSelector struct {
	fields.Selector
	cluster logicalcluster.Name
}

// RequiresExactMatch implements fields.Selector.
func (s clusterSelector) RequiresExactMatch(field string) (string, bool) {
	if field == indexField {
		return s.cluster.String(), true
	}
	return s.Selector.RequiresExactMatch(field)
}

// DeepCopySelector implements fields.Selector.
func (s clusterSelector) DeepCopySelector() fields.Selector {
	return clusterSelector{s.Selector.DeepCopySelector(), s.cluster}
}

// Transform implements fields.Selector.
func (s clusterSelector) Transform(transform fields.TransformFunc) (fields.Selector, error) {
	transformed, err := s.Selector.Transform(transform)
	if err != nil {
		return nil, err
	}
	return clusterSelector{transformed, s.cluster}, nil
}
