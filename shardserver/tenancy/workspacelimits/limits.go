// Package workspacelimits enforces how many Workspaces may exist below a logical cluster. Administrators set the limits as
// annotations of its LogicalCluster; they apply to all logical clusters below it, on whichever shard.
//
// Each shard publishes the LogicalClusters with limits, and how many Workspaces it stores below each logical cluster with a
// limit. Tracker has both, for admission: what this shard stores is counted from the events of its Workspaces, with the
// requests that are being processed; what others store is added from what they published last. Nothing is kept for logical
// clusters without limits.
//
// Several shards may admit Workspaces at the same time without knowing of each other's, so that a limit of descendants can be
// exceeded by what other shards admit before their counts arrive, about a second. Likewise for several replicas of one
// shard, until the watch delivers. One process never exceeds a limit.
package workspacelimits

import (
	"strconv"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// None is the value of a limit that is not set.
const None int64 = -1

// Limits are those of a logical cluster.
type Limits struct {
	// Children is the maximum number of Workspaces in the logical cluster, and in each one below it.
	Children int64
	// Descendants is the maximum number of Workspaces in the logical cluster and in all below it.
	Descendants int64
}

// Annotations are the annotations of limits.
var Annotations = []string{corev1alpha1.MaxChildWorkspacesAnnotationKey, corev1alpha1.MaxDescendantWorkspacesAnnotationKey}

// Of returns the limits in the annotations of a LogicalCluster, and whether there are any. Admission refuses values that
// are invalid.
func Of(annotations map[string]string) (Limits, bool) {
	limits := Limits{Children: limitIn(annotations, corev1alpha1.MaxChildWorkspacesAnnotationKey), Descendants: limitIn(annotations, corev1alpha1.MaxDescendantWorkspacesAnnotationKey)}
	return limits, limits != Limits{None, None}
}

func limitIn(annotations map[string]string, key string) int64 {
	if limit, err := Parse(annotations[key]); err == nil {
		return limit
	}
	return None
}

// Parse returns the limit of an annotation: an integer that is not negative.
func Parse(value string) (int64, error) {
	limit, err := strconv.ParseUint(value, 10, 31) // fits into an int everywhere
	return int64(limit), err
}
