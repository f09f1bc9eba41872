package bootstrap

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// fieldManager is the field manager of the fields that a shard applies. Labels and annotations of others are kept.
const fieldManager = "kcp-shard"

// isRegistered reports whether a Shard has what the shard itself applies. Limits are of administrators.
func isRegistered(existing, desired *corev1alpha1.Shard) bool {
	for key, value := range desired.Labels {
		if current, found := existing.Labels[key]; !found || current != value {
			return false
		}
	}
	return existing.Spec.BaseURL == desired.Spec.BaseURL && existing.Spec.ExternalURL == desired.Spec.ExternalURL &&
		existing.Spec.VirtualWorkspaceURL == desired.Spec.VirtualWorkspaceURL
}

// RegisterShard makes sure that root has a Shard of this shard, through a client of the root shard. A Shard that the root shard keeps as the
// representation of the one in system:shard is complete. Root shards of earlier versions keep none: there, the shard updates its URLs and labels
// itself. It reads before it writes, and only that object, so that a shard needs no permissions on others. If the object does not exist, it is
// created only if create is set.
func RegisterShard(ctx context.Context, c client.Client, options Options, create bool) error {
	ctx = logicalcluster.With(ctx, logicalcluster.Root)
	desired, existing := shard(options), &corev1alpha1.Shard{}
	err := c.Get(ctx, client.ObjectKeyFromObject(desired), existing)
	switch {
	case apierrors.IsNotFound(err) && !create:
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("reading Shard %s in %s: %w", desired.Name, logicalcluster.Root, err)
	case err == nil && (existing.Annotations[corev1alpha1.ShardRepresentationAnnotationKey] != "" || isRegistered(existing, desired)):
		return nil
	}
	// Server-side apply creates the object with the same permission as changing it.
	desired.SetGroupVersionKind(corev1alpha1.SchemeGroupVersion.WithKind("Shard"))
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(desired)
	if err != nil {
		return fmt.Errorf("encoding Shard %s: %w", desired.Name, err)
	}
	delete(content, "status")
	applied := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content})
	if err := c.Apply(ctx, applied, client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("registering Shard %s in %s: %w", desired.Name, logicalcluster.Root, err)
	}
	return nil
}
