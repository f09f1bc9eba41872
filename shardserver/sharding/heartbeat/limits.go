package heartbeat

import (
	corev1 "k8s.io/api/core/v1"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// WorkspaceLimits returns the limits of workspaces that apply, 0 where there is none.
func WorkspaceLimits(limits *corev1alpha1.ShardResourceLimits) (soft, hard int64) {
	if limits == nil {
		return 0, 0
	}
	return max(valueOf(limits.Soft, Workspaces), 0), max(valueOf(limits.Hard, Workspaces), 0)
}

func valueOf(list corev1.ResourceList, name corev1.ResourceName) int64 {
	quantity := list[name]
	return quantity.Value()
}
