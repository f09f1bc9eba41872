package admin

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

var shards = corev1alpha1.Resource("shards")

// errOwned is the reason of a refused write.
var errOwned = errors.New("Shard objects are owned by the shards: only metadata.annotations[" + corev1alpha1.UnschedulableAnnotationKey + "] and spec.resourceLimits can be changed here")

type updater interface {
	rest.Updater
	rest.ResetFieldsStrategy
}

// shardStorage serves the Shards in root. It has no create and no delete, so that discovery does not list them.
type shardStorage struct {
	virtual.Description
	store   storage.Store
	updater updater
}

var (
	_ rest.Getter              = &shardStorage{}
	_ rest.Lister              = &shardStorage{}
	_ rest.Watcher             = &shardStorage{}
	_ rest.Patcher             = &shardStorage{}
	_ rest.ResetFieldsStrategy = &shardStorage{}
)

func (s *shardStorage) New() runtime.Object     { return s.store.New() }
func (s *shardStorage) NewList() runtime.Object { return &corev1alpha1.ShardList{} }
func (s *shardStorage) Destroy()                {} // the storage is the shard's

// Get implements rest.Getter.
func (s *shardStorage) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// List implements rest.Lister.
func (s *shardStorage) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	return s.store.List(ctx, options)
}

// Watch implements rest.Watcher.
func (s *shardStorage) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	return s.store.Watch(ctx, options)
}

// Update implements rest.Updater. It compares with the stored object inside the transaction, in addition to admission.
func (s *shardStorage) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	validate := func(ctx context.Context, obj, old runtime.Object) error {
		if !isAllowedChange(obj.(*corev1alpha1.Shard), old.(*corev1alpha1.Shard)) {
			return apierrors.NewForbidden(shards, name, errOwned)
		}
		if updateValidation == nil {
			return nil
		}
		return updateValidation(kcpcore.WithDecision(ctx), obj, old)
	}
	return s.updater.Update(ctx, name, objInfo, createValidation, validate, false, options)
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (s *shardStorage) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.updater.GetResetFields()
}

// isAllowedChange reports whether two Shards differ in what administrators decide only.
func isAllowedChange(a, b *corev1alpha1.Shard) bool {
	return equality.Semantic.DeepEqual(withoutDecisions(a), withoutDecisions(b))
}

// withoutDecisions returns a copy without what administrators decide, and what servers set with each write.
func withoutDecisions(shard *corev1alpha1.Shard) *corev1alpha1.Shard {
	out := shard.DeepCopy()
	delete(out.Annotations, corev1alpha1.UnschedulableAnnotationKey)
	if len(out.Annotations) == 0 {
		out.Annotations = nil
	}
	out.Spec.ResourceLimits = nil
	out.ManagedFields, out.ResourceVersion, out.Generation = nil, "", 0
	return out
}
