package store

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/scope"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Create stores an object unchanged except for its scope. An object with the annotation of a shard is a copy: it keeps
// its uid, generation and creation timestamp. All others get new ones.
func (s *Store) Create(ctx context.Context, obj *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	if obj.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if obj.GetName() == "" {
		return nil, s.newInvalidError(obj, field.Required(field.NewPath("metadata", "name"), "name is required"))
	}
	if err := s.checkNamespace(ctx, obj); err != nil {
		return nil, err
	}
	key, err := s.key(ctx, obj.GetName())
	if err != nil {
		return nil, err
	}
	obj = obj.DeepCopy()
	if obj.GetAnnotations()[client.ShardAnnotation] == "" {
		obj.SetUID("")
		obj.SetGeneration(1)
		obj.SetCreationTimestamp(metav1.Time{})
	}
	if obj.GetUID() == "" {
		obj.SetUID(uuid.NewUUID())
	}
	if created := obj.GetCreationTimestamp(); created.IsZero() {
		obj.SetCreationTimestamp(metav1.Now())
	}
	setScope(ctx, obj)
	if err := s.admit(ctx, obj, nil); err != nil {
		return nil, err
	}
	if dryRun {
		return obj, s.checkNotExists(ctx, key, obj.GetName())
	}
	out := &unstructured.Unstructured{}
	if err := s.storage.Create(ctx, key, obj, out, 0); err != nil {
		return nil, storeerr.InterpretCreateError(err, s.resource.GroupResource(), obj.GetName())
	}
	return out, nil
}

// Update stores the result of change, which must return an object of the same name. It returns a conflict if the result
// has another resource version or uid than the existing object; change may leave them unset. Specification and status
// are updated together.
func (s *Store) Update(ctx context.Context, name string, change func(existing *unstructured.Unstructured) (*unstructured.Unstructured, error), dryRun bool) (*unstructured.Unstructured, error) {
	key, err := s.key(ctx, name)
	if err != nil {
		return nil, err
	}
	update := func(current runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		existing := current.(*unstructured.Unstructured)
		obj, err := change(existing.DeepCopy())
		if err != nil {
			return nil, nil, err
		}
		if err := s.checkUpdate(ctx, existing, obj); err != nil {
			return nil, nil, err
		}
		obj.SetUID(existing.GetUID())
		obj.SetCreationTimestamp(existing.GetCreationTimestamp())
		if obj.GetGeneration() == 0 && existing.GetGeneration() != 0 {
			obj.SetGeneration(existing.GetGeneration())
		}
		setScope(ctx, obj)
		return obj, nil, s.admit(ctx, obj, existing)
	}
	out := &unstructured.Unstructured{}
	if dryRun {
		if err := s.storage.Get(ctx, key, storage.GetOptions{}, out); err != nil {
			return nil, storeerr.InterpretUpdateError(err, s.resource.GroupResource(), name)
		}
		obj, _, err := update(out, storage.ResponseMeta{})
		if err != nil {
			return nil, err
		}
		return obj.(*unstructured.Unstructured), nil
	}
	if err := s.storage.GuaranteedUpdate(ctx, key, out, false, nil, update, nil); err != nil {
		return nil, storeerr.InterpretUpdateError(err, s.resource.GroupResource(), name)
	}
	return out, nil
}

func (s *Store) checkUpdate(ctx context.Context, existing, obj *unstructured.Unstructured) error {
	gr := s.resource.GroupResource()
	if obj.GetName() != existing.GetName() {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), existing.GetName()))
	}
	if err := s.checkNamespace(ctx, obj); err != nil {
		return err
	}
	switch version := obj.GetResourceVersion(); {
	case version == "":
		return s.newInvalidError(obj, field.Invalid(field.NewPath("metadata", "resourceVersion"), version, "must be specified for an update"))
	case version != existing.GetResourceVersion():
		return apierrors.NewConflict(gr, obj.GetName(), fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if uid := obj.GetUID(); uid != "" && uid != existing.GetUID() {
		return apierrors.NewConflict(gr, obj.GetName(), fmt.Errorf("the object in the cache has the uid %s, not %s", existing.GetUID(), uid))
	}
	return nil
}

// Delete implements rest.GracefulDeleter. Finalizers are ignored.
func (s *Store) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	key, err := s.key(ctx, name)
	if err != nil {
		return nil, false, err
	}
	preconditions := &storage.Preconditions{}
	if given := options.Preconditions; given != nil {
		preconditions.UID, preconditions.ResourceVersion = given.UID, given.ResourceVersion
	}
	if validate == nil {
		validate = rest.ValidateAllObjectFunc
	}
	gr, out := s.resource.GroupResource(), &unstructured.Unstructured{}
	if dryrun.IsDryRun(options.DryRun) {
		if err := s.storage.Get(ctx, key, storage.GetOptions{}, out); err != nil {
			return nil, false, storeerr.InterpretDeleteError(err, gr, name)
		}
		if err := preconditions.Check(key, out); err != nil {
			return nil, false, storeerr.InterpretDeleteError(err, gr, name)
		}
	} else if err := s.storage.Delete(ctx, key, out, preconditions, storage.ValidateObjectFunc(validate), nil, storage.DeleteOptions{}); err != nil {
		return nil, false, storeerr.InterpretDeleteError(err, gr, name)
	}
	return &metav1.Status{
		Status:  metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: name, Group: gr.Group, Kind: gr.Resource, UID: out.GetUID()},
	}, true, nil
}

// DeleteCollection implements rest.CollectionDeleter, for one logical cluster of one shard.
func (s *Store) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, listOptions *internalversion.ListOptions) (runtime.Object, error) {
	if _, err := s.key(request.WithNamespace(ctx, "-"), "-"); err != nil { // rejects wildcards
		return nil, err
	}
	found, err := s.List(ctx, listOptions)
	if err != nil {
		return nil, err
	}
	list := found.(*unstructured.UnstructuredList)
	for i := range list.Items {
		item := &list.Items[i]
		itemCtx := ctx
		if s.resource.Namespaced {
			itemCtx = request.WithNamespace(ctx, item.GetNamespace())
		}
		if _, _, err := s.Delete(itemCtx, item.GetName(), validate, options.DeepCopy()); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return list, nil
}

// setScope sets shard and logical cluster of the URL in the object. It removes a deletion timestamp: objects of a cache
// are deleted immediately.
func setScope(ctx context.Context, obj *unstructured.Unstructured) {
	target, _ := scope.FromContext(ctx)
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[client.ShardAnnotation] = target.Shard
	annotations[logicalcluster.AnnotationKey] = target.Cluster.String()
	obj.SetAnnotations(annotations)
	obj.SetNamespace(request.NamespaceValue(ctx))
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
}

func (s *Store) checkNamespace(ctx context.Context, obj *unstructured.Unstructured) error {
	if given, wanted := obj.GetNamespace(), request.NamespaceValue(ctx); given != "" && given != wanted {
		return apierrors.NewBadRequest(fmt.Sprintf("the namespace of the provided object (%s) does not match the namespace sent on the request (%s)", given, wanted))
	}
	return nil
}

func (s *Store) checkNotExists(ctx context.Context, key, name string) error {
	err := s.storage.Get(ctx, key, storage.GetOptions{}, &unstructured.Unstructured{})
	switch {
	case err == nil:
		return apierrors.NewAlreadyExists(s.resource.GroupResource(), name)
	case storage.IsNotFound(err):
		return nil
	}
	return storeerr.InterpretGetError(err, s.resource.GroupResource(), name)
}

func (s *Store) newInvalidError(obj *unstructured.Unstructured, problem *field.Error) error {
	return apierrors.NewInvalid(s.resource.GroupVersionKind().GroupKind(), obj.GetName(), field.ErrorList{problem})
}
