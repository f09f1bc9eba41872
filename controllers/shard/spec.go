package shard

import (
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/shardbase"
	"github.com/atoll-dev/atoll/controllers/status"
)

// checkSpec looks for what can never work, and else for what is not acted on.
func checkSpec(shard *operatorv1alpha1.Shard, root *operatorv1alpha1.RootShard) status.Finding {
	if finding := shardbase.Named(shard, root); finding.Type != "" {
		return finding
	}
	if finding := shardbase.Check(shard.Spec.CommonShardSpec); finding.Type != "" {
		return finding
	}
	if finding := shardbase.CheckIndex("sharedIndex", shard.Spec.SharedIndex); finding.Type != "" {
		return finding
	}
	out := shardbase.NotHonored(desired.FurtherShard(shard, root), pki.ShardTemplateKeys())
	if ref := shard.Spec.Cache.Ref; ref != nil && ref.Name == "" {
		out = append(out, status.Unheeded{Field: "cache.ref", Advice: "it names no CacheServer; set its name or remove it"})
	}
	out = append(out, shardbase.NotHonoredIndex(root, "sharedIndex", shard.Spec.SharedIndex)...)
	return status.SpecHonored(out)
}
