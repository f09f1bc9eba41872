// Package endpoints contains what all endpoint slices have in common. The status of a slice has one address for each
// shard with consumers. The shard of the slice applies each address with the name of the consuming shard as the field
// manager. A partition selects the shards that a slice is for, and consumers choose the address for their shard
// (Choose).
package endpoints

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// EndpointSlice is a slice whose status lists addresses.
type EndpointSlice struct {
	// Slice has its type set.
	Slice client.Object
	// Addresses are its current addresses.
	Addresses []string
}

// DesiredAddresses maps shards to their addresses in a slice, "" for none. Other shards keep theirs.
type DesiredAddresses map[string]string

// DesiredAddresses returns the desired addresses of all existing shards in a slice. A shard that the selector does not
// match keeps its address, and so does a shard of which it is unknown whether it has consumers. The address of a shard
// is the URL of its virtual workspaces with the suffix. The address of a deleted shard is removed.
func (e EndpointSlice) DesiredAddresses(shards []*corev1alpha1.Shard, selector labels.Selector, consumed func(shard string) (consumed, known bool), suffix string) DesiredAddresses {
	desired, known := DesiredAddresses{}, map[string]bool{}
	for _, shard := range shards {
		known[shard.Name] = true
		if shard.Spec.VirtualWorkspaceURL == "" || !selector.Matches(labels.Set(shard.Labels)) {
			continue
		}
		switch isConsumed, certain := consumed(shard.Name); {
		case isConsumed:
			desired[shard.Name] = strings.TrimSuffix(shard.Spec.VirtualWorkspaceURL, "/") + suffix
		case certain:
			desired[shard.Name] = ""
		}
	}
	for _, entry := range e.Slice.GetManagedFields() {
		managed := ownedAddresses(e.Slice, e.Addresses, entry.Manager)
		if !known[entry.Manager] && len(managed) > 0 && !slices.ContainsFunc(managed, func(address string) bool { return !strings.HasSuffix(address, suffix) }) {
			desired[entry.Manager] = "" // the shard was deleted
		}
	}
	return desired
}

// Apply writes the desired addresses to the status of a slice.
func (e EndpointSlice) Apply(ctx context.Context, writer client.Client, desired DesiredAddresses) error {
	for _, manager := range slices.Sorted(maps.Keys(desired)) {
		if err := ApplyAddress(ctx, writer, e.Slice, e.Addresses, desired[manager], manager); err != nil {
			return err
		}
	}
	return nil
}

// ApplyAddress sets the address of one shard in the status of a slice, or removes it for "", by server-side apply:
// addresses of other field managers stay. addresses are the current addresses of the slice, manager is the name of the
// shard. The type of the slice must be set.
func ApplyAddress(ctx context.Context, writer client.Client, slice client.Object, addresses []string, address, manager string) error {
	if isUpToDate(addresses, address, ownedAddresses(slice, addresses, manager)) {
		return nil
	}
	entries := []map[string]string{}
	if address != "" {
		entries = append(entries, map[string]string{"url": address})
	}
	version, kind := slice.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	text, err := json.Marshal(map[string]any{
		"apiVersion": version,
		"kind":       kind,
		"metadata":   map[string]any{"name": slice.GetName(), "uid": slice.GetUID()},
		"status":     map[string]any{"endpoints": entries},
	})
	if err != nil {
		return err
	}
	target, ok := slice.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("the copy of a %T is not an object", slice)
	}
	err = writer.Status().Patch(ctx, target, client.RawPatch(types.ApplyPatchType, text), client.FieldOwner(manager), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("applying the address of shard %q to %s %q: %w", manager, kind, slice.GetName(), err)
	}
	return nil
}

// ownedAddresses returns those of the addresses that a manager has applied to a slice.
func ownedAddresses(slice metav1.Object, addresses []string, manager string) []string {
	var owned []string
	for _, entry := range slice.GetManagedFields() {
		if entry.Manager != manager || entry.Subresource != "status" || entry.FieldsV1 == nil {
			continue
		}
		fields := entry.FieldsV1.GetRawString()
		for _, address := range addresses {
			quoted, _ := json.Marshal(address) // a string can always be encoded
			inner, _ := json.Marshal(`k:{"url":` + string(quoted) + `}`)
			if strings.Contains(fields, string(inner)) {
				owned = append(owned, address)
			}
		}
	}
	return owned
}

// isUpToDate reports whether a slice has the address of this shard, none for "", and no other address of this shard.
func isUpToDate(addresses []string, address string, owned []string) bool {
	if address == "" {
		return len(owned) == 0
	}
	return len(owned) == 1 && owned[0] == address && slices.Contains(addresses, address)
}
