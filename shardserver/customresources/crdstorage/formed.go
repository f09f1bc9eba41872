package crdstorage

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// formedStorage is the shared storage as read through a view: selectors are those of the content, objects are in the
// form that its clients see, or as stored where only their metadata matters. Events of watches stay as they are, in
// the envelope that shares one encoding among watchers: their encoder forms them.
type formedStorage struct {
	storage.Interface
	view     *View
	asStored bool
}

// Get implements storage.Interface.
func (s *formedStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if err := s.Interface.Get(ctx, key, opts, out); err != nil || s.asStored {
		return err
	}
	obj, ok := out.(*Object)
	if !ok {
		return fmt.Errorf("reading a stored custom resource into %T is not possible", out)
	}
	formed, err := s.view.form(obj)
	if err != nil {
		return err
	}
	*obj = *formed
	return nil
}

// GetList implements storage.Interface.
func (s *formedStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	list, ok := out.(*List)
	if !ok {
		return fmt.Errorf("listing stored custom resources into %T is not possible", out)
	}
	if err := s.view.list(ctx, key, opts, list); err != nil || s.asStored {
		return err
	}
	for i := range list.Items {
		formed, err := s.view.form(&list.Items[i])
		if err != nil {
			return err
		}
		list.Items[i] = *formed
	}
	return nil
}

// Watch implements storage.Interface.
func (s *formedStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return s.view.watch(ctx, key, opts)
}
