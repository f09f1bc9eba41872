package drain

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/moves"
)

// Values of the annotation that closes a shard for new workspaces. Every value closes it.
const (
	// ReasonCordon is the value of an administrator.
	ReasonCordon = "cordoned"
	// ReasonDrain is the value of a drain.
	ReasonDrain = "drain"
	// reasonStopped ends the drains of the shard. After beforeStop it has the value that an administrator had set before.
	reasonStopped = "drain stopped"
	beforeStop    = "; before: "
)

// stoppedReason returns the value that ends the drains of a shard which is closed for a reason; "" is a shard that is open.
func stoppedReason(reason string) string {
	switch {
	case isStopped(reason):
		return reason
	case reason == "" || reason == ReasonDrain:
		return reasonStopped
	}
	return reasonStopped + beforeStop + reason
}

func isStopped(reason string) bool {
	return reason == reasonStopped || strings.HasPrefix(reason, reasonStopped+beforeStop)
}

// reasonOfOthers returns why an administrator has closed a shard whose annotation has a value, or "" if a drain has closed it.
func reasonOfOthers(reason string) string {
	if before, ok := strings.CutPrefix(reason, reasonStopped+beforeStop); ok {
		return before
	}
	if reason == reasonStopped || reason == ReasonDrain {
		return ""
	}
	return reason
}

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
	if _, err := admin.Resource(moves.ShardsResource).Patch(ctx, shard, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("changing shard %q in the admin workspace: %w", shard, err)
	}
	return nil
}

// closedReason returns the value of the annotation of a shard, and whether it has one.
func closedReason(ctx context.Context, admin dynamic.Interface, shard string) (reason string, closed bool, err error) {
	object, err := getShard(ctx, admin, shard)
	if err != nil {
		return "", false, err
	}
	reason, closed = object.Annotations[corev1alpha1.UnschedulableAnnotationKey]
	return reason, closed, nil
}

func getShard(ctx context.Context, admin dynamic.Interface, name string) (*corev1alpha1.Shard, error) {
	object, err := admin.Resource(moves.ShardsResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading shard %q in the admin workspace: %w", name, err)
	}
	shard := &corev1alpha1.Shard{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, shard); err != nil {
		return nil, fmt.Errorf("reading shard %q in the admin workspace: %w", name, err)
	}
	return shard, nil
}
