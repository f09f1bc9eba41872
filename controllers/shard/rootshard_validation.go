package shard

import (
	"strings"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/validation"
)

// maxRootShardName keeps the longest common name of a CA, which is made from it, within 64 characters.
const maxRootShardName = 64 - len("-requestheader-client-ca")

// validateRootShard rejects invalid specs, and reports the ignored fields of valid ones.
func validateRootShard(root *operatorv1alpha1.RootShard) status.Result {
	if mistakes := status.Join(validateRootShardName(root), validation.Address(root.Spec.External), validation.Shard(root.Spec.CommonShardSpec), validateSharedIndex(root)); mistakes.Type != "" {
		return mistakes
	}
	return status.SpecHonored(ignoredRootShardFields(root))
}

func validateRootShardName(root *operatorv1alpha1.RootShard) status.Result {
	const condition = operatorv1alpha1.ConditionSpecHonored
	switch {
	case len(root.Name) > maxRootShardName:
		return status.Stall(condition, "InvalidName", "the name has %d characters and may have %d, because names of certificates are made from it: recreate the RootShard under a shorter name", len(root.Name), maxRootShardName)
	case strings.Contains(root.Name, "."):
		return status.Stall(condition, "InvalidName", "the name contains a dot, and names of Services made from it must not: recreate the RootShard under a name without dots")
	}
	return status.Result{}
}

func validateSharedIndex(root *operatorv1alpha1.RootShard) status.Result {
	var ofShards, ofProxy status.Result
	if index := root.Spec.SharedIndex; index != nil {
		ofShards = validation.SharedIndex("sharedIndex", &index.SharedIndexClient)
	}
	if proxy := root.Spec.Proxy; proxy != nil {
		ofProxy = validation.SharedIndex("proxy.sharedIndex", proxy.SharedIndex)
	}
	return status.Join(ofShards, ofProxy)
}

// ignoredRootShardFields lists the fields of a RootShard that have no effect.
func ignoredRootShardFields(root *operatorv1alpha1.RootShard) []status.IgnoredField {
	spec := root.Spec
	out := validation.IgnoredShardFields(desired.NewRootShard(root), pki.RootShardTemplateKeys())
	out = append(out, validation.IgnoredCertificateFields(spec.Certificates.Certificates, spec.CertificateTemplates)...)
	add := func(set bool, field, advice string) {
		if set {
			out = append(out, status.IgnoredField{Field: field, Advice: advice})
		}
	}
	add(spec.Cache.Ref != nil && spec.Cache.Ref.Name == "", "cache.ref", "it names no CacheServer; set its name or remove it")
	add(spec.Cache.Embedded != nil && !spec.Cache.Embedded.Enabled, "cache.embedded", "without cache.ref the root shard embeds the cache; remove it")
	add(spec.External.PrivatePort != nil && spec.External.PrivateHostname == "", "external.privatePort", "it has an effect only with privateHostname; set that or remove it")
	if spec.Proxy != nil {
		out = append(out, validation.IgnoredSharedIndex(root, "proxy.sharedIndex", spec.Proxy.SharedIndex)...)
		out = append(out, status.UnknownTemplateKeys("proxy.certificateTemplates", spec.Proxy.CertificateTemplates, pki.ProxyTemplateKeys())...)
	}
	return out
}
