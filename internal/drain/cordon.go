package drain

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// Values of the annotation that closes a shard for new workspaces. Every value closes it.
const (
	// ReasonCordon is the value of an administrator.
	ReasonCordon = "cordoned"
	// ReasonDrain is the value of a drain.
	ReasonDrain = "drain"
	// reasonStopped ends the drains of the shard.
	reasonStopped = "drain stopped"
)

// Cordon closes a shard for new workspaces. admin is a client of the admin workspace.
func Cordon(ctx context.Context, admin dynamic.Interface, shard, reason string) error {
	return annotate(ctx, admin, shard, &reason)
}

// Uncordon opens a shard for new workspaces again, which also ends drains of it.
func Uncordon(ctx context.Context, admin dynamic.Interface, shard string) error {
	return annotate(ctx, admin, shard, nil)
}

func annotate(ctx context.Context, admin dynamic.Interface, shard string, value *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{corev1alpha1.UnschedulableAnnotationKey: value}}})
	if err != nil {
		return err
	}
	if _, err := admin.Resource(shardsResource).Patch(ctx, shard, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("changing shard %q in the admin workspace: %w", shard, err)
	}
	return nil
}

// Reason returns why a shard is closed for new workspaces, and whether it is, by a decision of an administrator.
func Reason(ctx context.Context, admin dynamic.Interface, shard string) (reason string, closed bool, err error) {
	object, err := getShard(ctx, admin, shard)
	if err != nil {
		return "", false, err
	}
	reason, closed = object.Annotations[corev1alpha1.UnschedulableAnnotationKey]
	return reason, closed, nil
}

func getShard(ctx context.Context, admin dynamic.Interface, name string) (*corev1alpha1.Shard, error) {
	object, err := admin.Resource(shardsResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading shard %q in the admin workspace: %w", name, err)
	}
	shard := &corev1alpha1.Shard{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, shard); err != nil {
		return nil, fmt.Errorf("reading shard %q in the admin workspace: %w", name, err)
	}
	return shard, nil
}
