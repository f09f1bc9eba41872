package virtual

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// IsVisible reports whether an object of the context's logical cluster exists and matches. A consistent read (latest) follows
// one from the watch cache, which may lag behind a new object or label.
func IsVisible(ctx context.Context, store rest.Getter, namespace, name string, matches func(object metav1.Object, latest bool) (bool, error)) (bool, error) {
	ctx = request.WithNamespace(ctx, namespace)
	for _, version := range []string{"0", ""} {
		found, err := store.Get(ctx, name, &metav1.GetOptions{ResourceVersion: version})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		object, err := meta.Accessor(found)
		if err != nil {
			return false, err
		}
		if visible, err := matches(object, version == ""); visible || err != nil {
			return visible, err
		}
	}
	return false, nil
}
