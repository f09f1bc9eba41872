package endpointslice

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apiexport"
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

// apply adds or removes this shard's address, by server-side apply: what others have listed stays.
func (c *sliceController) apply(ctx context.Context, slice *apisv1alpha1.APIExportEndpointSlice, o observed) error {
	address, ours := wanted(o)
	if !ours || lists(slice, address, c.owned(slice)) {
		return nil
	}
	endpoints := []map[string]string{}
	if address != "" {
		endpoints = append(endpoints, map[string]string{"url": address})
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": apisv1alpha1.SchemeGroupVersion.String(),
		"kind":       "APIExportEndpointSlice",
		"metadata":   map[string]any{"name": slice.Name, "uid": slice.UID},
		"status":     map[string]any{"endpoints": endpoints},
	})
	if err != nil {
		return err
	}
	err = c.cfg.Clients.Typed.Status().Patch(ctx, &apisv1alpha1.APIExportEndpointSlice{ObjectMeta: *slice.ObjectMeta.DeepCopy()},
		client.RawPatch(types.ApplyPatchType, text), client.FieldOwner(c.cfg.ShardName), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("listing the address of this shard in APIExportEndpointSlice %q: %w", slice.Name, err)
	}
	return nil
}

// owned returns the addresses that this shard has applied to a slice before.
func (c *sliceController) owned(slice *apisv1alpha1.APIExportEndpointSlice) []string {
	var owned []string
	for _, entry := range slice.ManagedFields {
		if entry.Manager != c.cfg.ShardName || entry.Subresource != "status" || entry.FieldsV1 == nil {
			continue
		}
		fields := string(entry.FieldsV1.Raw)
		for _, endpoint := range slice.Status.APIExportEndpoints {
			quoted, _ := json.Marshal(endpoint.URL) // a string can always be encoded
			inner, _ := json.Marshal(`k:{"url":` + string(quoted) + `}`)
			if strings.Contains(fields, string(inner)) {
				owned = append(owned, endpoint.URL)
			}
		}
	}
	return owned
}

// lists tells whether a slice has the address of this shard, none for "", and no other of its own.
func lists(slice *apisv1alpha1.APIExportEndpointSlice, address string, owned []string) bool {
	if address == "" {
		return len(owned) == 0
	}
	if len(owned) != 1 || owned[0] != address {
		return false
	}
	for _, endpoint := range slice.Status.APIExportEndpoints {
		if endpoint.URL == address {
			return true
		}
	}
	return false
}
