package options

import (
	"fmt"
	"os"
)

// checkFiles checks that every file that a flag names is readable, so that the error names the flag and precedes
// generating or starting anything.
func (c *completed) checkFiles() error {
	var errs []error
	for _, given := range c.namedFiles() {
		if given.file == "" {
			continue
		}
		file, err := os.Open(given.file)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", given.flag, err))
			continue
		}
		_ = file.Close()
	}
	errs = append(errs,
		requireTogether("shard-client-cert-file", c.Shard.ClientCertFile, "shard-client-key-file", c.Shard.ClientKeyFile),
		requireTogether("subresource-backend-ca-file", c.Shard.Backends.CA, "subresource-backend-client-cert-file", c.Shard.Backends.ClientCert),
		requireTogether("subresource-backend-client-cert-file", c.Shard.Backends.ClientCert, "subresource-backend-client-key-file", c.Shard.Backends.ClientKey),
		requireTogether("tls-cert-file", c.SecureServing.ServerCert.CertKey.CertFile, "tls-private-key-file", c.SecureServing.ServerCert.CertKey.KeyFile),
		requireTogether("etcd-certfile", c.Etcd.StorageConfig.Transport.CertFile, "etcd-keyfile", c.Etcd.StorageConfig.Transport.KeyFile),
	)
	return joinErrors(errs)
}

// flagFile is a flag, without dashes, and the file that it names.
type flagFile struct{ flag, file string }

func (c *completed) namedFiles() []flagFile {
	etcd, serving := c.Etcd.StorageConfig.Transport, c.SecureServing.ServerCert.CertKey
	files := []flagFile{
		{"logical-cluster-admin-kubeconfig", c.Shard.LogicalClusterAdminKubeconfig},
		{"external-logical-cluster-admin-kubeconfig", c.Shard.ExternalLogicalClusterAdminKubeconfig},
		{"root-identities-file", c.Shard.RootIdentitiesFile},
		{"root-shard-kubeconfig-file", c.Shard.RootKubeconfig},
		{"cache-kubeconfig", c.Shard.CacheKubeconfig},
		{"root-ca-file", c.RootCAFile},
		{"shard-client-cert-file", c.Shard.ClientCertFile},
		{"shard-client-key-file", c.Shard.ClientKeyFile},
		{"shard-virtual-workspace-ca-file", c.Shard.VirtualWorkspaceCA},
		{"subresource-backend-ca-file", c.Shard.Backends.CA},
		{"subresource-backend-client-cert-file", c.Shard.Backends.ClientCert},
		{"subresource-backend-client-key-file", c.Shard.Backends.ClientKey},
		{"service-account-private-key-file", c.ServiceAccountPrivateKeyFile},
		{"tls-cert-file", serving.CertFile}, {"tls-private-key-file", serving.KeyFile},
		{"etcd-cafile", etcd.TrustedCAFile}, {"etcd-certfile", etcd.CertFile}, {"etcd-keyfile", etcd.KeyFile},
		{"encryption-provider-config", c.Etcd.EncryptionProviderConfigFilepath},
		{"client-ca-file", c.Authentication.ClientCert.ClientCA},
		{"requestheader-client-ca-file", c.Authentication.RequestHeader.ClientCAFile},
		{"token-auth-file", c.Authentication.TokenFile.TokenFile},
		{"authentication-token-webhook-config-file", c.Authentication.WebHook.ConfigFile},
		{"authentication-config", c.Authentication.AuthenticationConfigFile},
		{"oidc-ca-file", c.Authentication.OIDC.CAFile},
		{"authorization-webhook-config-file", c.Authorization.WebhookConfigFile},
		{"admission-control-config-file", c.Admission.ConfigFile},
		{"audit-policy-file", c.Audit.PolicyFile},
		{"audit-webhook-config-file", c.Audit.WebhookOptions.ConfigFile},
		{"audit-sinks-file", c.AuditSinksFile},
	}
	for _, file := range c.Authentication.ServiceAccounts.KeyFiles {
		files = append(files, flagFile{"service-account-key-file", file})
	}
	for _, file := range c.RemoteServiceAccountKeyFiles {
		files = append(files, flagFile{"remote-service-account-key-file", file})
	}
	return files
}

func requireTogether(flag, value, otherFlag, otherValue string) error {
	if (value == "") == (otherValue == "") {
		return nil
	}
	return fmt.Errorf("--%s and --%s must be given together", flag, otherFlag)
}
