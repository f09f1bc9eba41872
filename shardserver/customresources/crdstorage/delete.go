package crdstorage

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
)

// DeleteUndecoded deletes an object of the context's logical cluster and namespace ("" for none) without decoding it, hence
// without a conversion webhook. It fails with Conflict if the object has finalizers or does not meet the preconditions,
// which may be nil, and with NotFound if the object does not exist.
func (s *Storage) DeleteUndecoded(ctx context.Context, name string, preconditions *storage.Preconditions) error {
	return s.deleteKey(ctx, name, preconditions, func(object *Object) error {
		if finalizers := object.GetFinalizers(); len(finalizers) > 0 {
			return apierrors.NewConflict(s.resource, name, fmt.Errorf("it waits for its finalizers %q", finalizers))
		}
		return nil
	})
}

// DeleteUnreachable is DeleteUndecoded for an object that no request can name, because it is stored with a namespace and its
// definition has none, or the reverse. Finalizers do not hold it: no client could remove them.
func (s *Storage) DeleteUnreachable(ctx context.Context, name string, preconditions *storage.Preconditions) error {
	return s.deleteKey(ctx, name, preconditions, func(*Object) error { return nil })
}

// deleteKey deletes the object that is stored under the namespace of the context and the name, whatever the scope of its
// definition, if validate accepts it.
func (s *Storage) deleteKey(ctx context.Context, name string, preconditions *storage.Preconditions, validate func(*Object) error) error {
	key := s.Prefix() + "/" + name
	if namespace := request.NamespaceValue(ctx); namespace != "" {
		key = s.Prefix() + "/" + namespace + "/" + name
	}
	validateObject := func(_ context.Context, obj runtime.Object) error {
		object, ok := obj.(*Object)
		if !ok {
			return fmt.Errorf("a stored custom resource cannot be a %T", obj)
		}
		return validate(object)
	}
	err := s.objects.Delete(ctx, key, &Object{}, preconditions, validateObject, nil, storage.DeleteOptions{})
	switch {
	case storage.IsNotFound(err):
		return apierrors.NewGenericServerResponse(http.StatusNotFound, "delete", s.resource, name, "", 0, true)
	case storage.IsInvalidObj(err), storage.IsConflict(err):
		return apierrors.NewConflict(s.resource, name, err)
	}
	return err
}
