package lifecycle

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

var logicalClusters = corev1alpha1.Resource("logicalclusters")

// errNoOwner is a fault of this program: the storages below are reached through a virtual workspace only.
var errNoOwner = errors.New("no virtual workspace in the request")

// view is the LogicalClusters that wait for the request's owner, read from the storage of the shard. Whoever else's
// exist does not show: not by name, not in lists, and one that waits no longer leaves watches as a deletion.
type view struct {
	kind  *kind
	store storage.Store
}

var (
	_ rest.Getter               = &view{}
	_ rest.Lister               = &view{}
	_ rest.Watcher              = &view{}
	_ rest.Scoper               = &view{}
	_ rest.SingularNameProvider = &view{}
)

func (v *view) New() runtime.Object     { return v.store.New() }
func (v *view) NewList() runtime.Object { return &corev1alpha1.LogicalClusterList{} }
func (v *view) Destroy()                {} // the storage is the shard's
func (v *view) NamespaceScoped() bool   { return false }
func (v *view) GetSingularName() string { return "logicalcluster" }

// Get implements rest.Getter.
func (v *view) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	owner, err := ownerOf(ctx)
	if err != nil {
		return nil, err
	}
	if cluster, _ := logicalcluster.From(ctx); cluster.IsWildcard() {
		return nil, apierrors.NewBadRequest(`the "*" logical cluster can only be listed and watched`)
	}
	obj, err := v.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	if cluster, ok := obj.(*corev1alpha1.LogicalCluster); !ok || !v.kind.waits(cluster, owner) {
		return nil, apierrors.NewNotFound(logicalClusters, name)
	}
	return obj, nil
}

// List implements rest.Lister.
func (v *view) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	narrowed, err := v.narrowed(ctx, options)
	if err != nil {
		return nil, err
	}
	return v.store.List(ctx, narrowed)
}

// Watch implements rest.Watcher.
func (v *view) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	narrowed, err := v.narrowed(ctx, options)
	if err != nil {
		return nil, err
	}
	return v.store.Watch(ctx, narrowed)
}

// narrowed puts the owner's labels into the selector of every single request: a continue token or a resource version
// says where to go on, not what may be seen.
func (v *view) narrowed(ctx context.Context, options *internalversion.ListOptions) (*internalversion.ListOptions, error) {
	owner, err := ownerOf(ctx)
	if err != nil {
		return nil, err
	}
	narrowed := internalversion.ListOptions{}
	if options != nil {
		narrowed = *options
	}
	narrowed.LabelSelector, err = v.kind.selector(owner, narrowed.LabelSelector)
	return &narrowed, err
}

// ConvertToTable implements rest.TableConvertor.
func (v *view) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return v.store.(rest.TableConvertor).ConvertToTable(ctx, object, options)
}

// statusStore is what the status subresource of the shard offers.
type statusStore interface {
	rest.Updater
	rest.ResetFieldsStrategy
}

// statusView is the status of the LogicalClusters that wait for the request's owner.
type statusView struct {
	view   *view
	status statusStore
}

var (
	_ rest.Patcher             = &statusView{}
	_ rest.ResetFieldsStrategy = &statusView{}
)

func (s *statusView) New() runtime.Object { return s.view.New() }
func (s *statusView) Destroy()            {}

// Get implements rest.Getter.
func (s *statusView) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.view.Get(ctx, name, options)
}

// Update implements rest.Updater. A change is looked at inside the transaction that makes it, against what is stored
// then, beside whatever admission has to say.
func (s *statusView) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	owner, err := ownerOf(ctx)
	if err != nil {
		return nil, false, err
	}
	// A patch is applied to the object before it is validated, and its failure may tell of the object.
	if _, err := s.Get(ctx, name, &metav1.GetOptions{}); err != nil {
		return nil, false, err
	}
	validate := func(ctx context.Context, obj, old runtime.Object) error {
		after, before := obj.(*corev1alpha1.LogicalCluster), old.(*corev1alpha1.LogicalCluster)
		if !s.view.kind.waits(before, owner) {
			return apierrors.NewNotFound(logicalClusters, name)
		}
		if errs := s.view.kind.validateStatus(owner, &before.Status, &after.Status); len(errs) > 0 {
			return apierrors.NewInvalid(corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster").GroupKind(), name, errs)
		}
		if updateValidation == nil {
			return nil
		}
		return updateValidation(ctx, obj, old)
	}
	return s.status.Update(ctx, name, objInfo, createValidation, validate, false, options)
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (s *statusView) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.status.GetResetFields()
}

// ConvertToTable implements rest.TableConvertor.
func (s *statusView) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return s.view.ConvertToTable(ctx, object, options)
}

// ownerOf returns the initializer or terminator of the request.
func ownerOf(ctx context.Context) (string, error) {
	request, ok := virtual.From(ctx)
	if !ok {
		return "", apierrors.NewInternalError(errNoOwner)
	}
	return request.Owner[0], nil
}
