package tenancy

import (
	"fmt"
	"net/url"

	"k8s.io/apimachinery/pkg/labels"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/placementrules"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// refusal is the reason and message of the condition WorkspaceScheduled of a workspace that cannot be scheduled.
type refusal struct {
	reason, message string
}

func unschedulable(format string, args ...any) *refusal {
	return &refusal{tenancyv1alpha1.ReasonUnschedulable, fmt.Sprintf(format, args...)}
}

// chooseFunc returns one of the shards that match and accept new logical clusters.
type chooseFunc func(all []*corev1alpha1.Shard, selector labels.Selector) (*corev1alpha1.Shard, error)

// selectShard returns the shard of a workspace: the stored one, or a new one.
func selectShard(workspace *tenancyv1alpha1.Workspace, all []*corev1alpha1.Shard, choose chooseFunc) (*corev1alpha1.Shard, *refusal) {
	if chosen := chosenShard(workspace, all); chosen != "" {
		shard := shardByName(all, chosen)
		if shard == nil {
			return nil, unschedulable("chosen shard %q does not exist anymore", chosen)
		}
		return validateShard(shard)
	}
	selector, err := placementrules.Selector(workspace)
	if err != nil {
		return nil, unschedulable("%v", err)
	}
	shard, err := choose(all, selector)
	if err != nil {
		return nil, unschedulable("%v", err)
	}
	return validateShard(shard)
}

// chosenShard returns the name of the stored shard of a workspace, or "".
func chosenShard(workspace *tenancyv1alpha1.Workspace, all []*corev1alpha1.Shard) string {
	names := make([]string, 0, len(all))
	for _, shard := range all {
		names = append(names, shard.Name)
	}
	return placementrules.ShardOf(workspace, names...)
}

// validateShard returns a refusal for a shard without a valid external URL.
func validateShard(shard *corev1alpha1.Shard) (*corev1alpha1.Shard, *refusal) {
	external := placementrules.ExternalURL(shard)
	if parsed, err := url.Parse(external); err != nil || parsed.Scheme == "" || parsed.Host == "" {
		return nil, &refusal{tenancyv1alpha1.ReasonUnknown, fmt.Sprintf("shard %q has the invalid external URL %q", shard.Name, external)}
	}
	return shard, nil
}

// clusterURL returns the external URL of a logical cluster of the shard, by name or by path.
func clusterURL(shard *corev1alpha1.Shard, path logicalcluster.Path) string {
	return placementrules.ExternalURL(shard) + path.URLPath()
}
