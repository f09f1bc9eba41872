package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// WithRequestInfo returns a context for a write that calls a stock registry directly. The registry validates the object
// in the version of the request and as the subresource of the request, which may be empty.
func WithRequestInfo(ctx context.Context, verb string, resource schema.GroupVersionResource, subresource string) context.Context {
	return request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true,
		Verb:              verb,
		APIGroup:          resource.Group,
		APIVersion:        resource.Version,
		Resource:          resource.Resource,
		Subresource:       subresource,
	})
}
