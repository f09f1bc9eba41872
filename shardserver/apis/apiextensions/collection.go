package apiextensions

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// collectionDeleter deletes each definition of a collection like a single one, with its finalizer. Upstream's deletion
// of a collection skips the finalizer, so the objects would stay in storage without their definition.
type collectionDeleter struct {
	*customresourcedefinition.REST
}

var _ rest.CollectionDeleter = collectionDeleter{}

// DeleteCollection implements rest.CollectionDeleter.
func (c collectionDeleter) DeleteCollection(ctx context.Context, validation rest.ValidateObjectFunc, options *metav1.DeleteOptions, listOptions *internalversion.ListOptions) (runtime.Object, error) {
	list, err := c.List(ctx, listOptions)
	if err != nil {
		return nil, err
	}
	return list, meta.EachListItem(list, func(obj runtime.Object) error {
		definition, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		if _, _, err := c.Delete(ctx, definition.GetName(), validation, options.DeepCopy()); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}
