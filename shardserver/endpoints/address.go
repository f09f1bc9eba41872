// Package endpoints is what all endpoint slices have in common: every shard lists its own address in their status, as a
// field manager of its own, so that shards need not know of one another; a partition says which shards a slice is for;
// and consumers choose the address for their shard (Choose).
package endpoints

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// List has the status of a slice list one address of this shard, or none for "", by server-side apply: what others have
// listed stays. listed are the addresses that the slice has now, manager is the name of the shard. The slice has its
// type set.
func List(ctx context.Context, writer client.Client, slice client.Object, listed []string, address, manager string) error {
	if isDone(listed, address, owned(slice, listed, manager)) {
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
		return fmt.Errorf("a copy of a %T is no object", slice)
	}
	err = writer.Status().Patch(ctx, target, client.RawPatch(types.ApplyPatchType, text), client.FieldOwner(manager), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("listing the address of this shard in %s %q: %w", kind, slice.GetName(), err)
	}
	return nil
}

// owned returns those of the addresses that a manager has applied to a slice.
func owned(slice metav1.Object, listed []string, manager string) []string {
	var owned []string
	for _, entry := range slice.GetManagedFields() {
		if entry.Manager != manager || entry.Subresource != "status" || entry.FieldsV1 == nil {
			continue
		}
		fields := entry.FieldsV1.GetRawString()
		for _, address := range listed {
			quoted, _ := json.Marshal(address) // a string can always be encoded
			inner, _ := json.Marshal(`k:{"url":` + string(quoted) + `}`)
			if strings.Contains(fields, string(inner)) {
				owned = append(owned, address)
			}
		}
	}
	return owned
}

// isDone tells whether a slice has the address of this shard, none for "", and no other of its own.
func isDone(listed []string, address string, owned []string) bool {
	if address == "" {
		return len(owned) == 0
	}
	return len(owned) == 1 && owned[0] == address && slices.Contains(listed, address)
}
