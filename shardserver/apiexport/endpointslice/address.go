package endpointslice

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apiexport"
	"github.com/atoll-dev/atoll/shardserver/endpoints"
)

// wanted returns the address that this shard shall have in a slice, "" for none. A shard that has nothing to say about
// a slice, because the slice is not for it, leaves the list as it is.
func wanted(o observed) (address string, ours bool) {
	if o.export == nil || o.selector == nil || o.shard == nil || o.shard.Spec.VirtualWorkspaceURL == "" {
		return "", false
	}
	if !o.selector.Matches(labels.Set(o.shard.Labels)) {
		return "", false
	}
	if !o.consumed {
		return "", true
	}
	return apiexport.VirtualWorkspaceURL(o.shard, apiexport.ExportOf(o.export)), true
}

// apply adds or removes this shard's address.
func (c *sliceController) apply(ctx context.Context, slice *apisv1alpha1.APIExportEndpointSlice, o observed) error {
	address, ours := wanted(o)
	if !ours {
		return nil
	}
	slice.SetGroupVersionKind(apisv1alpha1.SchemeGroupVersion.WithKind("APIExportEndpointSlice"))
	listed := make([]string, 0, len(slice.Status.APIExportEndpoints))
	for _, endpoint := range slice.Status.APIExportEndpoints {
		listed = append(listed, endpoint.URL)
	}
	return endpoints.List(ctx, c.cfg.Clients.Typed, slice, listed, address, c.cfg.ShardName)
}
