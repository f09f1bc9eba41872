package rootshard

import (
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/status"
)

// notHonored lists what a RootShard asks for and does not get.
func notHonored(root *operatorv1alpha1.RootShard) []status.Unheeded {
	spec := root.Spec
	out := status.UnheededAuth(spec.Auth)
	add := func(set bool, field, advice string) {
		if set {
			out = append(out, status.Unheeded{Field: field, Advice: advice})
		}
	}
	add(spec.Cache.Ref != nil, "cache.ref", "cache servers are not supported yet, the root shard holds the cache; remove it")
	add(spec.Cache.Embedded != nil && !spec.Cache.Embedded.Enabled, "cache.embedded", "the cache cannot be turned off; remove it")
	if etcd.IsManaged(root) && etcd.For(root).LosesMembers() {
		add(true, "etcd.managed.replicas", "on emptyDir volumes a member whose pod is replaced has lost its data and cannot join again, so several of them survive no more than one; use a volume claim")
	}
	add(spec.KCPVirtualWorkspace != nil, "kcpVirtualWorkspace", "virtual workspaces of their own are not supported yet; remove it")
	brought := desired.BroughtCA(root) != ""
	add(spec.Certificates.IssuerRef != nil && brought, "certificates.issuerRef", "caSecretRef is set too and wins; remove one of them")
	add(spec.Certificates.CASecretRef != nil && !brought, "certificates.caSecretRef", "it names no Secret; set its name or remove it")
	_, rootTemplate := spec.CertificateTemplates["root-ca"]
	add(rootTemplate && brought, "certificateTemplates.root-ca", "the root CA comes from caSecretRef; remove the template")
	add(spec.External.PrivatePort != nil && spec.External.PrivateHostname == "", "external.privatePort", "it counts only with privateHostname")
	if auth := spec.Auth; auth != nil {
		add(auth.DropGroups != nil, "auth.dropGroups", "groups are dropped by front proxies; set it on the FrontProxy")
		add(auth.PassOnGroups != nil, "auth.passOnGroups", "groups are passed on by front proxies; set it on the FrontProxy")
	}
	if spec.Authorization != nil && spec.Authorization.Webhook != nil && spec.Authorization.Webhook.ConfigSecretName == "" {
		webhook := spec.Authorization.Webhook
		const advice = "there is no webhook to ask; set authorization.webhook.configSecretName"
		add(webhook.CacheAuthorizedTTL != nil, "authorization.webhook.cacheAuthorizedTTL", advice)
		add(webhook.CacheUnauthorizedTTL != nil, "authorization.webhook.cacheUnauthorizedTTL", advice)
		add(webhook.Version != "", "authorization.webhook.version", advice)
	}
	if spec.Audit != nil && spec.Audit.Webhook != nil {
		add(spec.Audit.Webhook.ConfigSecretName == "", "audit.webhook", "there is no webhook to send to; set audit.webhook.configSecretName")
		add(spec.Audit.Policy == nil || spec.Audit.Policy.ConfigMap == nil, "audit.webhook", "without a policy nothing is recorded; set audit.policy.configMap")
	}
	out = append(out, status.UnheededKeys("certificateTemplates", spec.CertificateTemplates, pki.RootShardTemplateKeys())...)
	if spec.Proxy != nil {
		out = append(out, status.UnheededKeys("proxy.certificateTemplates", spec.Proxy.CertificateTemplates, pki.ProxyTemplateKeys())...)
	}
	return out
}
