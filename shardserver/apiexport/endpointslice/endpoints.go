package endpointslice

import (
	"context"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
)

// applyEndpoints adds and removes endpoints. It does nothing without an export or with an invalid partition.
func (c *sliceController) applyEndpoints(ctx context.Context, slice *apisv1alpha1.APIExportEndpointSlice, o observedState) error {
	if o.export == nil || o.selector == nil {
		return nil
	}
	slice.SetGroupVersionKind(apisv1alpha1.SchemeGroupVersion.WithKind("APIExportEndpointSlice"))
	current := endpoints.EndpointSlice{Slice: slice}
	for _, endpoint := range slice.Status.APIExportEndpoints {
		current.Addresses = append(current.Addresses, endpoint.URL)
	}
	desired := current.DesiredAddresses(o.shards, o.selector, o.hasConsumers, apiindex.VirtualWorkspacePath(apiindex.ExportKeyOf(o.export)))
	return current.Apply(ctx, c.cfg.Clients.Typed, desired)
}
