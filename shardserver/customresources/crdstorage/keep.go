package crdstorage

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// Keep stores an object as it is in the logical cluster of the context, in the place of one of its name. What is stored
// like this was decided upon elsewhere: there is no admission, no validation, and nothing is counted.
func (s *Storage) Keep(ctx context.Context, object *Object) error {
	key, err := s.key(object)
	if err != nil {
		return err
	}
	err = s.objects.GuaranteedUpdate(ctx, key, &Object{}, true, nil, func(runtime.Object, storage.ResponseMeta) (runtime.Object, *uint64, error) {
		return object.DeepCopyObject(), nil, nil
	}, nil)
	if err != nil {
		return fmt.Errorf("keeping %q of %s: %w", object.GetName(), s.resource, err)
	}
	return nil
}

// Drop removes what Keep has stored under a name. It need not be there.
func (s *Storage) Drop(ctx context.Context, name string) error {
	err := s.objects.Delete(ctx, s.Prefix()+"/"+name, &Object{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	if err != nil && !storage.IsNotFound(err) {
		return fmt.Errorf("dropping %q of %s: %w", name, s.resource, err)
	}
	return nil
}
