// Package endpoints is what all endpoint slices have in common: their status has one address for each shard with
// consumers, which the shard of the slice lists as a field manager named like the other shard, as if that had done it; a
// partition says which shards a slice is for; and consumers choose the address for their shard (Choose).
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

// Listed is a slice whose status lists addresses.
type Listed struct {
	// Slice has its type set.
	Slice client.Object
	// Addresses are those that it has now.
	Addresses []string
}

// Wanted says which address a shard shall have in a slice, "" for none. Shards that it does not speak of are left alone.
type Wanted map[string]string

// Wanted returns what a slice shall list for all the shards there are. A shard that the selector leaves out has nothing
// to say about the slice: what is listed for it stays. So it does while it is not known whether a shard has consumers. The
// address of a shard is that of its virtual workspaces with the suffix; one that is listed for a shard that is no more
// goes.
func (l Listed) Wanted(shards []*corev1alpha1.Shard, selector labels.Selector, consumed func(shard string) (consumed, known bool), suffix string) Wanted {
	wanted, known := Wanted{}, map[string]bool{}
	for _, shard := range shards {
		known[shard.Name] = true
		if shard.Spec.VirtualWorkspaceURL == "" || !selector.Matches(labels.Set(shard.Labels)) {
			continue
		}
		switch has, certain := consumed(shard.Name); {
		case has:
			wanted[shard.Name] = strings.TrimSuffix(shard.Spec.VirtualWorkspaceURL, "/") + suffix
		case certain:
			wanted[shard.Name] = ""
		}
	}
	for _, entry := range l.Slice.GetManagedFields() {
		mine := owned(l.Slice, l.Addresses, entry.Manager)
		if !known[entry.Manager] && len(mine) > 0 && !slices.ContainsFunc(mine, func(address string) bool { return !strings.HasSuffix(address, suffix) }) {
			wanted[entry.Manager] = "" // the shard is no more
		}
	}
	return wanted
}

// Apply has a slice list what is wanted.
func (l Listed) Apply(ctx context.Context, writer client.Client, wanted Wanted) error {
	for _, manager := range slices.Sorted(maps.Keys(wanted)) {
		if err := List(ctx, writer, l.Slice, l.Addresses, wanted[manager], manager); err != nil {
			return err
		}
	}
	return nil
}

// List has the status of a slice list one address of a shard, or none for "", by server-side apply: what others have
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
		return fmt.Errorf("listing the address of shard %q in %s %q: %w", manager, kind, slice.GetName(), err)
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
