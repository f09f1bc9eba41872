package crdstorage

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"

	"github.com/atoll-dev/atoll/logicalcluster"
	clusterstorage "github.com/atoll-dev/atoll/shardserver/storage"
)

// Store returns a reader for the shard's controllers: objects are *Object, the logical cluster is that of the context,
// which may be the wildcard for lists and watches.
func (s *Storage) Store() clusterstorage.Store { return s.reader(s.objects, anyScope) }

// scope is the scope of the objects of a reader.
type scope int

const (
	// anyScope is for objects of several definitions: the scope depends on the namespace of the context.
	anyScope scope = iota
	clusterScope
	namespaceScope
)

// reader is a read-only store of *Object.
type reader struct {
	store *genericregistry.Store
	scope scope
}

var _ clusterstorage.Store = &reader{}

// reader returns a reader of a storage, which is that of s or a view of it.
func (s *Storage) reader(objects storage.Interface, scope scope) *reader {
	prefix := s.Prefix()
	return &reader{scope: scope, store: &genericregistry.Store{
		NewFunc:                  newObject,
		NewListFunc:              newList,
		DefaultQualifiedResource: s.resource,
		KeyRootFunc: func(ctx context.Context) string {
			if scope == clusterScope || isWildcard(ctx) {
				return prefix
			}
			return genericregistry.NamespaceKeyRootFunc(ctx, prefix)
		},
		KeyFunc: func(ctx context.Context, name string) (string, error) {
			if namespace, _ := request.NamespaceFrom(ctx); scope == clusterScope || (scope == anyScope && namespace == "") {
				return genericregistry.NoNamespaceKeyFunc(ctx, prefix, name)
			}
			return genericregistry.NamespaceKeyFunc(ctx, prefix, name)
		},
		PredicateFunc: func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: getAttrs}
		},
		Storage: genericregistry.DryRunnableStorage{Storage: objects, Codec: Codec},
	}}
}

func isWildcard(ctx context.Context) bool {
	cluster, _ := logicalcluster.From(ctx)
	return cluster.IsWildcard()
}

// New implements rest.Storage.
func (r *reader) New() runtime.Object { return newObject() }

// Destroy implements rest.Storage. The owner of the storage releases it.
func (r *reader) Destroy() {}

// NewList implements rest.Lister.
func (r *reader) NewList() runtime.Object { return newList() }

// Get implements rest.Getter.
func (r *reader) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// List implements rest.Lister.
func (r *reader) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	ctx, options = r.withSelectors(ctx, options)
	return r.store.List(ctx, options)
}

// Watch implements rest.Watcher.
func (r *reader) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	ctx, options = r.withSelectors(ctx, options)
	return r.store.Watch(ctx, options)
}

// ConvertToTable implements rest.TableConvertor with the default columns.
func (r *reader) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, obj, options)
}

// withSelectors keeps the upstream store from turning a field selector for a name into the key of one object where that key
// is unknown: across logical clusters, and without a namespace if objects may have one. Across logical clusters it also
// turns the namespace into a field selector.
func (r *reader) withSelectors(ctx context.Context, options *internalversion.ListOptions) (context.Context, *internalversion.ListOptions) {
	updated := internalversion.ListOptions{}
	if options != nil {
		updated = *options
	}
	all := isWildcard(ctx)
	if r.scope != anyScope && !all {
		return ctx, &updated
	}
	selector := updated.FieldSelector
	if selector == nil {
		selector = fields.Everything()
	}
	if namespace, _ := request.NamespaceFrom(ctx); namespace != "" && all {
		selector = fields.AndSelectors(selector, fields.OneTermEqualSelector(namespaceField, namespace))
		ctx = request.WithNamespace(ctx, "")
	}
	if !selector.Empty() {
		selector = inexactNameSelector{selector}
	}
	updated.FieldSelector = selector
	return ctx, &updated
}

// inexactNameSelector hides from the upstream store that a selector requires one name. It selects the same objects.
type inexactNameSelector struct{ fields.Selector }

// RequiresExactMatch implements fields.Selector.
func (s inexactNameSelector) RequiresExactMatch(field string) (string, bool) {
	if field == nameField {
		return "", false
	}
	return s.Selector.RequiresExactMatch(field)
}

// DeepCopySelector implements fields.Selector.
func (s inexactNameSelector) DeepCopySelector() fields.Selector {
	return inexactNameSelector{s.Selector.DeepCopySelector()}
}
