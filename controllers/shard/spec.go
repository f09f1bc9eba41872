package shard

import (
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/shardbase"
	"github.com/atoll-dev/atoll/controllers/status"
)

// validateSpec looks for what can never work, and else for what is not acted on.
func validateSpec(shard *operatorv1alpha1.Shard, root *operatorv1alpha1.RootShard) status.Result {
	if result := shardbase.ValidateShardName(shard, root); result.Type != "" {
		return result
	}
	if result := shardbase.ValidateShard(shard.Spec.CommonShardSpec); result.Type != "" {
		return result
	}
	if result := shardbase.ValidateSharedIndex("sharedIndex", shard.Spec.SharedIndex); result.Type != "" {
		return result
	}
	out := shardbase.IgnoredShardFields(desired.NewShard(shard, root), pki.ShardTemplateKeys())
	if ref := shard.Spec.Cache.Ref; ref != nil && ref.Name == "" {
		out = append(out, status.IgnoredField{Field: "cache.ref", Advice: "it names no CacheServer; set its name or remove it"})
	}
	out = append(out, shardbase.IgnoredSharedIndex(root, "sharedIndex", shard.Spec.SharedIndex)...)
	return status.SpecHonored(out)
}
