package rootshard

import (
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/shardbase"
	"github.com/atoll-dev/atoll/controllers/status"
)

// notHonored lists what a RootShard asks for and does not get.
func notHonored(root *operatorv1alpha1.RootShard) []status.Unheeded {
	spec := root.Spec
	out := shardbase.NotHonored(desired.ShardOf(root), pki.RootShardTemplateKeys())
	out = append(out, shardbase.NotHonoredCertificates(spec.Certificates, spec.CertificateTemplates)...)
	add := func(set bool, field, advice string) {
		if set {
			out = append(out, status.Unheeded{Field: field, Advice: advice})
		}
	}
	add(spec.Cache.Ref != nil && spec.Cache.Ref.Name == "", "cache.ref", "it names no CacheServer; set its name or remove it")
	add(spec.Cache.Embedded != nil && !spec.Cache.Embedded.Enabled, "cache.embedded", "without cache.ref the root shard holds the cache; remove it")
	add(spec.External.PrivatePort != nil && spec.External.PrivateHostname == "", "external.privatePort", "it counts only with privateHostname")
	if spec.Proxy != nil {
		out = append(out, shardbase.NotHonoredIndex(root, "proxy.sharedIndex", spec.Proxy.SharedIndex)...)
		out = append(out, status.UnheededKeys("proxy.certificateTemplates", spec.Proxy.CertificateTemplates, pki.ProxyTemplateKeys())...)
	}
	return out
}
