package crdstorage

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// Put creates or replaces an object in the logical cluster of the context, without admission, validation and quota. It is
// for copies of the objects of other shards. check is called before each attempt; its error ends the call.
func (s *Storage) Put(ctx context.Context, object *Object, check func(context.Context) error) error {
	key, err := s.key(object)
	if err != nil {
		return err
	}
	err = s.objects.GuaranteedUpdate(ctx, key, &Object{}, true, nil, func(runtime.Object, storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if err := check(ctx); err != nil {
			return nil, nil, err
		}
		return object.DeepCopyObject(), nil, nil
	}, nil)
	if err != nil {
		return fmt.Errorf("storing %q of %s: %w", object.GetName(), s.resource, err)
	}
	return nil
}

// Delete deletes an object that Put has stored, whatever its finalizers. A missing object is no error. check is
// that of Put.
func (s *Storage) Delete(ctx context.Context, name string, check func(context.Context) error) error {
	validate := func(ctx context.Context, _ runtime.Object) error { return check(ctx) }
	err := s.objects.Delete(ctx, s.Prefix()+"/"+name, &Object{}, nil, validate, nil, storage.DeleteOptions{})
	if err != nil && !storage.IsNotFound(err) {
		return fmt.Errorf("deleting %q of %s: %w", name, s.resource, err)
	}
	return nil
}
