// Package validation validates the common fields of several specs, and finds ignored ones. A result without a type means that the fields
// are valid.
package validation

import (
	"slices"
	"strings"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/status"
)

const specHonored = operatorv1alpha1.ConditionSpecHonored

// Shard validates the common fields of RootShards and Shards.
func Shard(spec operatorv1alpha1.CommonShardSpec) status.Result {
	var baseURL status.Result
	if base := spec.ShardBaseURL; base != "" && (!strings.HasPrefix(base, "https://") || desired.URLHost(base) == "") {
		baseURL = status.Stall(specHonored, "InvalidSpec", "shardBaseURL is %q and must be an https URL", base)
	}
	return status.Join(Etcd(spec.Etcd), baseURL)
}

// SharedIndex validates the credentials for the shared index.
func SharedIndex(field string, client *operatorv1alpha1.SharedIndexClient) status.Result {
	if client != nil && client.TLSConfig != nil && client.TLSConfig.SecretRef.Name == "" {
		return status.Stall(specHonored, "InvalidSpec", "%s.tlsConfig.secretRef.name is empty: name a Secret with tls.crt, tls.key and ca.crt, or remove tlsConfig", field)
	}
	return status.Result{}
}

// IgnoredSharedIndex returns credentials for a shared index that the installation does not have.
func IgnoredSharedIndex(root *operatorv1alpha1.RootShard, field string, client *operatorv1alpha1.SharedIndexClient) []status.IgnoredField {
	if client == nil || root.Spec.SharedIndex != nil {
		return nil
	}
	return []status.IgnoredField{{Field: field, Advice: "the installation has no shared index; set sharedIndex on RootShard " + root.Name + ", or remove it here"}}
}

// Etcd validates the store of a server.
func Etcd(spec *operatorv1alpha1.EtcdConfig) status.Result {
	var endpoints, credentials status.Result
	if spec != nil && spec.Managed == nil && len(spec.Endpoints) == 0 {
		endpoints = status.Stall(specHonored, "InvalidSpec", "etcd.endpoints is empty: list the client URLs of an etcd, or leave etcd out to have the operator run one")
	}
	if spec != nil && spec.TLSConfig != nil && spec.TLSConfig.SecretRef.Name == "" {
		credentials = status.Stall(specHonored, "InvalidSpec", "etcd.tlsConfig.secretRef.name is empty: name a Secret with tls.crt, tls.key and ca.crt, or remove tlsConfig")
	}
	return status.Join(endpoints, credentials)
}

// maxShardName keeps the longest common name, which is made from it, within the 64 characters of a certificate.
const maxShardName = 64 - len("external-logical-cluster-admin-shard-")

// reservedDirectories are directories of the files of a server, beside those that are named after shards.
var reservedDirectories = []string{"ca", "client", "external-logical-cluster-admin", "logical-cluster-admin", "mounts-proxy", "oidc", "server", "service-account"}

// ShardName validates the name of a Shard in an installation.
func ShardName(shard *operatorv1alpha1.Shard, root *operatorv1alpha1.RootShard) status.Result {
	const advice = "recreate the Shard under another name"
	switch name := shard.Name; {
	case name == desired.NewRootShard(root).ShardName():
		return status.Stall(specHonored, "NameTaken", "inside the installation the shard of RootShard %s is called %s: %s", root.Name, name, advice)
	case name == root.Name:
		return status.Stall(specHonored, "NameTaken", "the certificates of a Shard named %s have the names of those of its RootShard: %s", name, advice)
	case slices.Contains(reservedDirectories, name):
		return status.Stall(specHonored, "InvalidName", "the keys of a Shard named %s would be in a directory that servers use for other files: %s", name, advice)
	case strings.Contains(name, "."):
		return status.Stall(specHonored, "InvalidName", "the name contains a dot, and names of Services made from it must not: %s", advice)
	case len(name) > maxShardName:
		return status.Stall(specHonored, "InvalidName", "the name has %d characters and may have %d, because names of certificates are made from it: %s", len(name), maxShardName, advice)
	}
	return status.Result{}
}

// IgnoredShardFields returns the common fields of RootShards and Shards that have no effect.
func IgnoredShardFields(shard desired.Shard, templates []string) []status.IgnoredField {
	spec := shard.Spec()
	out := status.IgnoredAuthFields(spec.Auth)
	add := func(set bool, field, advice string) {
		if set {
			out = append(out, status.IgnoredField{Field: field, Advice: advice})
		}
	}
	if etcd.IsManaged(spec.Etcd) && etcd.NewForShard(shard).LosesDataOnRestart() {
		add(true, "etcd.managed.replicas", "on emptyDir volumes a member whose pod is replaced has lost its data and cannot join again, so several of them survive no more than one; use a volume claim")
	}
	add(spec.KCPVirtualWorkspace != nil && spec.KCPVirtualWorkspace.Name == "", "kcpVirtualWorkspace", "it names no VirtualWorkspace; set its name or remove it")
	if auth := spec.Auth; auth != nil {
		add(auth.DropGroups != nil, "auth.dropGroups", "groups are dropped by front proxies; set it on the FrontProxy")
		add(auth.PassOnGroups != nil, "auth.passOnGroups", "groups are passed on by front proxies; set it on the FrontProxy")
	}
	if spec.Authorization != nil && spec.Authorization.Webhook != nil && spec.Authorization.Webhook.ConfigSecretName == "" {
		webhook := spec.Authorization.Webhook
		const advice = "there is no webhook to call; set authorization.webhook.configSecretName"
		add(webhook.CacheAuthorizedTTL != nil, "authorization.webhook.cacheAuthorizedTTL", advice)
		add(webhook.CacheUnauthorizedTTL != nil, "authorization.webhook.cacheUnauthorizedTTL", advice)
		add(webhook.Version != "", "authorization.webhook.version", advice)
	}
	if spec.Audit != nil && spec.Audit.Webhook != nil {
		add(spec.Audit.Webhook.ConfigSecretName == "", "audit.webhook", "no webhook is configured; set audit.webhook.configSecretName")
		add(spec.Audit.Policy == nil || spec.Audit.Policy.ConfigMap == nil, "audit.webhook", "without a policy nothing is recorded; set audit.policy.configMap")
	}
	return append(out, status.UnknownTemplateKeys("certificateTemplates", spec.CertificateTemplates, templates)...)
}

// IgnoredCertificateFields returns the fields without effect of a certificate authority.
func IgnoredCertificateFields(spec operatorv1alpha1.Certificates, templates operatorv1alpha1.CertificateTemplates) []status.IgnoredField {
	var out []status.IgnoredField
	add := func(set bool, field, advice string) {
		if set {
			out = append(out, status.IgnoredField{Field: field, Advice: advice})
		}
	}
	provided := spec.CASecretRef != nil && spec.CASecretRef.Name != ""
	add(spec.IssuerRef != nil && provided, "certificates.issuerRef", "caSecretRef is set, too, and takes precedence; remove one of them")
	add(spec.CASecretRef != nil && !provided, "certificates.caSecretRef", "it names no Secret; set its name or remove it")
	_, rootTemplate := templates["root-ca"]
	add(rootTemplate && provided, "certificateTemplates.root-ca", "the root CA comes from caSecretRef; remove the template")
	return out
}
