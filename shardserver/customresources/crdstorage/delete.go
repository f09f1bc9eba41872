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
	key := s.Prefix() + "/" + name
	if namespace := request.NamespaceValue(ctx); namespace != "" {
		key = s.Prefix() + "/" + namespace + "/" + name
	}
	validate := func(_ context.Context, obj runtime.Object) error {
		object, ok := obj.(*Object)
		if !ok {
			return fmt.Errorf("a stored custom resource cannot be a %T", obj)
		}
		if finalizers := object.GetFinalizers(); len(finalizers) > 0 {
			return apierrors.NewConflict(s.resource, name, fmt.Errorf("it waits for its finalizers %q", finalizers))
		}
		return nil
	}
	err := s.objects.Delete(ctx, key, &Object{}, preconditions, validate, nil, storage.DeleteOptions{})
	switch {
	case storage.IsNotFound(err):
		return apierrors.NewGenericServerResponse(http.StatusNotFound, "delete", s.resource, name, "", 0, true)
	case storage.IsInvalidObj(err), storage.IsConflict(err):
		return apierrors.NewConflict(s.resource, name, err)
	}
	return err
}
