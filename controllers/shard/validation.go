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
	if mistakes := status.Join(validation.ShardName(shard, root), validation.Shard(shard.Spec.CommonShardSpec), validation.SharedIndex("sharedIndex", shard.Spec.SharedIndex)); mistakes.Type != "" {
		return mistakes
	}
	out := validation.IgnoredShardFields(desired.NewShard(shard, root), pki.ShardTemplateKeys())
	if ref := shard.Spec.Cache.Ref; ref != nil && ref.Name == "" {
		out = append(out, status.IgnoredField{Field: "cache.ref", Advice: "it names no CacheServer; set its name or remove it"})
	}
	out = append(out, validation.IgnoredSharedIndex(root, "sharedIndex", shard.Spec.SharedIndex)...)
	return status.SpecHonored(out)
}
