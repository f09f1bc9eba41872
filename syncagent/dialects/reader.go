// Package dialects reads PublishedResources of both dialects from the service cluster, and writes their status. All other packages use
// publications only.
package dialects

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	kdpcorev1alpha1 "github.com/atoll-dev/atoll/api/kdp/core/v1alpha1"
	servicesv1alpha1 "github.com/atoll-dev/atoll/api/kdp/services/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/kdp"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// AddToScheme registers the kinds of both dialects.
func AddToScheme(scheme *runtime.Scheme) error {
	if err := syncagentv1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	return servicesv1alpha1.AddToScheme(scheme)
}

// Options configures a Reader.
type Options struct {
	// Client writes the status. It may read from a cache.
	Client client.Client
	// Live reads without a cache; it defaults to Client.
	Live client.Reader
	// Selector selects PublishedResources by their labels; nil selects all.
	Selector labels.Selector
	// Group returns the API group in which PublishedResources of the older dialect are published, or an empty string if it is unknown;
	// see ServiceGroup. The Reader does not call it if that dialect is not installed.
	Group func(context.Context) (string, error)
}

// Reader reads publications.
type Reader struct {
	options Options
	kinds   []client.Object
	// writing serializes writes of a status. Each condition has one writer, and all writers are in this process.
	writing sync.Mutex
}

// NewReader returns a Reader of the dialects whose definitions the server has. It returns an error if the server has none of them.
func NewReader(options Options) (*Reader, error) {
	if options.Selector == nil {
		options.Selector = labels.Everything()
	}
	if options.Live == nil {
		options.Live = options.Client
	}
	r := &Reader{options: options}
	for _, kind := range []client.Object{&syncagentv1alpha1.PublishedResource{}, &servicesv1alpha1.PublishedResource{}} {
		gvk, err := options.Client.GroupVersionKindFor(kind)
		if err != nil {
			return nil, err
		}
		switch _, err := options.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); {
		case err == nil:
			r.kinds = append(r.kinds, kind)
		case !meta.IsNoMatchError(err):
			return nil, fmt.Errorf("looking up %s on the service cluster: %w", gvk.GroupKind(), err)
		}
	}
	if len(r.kinds) == 0 {
		return nil, fmt.Errorf("the service cluster has no definition of publishedresources.%s; apply it first", syncagentv1alpha1.GroupName)
	}
	return r, nil
}

// Kinds returns the kinds to watch. Key returns the keys of their objects.
func (r *Reader) Kinds() []client.Object { return slices.Clone(r.kinds) }

// Key returns the key of a publication in queues. Names are unique in each dialect only, so keys of the older dialect have its API group
// as their namespace.
func Key(object client.Object) types.NamespacedName {
	key := types.NamespacedName{Name: object.GetName()}
	if _, older := object.(*servicesv1alpha1.PublishedResource); older {
		key.Namespace = servicesv1alpha1.GroupName
	}
	return key
}

// Find returns the keys of the selected PublishedResources whose source group and schema match. It neither converts nor validates them,
// so that it is cheap enough to be called for every change of a definition.
func (r *Reader) Find(ctx context.Context, matches func(sourceGroup, schemaName string) bool) ([]types.NamespacedName, error) {
	objects, err := r.objects(ctx)
	if err != nil {
		return nil, err
	}
	var keys []types.NamespacedName
	for _, object := range objects {
		if matches(sourceGroup(object), SchemaName(object)) {
			keys = append(keys, Key(object))
		}
	}
	return keys, nil
}

// SchemaName returns the name of the APIResourceSchema in the status of a PublishedResource.
func SchemaName(object client.Object) string { return statusOf(object).ResourceSchemaName }

func sourceGroup(object client.Object) string {
	if older, ok := object.(*servicesv1alpha1.PublishedResource); ok {
		return older.Spec.Resource.APIGroup
	}
	return object.(*syncagentv1alpha1.PublishedResource).Spec.Resource.APIGroup
}

// objects returns all selected PublishedResources.
func (r *Reader) objects(ctx context.Context) ([]client.Object, error) {
	var objects []client.Object
	for _, kind := range r.kinds {
		var err error
		switch kind.(type) {
		case *syncagentv1alpha1.PublishedResource:
			var list syncagentv1alpha1.PublishedResourceList
			err = r.options.Client.List(ctx, &list, client.MatchingLabelsSelector{Selector: r.options.Selector})
			for i := range list.Items {
				objects = append(objects, &list.Items[i])
			}
		case *servicesv1alpha1.PublishedResource:
			var list servicesv1alpha1.PublishedResourceList
			err = r.options.Client.List(ctx, &list, client.MatchingLabelsSelector{Selector: r.options.Selector})
			for i := range list.Items {
				objects = append(objects, &list.Items[i])
			}
		}
		if err != nil {
			return nil, fmt.Errorf("listing PublishedResources: %w", err)
		}
	}
	return objects, nil
}

// List returns all selected publications in the order of their keys.
func (r *Reader) List(ctx context.Context) ([]*publication.Publication, error) {
	objects, err := r.objects(ctx)
	if err != nil {
		return nil, err
	}
	var result []*publication.Publication
	group := sync.OnceValues(func() (string, error) { return r.group(ctx) })
	for _, object := range objects {
		p, err := newPublication(object, group)
		if err != nil {
			return nil, err
		}
		result = append(result, p)
	}
	slices.SortFunc(result, func(a, b *publication.Publication) int {
		return cmp.Compare(Key(a.Object).String(), Key(b.Object).String())
	})
	return result, nil
}

// Get returns one publication. It returns NotFound for a publication that is not selected.
func (r *Reader) Get(ctx context.Context, key types.NamespacedName) (*publication.Publication, error) {
	object, err := r.object(ctx, r.options.Client, key)
	if err != nil {
		return nil, err
	}
	if !r.options.Selector.Matches(labels.Set(object.GetLabels())) {
		return nil, apierrors.NewNotFound(syncagentv1alpha1.Resource("publishedresources"), key.Name)
	}
	return newPublication(object, func() (string, error) { return r.group(ctx) })
}

func (r *Reader) object(ctx context.Context, from client.Reader, key types.NamespacedName) (client.Object, error) {
	for _, kind := range r.kinds {
		object := kind.DeepCopyObject().(client.Object)
		object.SetName(key.Name)
		if Key(object) == key {
			return object, from.Get(ctx, types.NamespacedName{Name: key.Name}, object)
		}
	}
	return nil, apierrors.NewNotFound(syncagentv1alpha1.Resource("publishedresources"), key.Name)
}

// newPublication converts an object. It looks up the group only for the older dialect.
func newPublication(object client.Object, group func() (string, error)) (*publication.Publication, error) {
	older, ok := object.(*servicesv1alpha1.PublishedResource)
	if !ok {
		return publication.FromPublishedResource(object.(*syncagentv1alpha1.PublishedResource)), nil
	}
	name, err := group()
	if err != nil {
		return nil, fmt.Errorf("looking up the API group of the Service: %w", err)
	}
	return kdp.FromPublishedResource(older, name), nil
}

func (r *Reader) group(ctx context.Context) (string, error) {
	if r.options.Group == nil {
		return "", nil
	}
	return r.options.Group(ctx)
}

// ServiceGroup returns the API group of a Service from the annotation of its APIExport.
func ServiceGroup(exports client.Reader, export string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		object := &apisv1alpha1.APIExport{}
		err := exports.Get(ctx, client.ObjectKey{Name: export}, object)
		return object.Annotations[kdpcorev1alpha1.APIGroupAnnotationKey], client.IgnoreNotFound(err)
	}
}

// WriteStatus changes the status of the object of a publication, if the change makes a difference. It derives the condition Ready from
// the others. It returns NotFound if another object of the same name has replaced the object. It decides with the cached version whether
// to write, and changes the version of the server, which includes what other parts of the agent have just written. It may call change
// twice.
func (r *Reader) WriteStatus(ctx context.Context, p *publication.Publication, change func(*syncagentv1alpha1.PublishedResourceStatus)) error {
	if _, after, err := r.change(ctx, r.options.Client, p, change); err != nil || after == nil {
		return err
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { // users also change the object
		before, after, err := r.change(ctx, r.options.Live, p, change)
		if err != nil || after == nil {
			return err
		}
		return r.options.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
}

// change returns the object of a publication before and after a change of its status; after is nil if they are equal.
func (r *Reader) change(
	ctx context.Context, from client.Reader, p *publication.Publication, change func(*syncagentv1alpha1.PublishedResourceStatus),
) (before, after client.Object, err error) {
	if after, err = r.object(ctx, from, Key(p.Object)); err != nil {
		return nil, nil, err
	}
	if after.GetUID() != p.Object.GetUID() {
		return nil, nil, apierrors.NewNotFound(syncagentv1alpha1.Resource("publishedresources"), after.GetName())
	}
	before = after.DeepCopyObject().(client.Object)
	status := statusOf(after)
	change(status)
	setReady(status, after.GetGeneration(), p.Syncs())
	if equality.Semantic.DeepEqual(statusOf(before), status) {
		return before, nil, nil
	}
	return before, after, nil
}

func statusOf(object client.Object) *syncagentv1alpha1.PublishedResourceStatus {
	if older, ok := object.(*servicesv1alpha1.PublishedResource); ok {
		return &older.Status
	}
	return &object.(*syncagentv1alpha1.PublishedResource).Status
}
