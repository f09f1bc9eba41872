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

// errNoOwner indicates a bug: the storages below are served in a virtual workspace only.
var errNoOwner = errors.New("no virtual workspace in the request")

// clusterStorage serves the LogicalClusters that wait for the owner of the request, from the storage of the shard. Others
// are not found, and one that stops waiting is reported as deleted to watches.
type clusterStorage struct {
	virtual.Description
	kind  *ownerKind
	store storage.Store
}

var (
	_ rest.Getter  = &clusterStorage{}
	_ rest.Lister  = &clusterStorage{}
	_ rest.Watcher = &clusterStorage{}
)

func (c *clusterStorage) New() runtime.Object     { return c.store.New() }
func (c *clusterStorage) NewList() runtime.Object { return &corev1alpha1.LogicalClusterList{} }
func (c *clusterStorage) Destroy()                {} // the storage is the shard's

// Get implements rest.Getter.
func (c *clusterStorage) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	owner, err := ownerFrom(ctx)
	if err != nil {
		return nil, err
	}
	if cluster, _ := logicalcluster.From(ctx); cluster.IsWildcard() {
		return nil, apierrors.NewBadRequest(`the "*" logical cluster can only be listed and watched`)
	}
	obj, err := c.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	if cluster, ok := obj.(*corev1alpha1.LogicalCluster); !ok || !c.kind.isPending(cluster, owner) {
		return nil, apierrors.NewNotFound(logicalClusters, name)
	}
	return obj, nil
}

// List implements rest.Lister.
func (c *clusterStorage) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	restricted, err := c.restrictOptions(ctx, options)
	if err != nil {
		return nil, err
	}
	return c.store.List(ctx, restricted)
}

// Watch implements rest.Watcher.
func (c *clusterStorage) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	restricted, err := c.restrictOptions(ctx, options)
	if err != nil {
		return nil, err
	}
	return c.store.Watch(ctx, restricted)
}

// restrictOptions adds the labels of the owner to the selector, in every request: continue tokens and resource versions
// carry no authorization.
func (c *clusterStorage) restrictOptions(ctx context.Context, options *internalversion.ListOptions) (*internalversion.ListOptions, error) {
	owner, err := ownerFrom(ctx)
	if err != nil {
		return nil, err
	}
	restricted := internalversion.ListOptions{}
	if options != nil {
		restricted = *options
	}
	restricted.LabelSelector, err = c.kind.restrictSelector(owner, restricted.LabelSelector)
	return &restricted, err
}

// statusStore is the status subresource of the shard.
type statusStore interface {
	rest.Updater
	rest.ResetFieldsStrategy
}

// statusStorage serves the status of the LogicalClusters that wait for the owner of the request.
type statusStorage struct {
	clusters *clusterStorage
	status   statusStore
}

var (
	_ rest.Patcher             = &statusStorage{}
	_ rest.ResetFieldsStrategy = &statusStorage{}
)

func (s *statusStorage) New() runtime.Object { return s.clusters.New() }
func (s *statusStorage) Destroy()            {}

// Get implements rest.Getter.
func (s *statusStorage) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.clusters.Get(ctx, name, options)
}

// Update implements rest.Updater. It validates the change against the stored object inside the transaction, in addition
// to admission.
func (s *statusStorage) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	owner, err := ownerFrom(ctx)
	if err != nil {
		return nil, false, err
	}
	// Check visibility first: a patch is applied before validation, and its error may reveal the content of the object.
	if _, err := s.Get(ctx, name, &metav1.GetOptions{}); err != nil {
		return nil, false, err
	}
	validate := func(ctx context.Context, obj, old runtime.Object) error {
		after, before := obj.(*corev1alpha1.LogicalCluster), old.(*corev1alpha1.LogicalCluster)
		if !s.clusters.kind.isPending(before, owner) {
			return apierrors.NewNotFound(logicalClusters, name)
		}
		if errs := s.clusters.kind.validateStatus(owner, &before.Status, &after.Status); len(errs) > 0 {
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
func (s *statusStorage) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.status.GetResetFields()
}

// ConvertToTable implements rest.TableConvertor.
func (s *statusStorage) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return s.clusters.ConvertToTable(ctx, object, options)
}

// ownerFrom returns the initializer or terminator of the request.
func ownerFrom(ctx context.Context) (string, error) {
	request, ok := virtual.From(ctx)
	if !ok {
		return "", apierrors.NewInternalError(errNoOwner)
	}
	return request.Owner[0], nil
}
