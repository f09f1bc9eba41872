package tenancy

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// shardHashLength is the length of the shard name hash in the annotation.
const shardHashLength = 8

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
	selector, err := shardSelector(workspace)
	if err != nil {
		return nil, unschedulable("spec.location.selector is invalid: %v", err)
	}
	shard, err := choose(all, selector)
	if err != nil {
		return nil, unschedulable("%v", err)
	}
	return validateShard(shard)
}

// chosenShard returns the name of the stored shard of a workspace, or "". Old workspaces have only a hash of it.
func chosenShard(workspace *tenancyv1alpha1.Workspace, all []*corev1alpha1.Shard) string {
	if name := workspace.Annotations[corev1alpha1.ShardAnnotationKey]; name != "" {
		return name
	}
	hash := workspace.Annotations[tenancyv1alpha1.WorkspaceShardHashAnnotationKey]
	if hash == "" {
		return ""
	}
	for _, shard := range all {
		if shardHash(shard.Name) == hash {
			return shard.Name
		}
	}
	return ""
}

func shardSelector(workspace *tenancyv1alpha1.Workspace) (labels.Selector, error) {
	if workspace.Spec.Location == nil || workspace.Spec.Location.Selector == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(workspace.Spec.Location.Selector)
}

// validateShard returns a refusal for a shard without a valid external URL.
func validateShard(shard *corev1alpha1.Shard) (*corev1alpha1.Shard, *refusal) {
	external := externalURL(shard)
	if parsed, err := url.Parse(external); err != nil || parsed.Scheme == "" || parsed.Host == "" {
		return nil, &refusal{tenancyv1alpha1.ReasonUnknown, fmt.Sprintf("shard %q has the invalid external URL %q", shard.Name, external)}
	}
	return shard, nil
}

func externalURL(shard *corev1alpha1.Shard) string {
	return cmp.Or(shard.Spec.ExternalURL, shard.Spec.BaseURL)
}

// clusterURL returns the external URL of a logical cluster of the shard, by name or by path.
func clusterURL(shard *corev1alpha1.Shard, path logicalcluster.Path) string {
	return strings.TrimSuffix(externalURL(shard), "/") + path.URLPath()
}

// shardHash returns the value of WorkspaceShardHashAnnotationKey.
func shardHash(name string) string {
	return logicalcluster.Base36Sha224([]byte(name))[:shardHashLength]
}
