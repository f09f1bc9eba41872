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

func (c *commandLine) addFlag(name string, value any) {
	c.args = append(c.args, fmt.Sprintf("--%s=%v", name, value))
}

// addNonZeroFlag adds a flag unless the value is zero, which means the default of the server.
func addNonZeroFlag[T comparable](c *commandLine, name string, value T) {
	var zero T
	if value != zero {
		c.addFlag(name, value)
	}
}

func (c *commandLine) addDurationFlag(name string, value *metav1.Duration) {
	if value != nil && value.Duration != 0 {
		c.addFlag(name, value.Duration)
	}
}

func (c *commandLine) addListFlag(name string, values []string) {
	if len(values) > 0 {
		c.addFlag(name, strings.Join(values, ","))
	}
}

func (c *commandLine) addMount(volume corev1.Volume, path string) {
	c.volumes = append(c.volumes, volume)
	c.mounts = append(c.mounts, readOnly(volume.Name, path))
}

// addLogging sets the verbosity; 0 is the default of servers.
func (c *commandLine) addLogging(spec *operatorv1alpha1.LoggingSpec) {
	if spec != nil && spec.Level > 0 {
		c.args = append(c.args, fmt.Sprintf("-v=%d", spec.Level))
	}
}

// addRequestHeader sets the headers with the identity of a user, and the proxies that are trusted with them.
func (c *commandLine) addRequestHeader(caFile, allowedNames string) {
	c.addFlag("requestheader-client-ca-file", caFile)
	c.addFlag("requestheader-allowed-names", allowedNames)
	c.addFlag("requestheader-username-headers", "X-Remote-User")
	c.addFlag("requestheader-group-headers", "X-Remote-Group")
	c.addFlag("requestheader-extra-headers-prefix", "X-Remote-Extra-")
}

func (c *commandLine) addEtcd(etcd Etcd) {
	c.addEtcdWithMount(etcd, "etcd-client-cert", "/etc/etcd/tls")
}

// addEtcdWithMount sets the flags of the store and mounts its credentials into a directory.
func (c *commandLine) addEtcdWithMount(etcd Etcd, volume, dir string) {
	c.addFlag("etcd-servers", strings.Join(etcd.Servers, ","))
	addNonZeroFlag(c, "etcd-prefix", etcd.Prefix)
	addNonZeroFlag(c, "etcd-owner", etcd.Owner)
	if etcd.Credentials != "" {
		c.addFlag("etcd-certfile", dir+"/tls.crt")
		c.addFlag("etcd-keyfile", dir+"/tls.key")
		c.addFlag("etcd-cafile", dir+"/ca.crt")
		c.addMount(secretVolume(volume, etcd.Credentials), dir)
	}
}

func (c *commandLine) addAudit(spec *operatorv1alpha1.AuditSpec) {
	if spec == nil {
		return
	}
	if spec.Policy != nil && spec.Policy.ConfigMap != nil {
		const dir = "/etc/kcp/audit/policy"
		c.addFlag("audit-policy-file", dir+"/"+spec.Policy.ConfigMap.Key)
		c.addMount(configMapVolume("audit-policy", spec.Policy.ConfigMap.Name), dir)
	}
	if spec.Sinks != nil && spec.Sinks.SecretName != "" {
		const dir = "/etc/kcp/audit/sinks"
		c.addFlag("audit-sinks-file", dir+"/sinks.yaml")
		c.addMount(secretVolume("audit-sinks", spec.Sinks.SecretName), dir)
	}
	webhook := spec.Webhook
	if webhook == nil {
		return
	}
	addNonZeroFlag(c, "audit-webhook-batch-buffer-size", webhook.BatchBufferSize)
	addNonZeroFlag(c, "audit-webhook-batch-max-size", webhook.BatchMaxSize)
	c.addDurationFlag("audit-webhook-batch-max-wait", webhook.BatchMaxWait)
	addNonZeroFlag(c, "audit-webhook-batch-throttle-burst", webhook.BatchThrottleBurst)
	addNonZeroFlag(c, "audit-webhook-batch-throttle-enable", webhook.BatchThrottleEnable)
	addNonZeroFlag(c, "audit-webhook-batch-throttle-qps", webhook.BatchThrottleQPS)
	c.addDurationFlag("audit-webhook-initial-backoff", webhook.InitialBackoff)
	addNonZeroFlag(c, "audit-webhook-mode", webhook.Mode)
	addNonZeroFlag(c, "audit-webhook-truncate-enabled", webhook.TruncateEnabled)
	addNonZeroFlag(c, "audit-webhook-truncate-max-batch-size", webhook.TruncateMaxBatchSize)
	addNonZeroFlag(c, "audit-webhook-truncate-max-event-size", webhook.TruncateMaxEventSize)
	addNonZeroFlag(c, "audit-webhook-version", webhook.Version)
	if webhook.ConfigSecretName != "" {
		const dir = "/etc/kcp/audit/webhook"
		c.addFlag("audit-webhook-config-file", dir+"/kubeconfig")
		c.addMount(secretVolume("audit-webhook-config", webhook.ConfigSecretName), dir)
	}
}

// addAuthorization renders an authorization webhook. Without its kubeconfig, only the paths that are always allowed remain.
func (c *commandLine) addAuthorization(spec *operatorv1alpha1.AuthorizationSpec) {
	if spec == nil || spec.Webhook == nil {
		return
	}
	webhook := spec.Webhook
	c.addListFlag("authorization-always-allow-paths", webhook.AllowPaths)
	if webhook.ConfigSecretName == "" {
		return
	}
	const dir = "/etc/kcp/authorization/webhook"
	c.addDurationFlag("authorization-webhook-cache-authorized-ttl", webhook.CacheAuthorizedTTL)
	c.addDurationFlag("authorization-webhook-cache-unauthorized-ttl", webhook.CacheUnauthorizedTTL)
	addNonZeroFlag(c, "authorization-webhook-version", webhook.Version)
	c.addFlag("authorization-webhook-config-file", dir+"/kubeconfig")
	c.addMount(secretVolume("authorization-webhook-config", webhook.ConfigSecretName), dir)
}

// addAuthentication renders authentication other than by client certificates and service account tokens.
func (c *commandLine) addAuthentication(spec *operatorv1alpha1.AuthSpec) {
	if spec == nil {
		return
	}
	if oidc := spec.OIDC; oidc != nil {
		c.addFlag("oidc-issuer-url", oidc.IssuerURL)
		c.addFlag("oidc-client-id", oidc.ClientID)
		addNonZeroFlag(c, "oidc-groups-claim", oidc.GroupsClaim)
		addNonZeroFlag(c, "oidc-username-claim", oidc.UsernameClaim)
		addNonZeroFlag(c, "oidc-username-prefix", oidc.UsernamePrefix)
		addNonZeroFlag(c, "oidc-groups-prefix", oidc.GroupsPrefix)
		if oidc.CAFileRef != nil {
			const dir = "/etc/kcp/tls/oidc"
			c.addFlag("oidc-ca-file", dir+"/"+orDefault(oidc.CAFileRef.Key, "ca.crt"))
			c.addMount(secretVolume("oidc-ca-file", oidc.CAFileRef.Name), dir)
		}
	}
	if webhook := spec.Webhook; webhook != nil {
		const dir = "/etc/kcp/authentication/webhook"
		c.addDurationFlag("authentication-token-webhook-cache-ttl", webhook.CacheAuthenticationTTL)
		addNonZeroFlag(c, "authentication-token-webhook-version", webhook.Version)
		c.addFlag("authentication-token-webhook-config-file", dir+"/kubeconfig")
		c.addMount(secretVolume("authentication-webhook-config", webhook.ConfigSecretName), dir)
	}
	if file := spec.TokenAuthFile; file != nil {
		const dir = "/etc/kcp/authentication/token"
		c.addFlag("token-auth-file", dir+"/"+orDefault(file.Key, "token.csv"))
		c.addMount(secretVolume("token-auth-file", file.SecretName), dir)
	}
}

func orDefault(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}
