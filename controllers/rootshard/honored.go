package rootshard

import (
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/shardbase"
	"github.com/atoll-dev/atoll/controllers/status"
)

// ignoredFields lists what a RootShard asks for and does not get.
func ignoredFields(root *operatorv1alpha1.RootShard) []status.IgnoredField {
	spec := root.Spec
	out := shardbase.IgnoredShardFields(desired.NewRootShard(root), pki.RootShardTemplateKeys())
	out = append(out, shardbase.IgnoredCertificateFields(spec.Certificates, spec.CertificateTemplates)...)
	add := func(set bool, field, advice string) {
		if set {
			out = append(out, status.IgnoredField{Field: field, Advice: advice})
		}
	}
	add(spec.Cache.Ref != nil && spec.Cache.Ref.Name == "", "cache.ref", "it names no CacheServer; set its name or remove it")
	add(spec.Cache.Embedded != nil && !spec.Cache.Embedded.Enabled, "cache.embedded", "without cache.ref the root shard holds the cache; remove it")
	add(spec.External.PrivatePort != nil && spec.External.PrivateHostname == "", "external.privatePort", "it counts only with privateHostname")
	if spec.Proxy != nil {
		out = append(out, shardbase.IgnoredSharedIndex(root, "proxy.sharedIndex", spec.Proxy.SharedIndex)...)
		out = append(out, status.UnknownTemplateKeys("proxy.certificateTemplates", spec.Proxy.CertificateTemplates, pki.ProxyTemplateKeys())...)
	}
	return out
}
