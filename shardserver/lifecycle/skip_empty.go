package lifecycle

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// emptyResourcesKey is the context key of the resources without objects in the namespace that is being emptied: a
// map[schema.GroupVersionResource]bool.
type emptyResourcesKey struct{}

// skipEmptyClient is a metadata client that sends no requests for resources without objects, according to the context.
// Upstream's namespace deleter offers no option for that.
type skipEmptyClient struct{ metadata.Interface }

func (c skipEmptyClient) Resource(resource schema.GroupVersionResource) metadata.Getter {
	return skipEmptyGetter{c.Interface.Resource(resource), resource}
}

type skipEmptyGetter struct {
	metadata.Getter
	resource schema.GroupVersionResource
}

func (g skipEmptyGetter) Namespace(namespace string) metadata.ResourceInterface {
	return skipEmptyResource{g.Getter.Namespace(namespace), g.resource}
}

type skipEmptyResource struct {
	metadata.ResourceInterface
	resource schema.GroupVersionResource
}

func (r skipEmptyResource) isEmpty(ctx context.Context) bool {
	empty, _ := ctx.Value(emptyResourcesKey{}).(map[schema.GroupVersionResource]bool)
	return empty[r.resource]
}

func (r skipEmptyResource) DeleteCollection(ctx context.Context, options metav1.DeleteOptions, listOptions metav1.ListOptions) error {
	if r.isEmpty(ctx) {
		return nil
	}
	return r.ResourceInterface.DeleteCollection(ctx, options, listOptions)
}

func (r skipEmptyResource) List(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	if r.isEmpty(ctx) {
		return &metav1.PartialObjectMetadataList{}, nil
	}
	return r.ResourceInterface.List(ctx, options)
}
