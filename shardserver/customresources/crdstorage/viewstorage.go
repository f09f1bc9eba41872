package crdstorage

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// viewStorage reads the shared storage through a view: it selects by the fields of the compiled CRD and returns the variants
// of the objects in the view, or the stored objects for metadata. Watch events keep their envelope, which shares one
// encoding among watchers; the encoder decodes and converts their objects.
type viewStorage struct {
	storage.Interface
	view     *View
	asStored bool
}

// Get implements storage.Interface.
func (s *viewStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if err := s.Interface.Get(ctx, key, opts, out); err != nil || s.asStored {
		return err
	}
	obj, ok := out.(*Object)
	if !ok {
		return fmt.Errorf("reading a stored custom resource into %T is not possible", out)
	}
	variant, err := s.view.getVariant(obj)
	if err != nil {
		return newCorruptObjectError(key, obj, err)
	}
	*obj = *variant
	return nil
}

// newCorruptObjectError returns the error of the upstream storage for an object that cannot be decoded.
func newCorruptObjectError(key string, obj *Object, err error) error {
	return storage.NewCorruptObjError(key, fmt.Errorf("object not decodable revision=%d: %w", obj.resourceVersion, err))
}

// GetList implements storage.Interface.
func (s *viewStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	list, ok := out.(*List)
	if !ok {
		return fmt.Errorf("listing stored custom resources into %T is not possible", out)
	}
	if err := s.view.listObjects(ctx, key, opts, list); err != nil || s.asStored {
		return err
	}
	for i := range list.Items {
		variant, err := s.view.getVariant(&list.Items[i])
		if err != nil {
			return err
		}
		list.Items[i] = *variant
	}
	return nil
}

// Watch implements storage.Interface.
func (s *viewStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return s.view.watchObjects(ctx, key, opts)
}
