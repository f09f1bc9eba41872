package desired

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// commandLine collects the arguments of a server, with the volumes of the files that they refer to.
type commandLine struct {
	args    []string
	volumes []corev1.Volume
	mounts  []corev1.VolumeMount
}

func (c *commandLine) flag(name string, value any) {
	c.args = append(c.args, fmt.Sprintf("--%s=%v", name, value))
}

// set adds a flag unless the value is zero, which means the default of the server.
func set[T comparable](c *commandLine, name string, value T) {
	var zero T
	if value != zero {
		c.flag(name, value)
	}
}

func (c *commandLine) duration(name string, value *metav1.Duration) {
	if value != nil && value.Duration != 0 {
		c.flag(name, value.Duration)
	}
}

func (c *commandLine) list(name string, values []string) {
	if len(values) > 0 {
		c.flag(name, strings.Join(values, ","))
	}
}

func (c *commandLine) mount(volume corev1.Volume, path string) {
	c.volumes = append(c.volumes, volume)
	c.mounts = append(c.mounts, readOnly(volume.Name, path))
}

// logging sets the verbosity; 0 is the default of servers.
func (c *commandLine) logging(spec *operatorv1alpha1.LoggingSpec) {
	if spec != nil && spec.Level > 0 {
		c.args = append(c.args, fmt.Sprintf("-v=%d", spec.Level))
	}
}

// requestHeader sets the headers with the identity of a user, and the proxies that are trusted with them.
func (c *commandLine) requestHeader(caFile, allowedNames string) {
	c.flag("requestheader-client-ca-file", caFile)
	c.flag("requestheader-allowed-names", allowedNames)
	c.flag("requestheader-username-headers", "X-Remote-User")
	c.flag("requestheader-group-headers", "X-Remote-Group")
	c.flag("requestheader-extra-headers-prefix", "X-Remote-Extra-")
}

func (c *commandLine) etcd(etcd Etcd) { c.etcdAt(etcd, "etcd-client-cert", "/etc/etcd/tls") }

// etcdAt sets the flags of the store and mounts its credentials into a directory.
func (c *commandLine) etcdAt(etcd Etcd, volume, dir string) {
	c.flag("etcd-servers", strings.Join(etcd.Servers, ","))
	set(c, "etcd-prefix", etcd.Prefix)
	if etcd.Credentials != "" {
		c.flag("etcd-certfile", dir+"/tls.crt")
		c.flag("etcd-keyfile", dir+"/tls.key")
		c.flag("etcd-cafile", dir+"/ca.crt")
		c.mount(secretVolume(volume, etcd.Credentials), dir)
	}
}

func (c *commandLine) audit(spec *operatorv1alpha1.AuditSpec) {
	if spec == nil {
		return
	}
	if spec.Policy != nil && spec.Policy.ConfigMap != nil {
		const dir = "/etc/kcp/audit/policy"
		c.flag("audit-policy-file", dir+"/"+spec.Policy.ConfigMap.Key)
		c.mount(configMapVolume("audit-policy", spec.Policy.ConfigMap.Name), dir)
	}
	webhook := spec.Webhook
	if webhook == nil {
		return
	}
	set(c, "audit-webhook-batch-buffer-size", webhook.BatchBufferSize)
	set(c, "audit-webhook-batch-max-size", webhook.BatchMaxSize)
	c.duration("audit-webhook-batch-max-wait", webhook.BatchMaxWait)
	set(c, "audit-webhook-batch-throttle-burst", webhook.BatchThrottleBurst)
	set(c, "audit-webhook-batch-throttle-enable", webhook.BatchThrottleEnable)
	set(c, "audit-webhook-batch-throttle-qps", webhook.BatchThrottleQPS)
	c.duration("audit-webhook-initial-backoff", webhook.InitialBackoff)
	set(c, "audit-webhook-mode", webhook.Mode)
	set(c, "audit-webhook-truncate-enabled", webhook.TruncateEnabled)
	set(c, "audit-webhook-truncate-max-batch-size", webhook.TruncateMaxBatchSize)
	set(c, "audit-webhook-truncate-max-event-size", webhook.TruncateMaxEventSize)
	set(c, "audit-webhook-version", webhook.Version)
	if webhook.ConfigSecretName != "" {
		const dir = "/etc/kcp/audit/webhook"
		c.flag("audit-webhook-config-file", dir+"/kubeconfig")
		c.mount(secretVolume("audit-webhook-config", webhook.ConfigSecretName), dir)
	}
}

// authorization renders an authorization webhook. Without its kubeconfig only the paths that are always allowed remain.
func (c *commandLine) authorization(spec *operatorv1alpha1.AuthorizationSpec) {
	if spec == nil || spec.Webhook == nil {
		return
	}
	webhook := spec.Webhook
	c.list("authorization-always-allow-paths", webhook.AllowPaths)
	if webhook.ConfigSecretName == "" {
		return
	}
	const dir = "/etc/kcp/authorization/webhook"
	c.duration("authorization-webhook-cache-authorized-ttl", webhook.CacheAuthorizedTTL)
	c.duration("authorization-webhook-cache-unauthorized-ttl", webhook.CacheUnauthorizedTTL)
	set(c, "authorization-webhook-version", webhook.Version)
	c.flag("authorization-webhook-config-file", dir+"/kubeconfig")
	c.mount(secretVolume("authorization-webhook-config", webhook.ConfigSecretName), dir)
}

// authentication renders authentication other than by client certificates. serviceAccounts are the names of the shards
// whose tokens are accepted.
func (c *commandLine) authentication(spec *operatorv1alpha1.AuthSpec, serviceAccounts []string) {
	if spec == nil {
		return
	}
	if oidc := spec.OIDC; oidc != nil {
		c.flag("oidc-issuer-url", oidc.IssuerURL)
		c.flag("oidc-client-id", oidc.ClientID)
		set(c, "oidc-groups-claim", oidc.GroupsClaim)
		set(c, "oidc-username-claim", oidc.UsernameClaim)
		set(c, "oidc-username-prefix", oidc.UsernamePrefix)
		set(c, "oidc-groups-prefix", oidc.GroupsPrefix)
		if oidc.CAFileRef != nil {
			const dir = "/etc/kcp/tls/oidc"
			c.flag("oidc-ca-file", dir+"/"+orDefault(oidc.CAFileRef.Key, "ca.crt"))
			c.mount(secretVolume("oidc-ca-file", oidc.CAFileRef.Name), dir)
		}
	}
	if webhook := spec.Webhook; webhook != nil {
		const dir = "/etc/kcp/authentication/webhook"
		c.duration("authentication-token-webhook-cache-ttl", webhook.CacheAuthenticationTTL)
		set(c, "authentication-token-webhook-version", webhook.Version)
		c.flag("authentication-token-webhook-config-file", dir+"/kubeconfig")
		c.mount(secretVolume("authentication-webhook-config", webhook.ConfigSecretName), dir)
	}
	if file := spec.TokenAuthFile; file != nil {
		const dir = "/etc/kcp/authentication/token"
		c.flag("token-auth-file", dir+"/"+orDefault(file.Key, "token.csv"))
		c.mount(secretVolume("token-auth-file", file.SecretName), dir)
	}
	if account := spec.ServiceAccount; account != nil && account.Enabled {
		c.flag("service-account-lookup", false)
		for _, shard := range serviceAccounts {
			dir, name := "/etc/kcp/tls/"+shard+"/service-account", shard+"-service-account"
			c.flag("service-account-key-file", dir+"/tls.crt")
			volume := secretVolume(name, name)
			// Tokens are verified with the public key.
			volume.Secret.Items = []corev1.KeyToPath{{Key: corev1.TLSCertKey, Path: corev1.TLSCertKey}}
			c.mount(volume, dir)
		}
	}
}

func orDefault(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}
