package shard

import (
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/validation"
)

// validateShard rejects invalid specs, and reports the ignored fields of valid ones.
func validateShard(shard *operatorv1alpha1.Shard, root *operatorv1alpha1.RootShard) status.Result {
	if result := validation.ShardName(shard, root); result.Type != "" {
		return result
	}
	if result := validation.Shard(shard.Spec.CommonShardSpec); result.Type != "" {
		return result
	}
	if result := validation.SharedIndex("sharedIndex", shard.Spec.SharedIndex); result.Type != "" {
		return result
	}
	out := validation.IgnoredShardFields(desired.NewShard(shard, root), pki.ShardTemplateKeys())
	if ref := shard.Spec.Cache.Ref; ref != nil && ref.Name == "" {
		out = append(out, status.IgnoredField{Field: "cache.ref", Advice: "it names no CacheServer; set its name or remove it"})
	}
	out = append(out, validation.IgnoredSharedIndex(root, "sharedIndex", shard.Spec.SharedIndex)...)
	return status.SpecHonored(out)
}
