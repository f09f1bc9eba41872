package rootshard

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/shardbase"
	"github.com/atoll-dev/atoll/controllers/status"
)

// computeStatus turns what was found into the status.
func computeStatus(s *scope) {
	root := s.root
	if root.DeletionTimestamp != nil {
		root.Status.Phase = operatorv1alpha1.RootShardPhaseDeleting
		root.Status.ObservedGeneration = root.Generation
		return
	}
	root.Status.Conditions = s.report.Conditions(root.Status.Conditions, root.Generation)
	if !etcd.IsManaged(root.Spec.Etcd) && s.store.Type == "" {
		meta.RemoveStatusCondition(&root.Status.Conditions, operatorv1alpha1.ConditionEtcdAvailable)
	}
	root.Status.ObservedGeneration = root.Generation
	root.Status.Endpoint = desired.RootShardBaseURL(root)
	root.Status.Version = status.Version(s.deployment)
	root.Status.Phase = operatorv1alpha1.RootShardPhaseProvisioning
	if meta.IsStatusConditionTrue(root.Status.Conditions, operatorv1alpha1.ConditionAvailable) {
		root.Status.Phase = operatorv1alpha1.RootShardPhaseRunning
	}
}

// maxNameLength lets the longest derived name that is bounded, the common name of a CA, stay within 64 characters.
const maxNameLength = 64 - len("-requestheader-client-ca")

// validateSpec looks for what can never work, and else for what is not acted on.
func validateSpec(root *operatorv1alpha1.RootShard) status.Result {
	const condition = operatorv1alpha1.ConditionSpecHonored
	switch {
	case len(root.Name) > maxNameLength:
		return status.Stall(condition, "InvalidName", "the name has %d characters and may have %d, because names of certificates are made from it: recreate the RootShard under a shorter name", len(root.Name), maxNameLength)
	case strings.Contains(root.Name, "."):
		return status.Stall(condition, "InvalidName", "the name contains a dot, and names of Services made from it must not: recreate the RootShard under a name without dots")
	case root.Spec.External.Hostname == "" || root.Spec.External.Port < 1 || root.Spec.External.Port > 65535:
		return status.Stall(condition, "InvalidSpec", "external.hostname and external.port must name the address of the front proxy, with a port from 1 to 65535")
	}
	if result := shardbase.ValidateShard(root.Spec.CommonShardSpec); result.Type != "" {
		return result
	}
	if result := validateSharedIndex(root); result.Type != "" {
		return result
	}
	return status.SpecHonored(ignoredFields(root))
}

func validateSharedIndex(root *operatorv1alpha1.RootShard) status.Result {
	if index := root.Spec.SharedIndex; index != nil {
		if result := shardbase.ValidateSharedIndex("sharedIndex", &index.SharedIndexClient); result.Type != "" {
			return result
		}
	}
	if proxy := root.Spec.Proxy; proxy != nil {
		return shardbase.ValidateSharedIndex("proxy.sharedIndex", proxy.SharedIndex)
	}
	return status.Result{}
}
