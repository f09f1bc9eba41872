package desired

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Etcd is the connection of a server to its store.
type Etcd struct {
	Servers     []string // client URLs
	Prefix      string   // "" is the default of the server
	Credentials string   // Secret with tls.crt, tls.key and ca.crt; "" for none
	Owner       string   // of the keys; "" is the default of the server
}

// Dependencies are the observed objects that the server of a shard depends on.
type Dependencies struct {
	Cache            *operatorv1alpha1.CacheServer      // nil: the root shard embeds the cache
	VirtualWorkspace *operatorv1alpha1.VirtualWorkspace // nil: the shard serves virtual workspaces itself
	// TokenKeys are the keys of service account tokens of the RootShard and the Shards: those of the root shard first, then sorted by shard.
	TokenKeys []TokenKey
}

// Directories of the files of a shard.
const (
	shardDir        = "/etc/kcp"
	shardTLS        = shardDir + "/tls"
	cacheDir        = "/etc/cache-server"
	cacheKubeconfig = cacheDir + "/kubeconfig/" + KubeconfigKey
)

// shardReadyPath is the path of the probes of a shard. While etcd has no space for writes, reads and deletions still work. A pod that is not
// ready gets no traffic, so that clients could not even delete objects.
const shardReadyPath = "/readyz?exclude=etcd-space"

// ShardDeployment is the Deployment of a shard.
func ShardDeployment(s Shard, image Image, etcd Etcd, dependencies Dependencies) *appsv1.Deployment {
	line := s.commandLine(etcd, dependencies)
	spec := s.Spec()
	out := server{
		component: s.component,
		container: "kcp",
		command:   []string{"/kcp", "start"},
		args:      line.args,
		volumes:   line.volumes,
		mounts:    line.mounts,
		resources: serverResources(spec.Resources),
		probes: probes{
			startup:   httpsProbe(shardReadyPath, 10, 5, 60),
			readiness: httpsProbe(shardReadyPath, 10, 10, 6),
			liveness:  httpsProbe("/livez", 10, 10, 6),
		},
		image:     image,
		imageSpec: spec.Image,
		replicas:  spec.Replicas,
		template:  spec.DeploymentTemplate,
		extras:    spec.ContainerExtras,
	}.deployment()
	setCATrust(&out.Spec.Template, s.root, Rekeyable())
	return out
}

// ShardService is the Service of a shard.
func ShardService(s Shard) *corev1.Service {
	spec := s.Spec()
	ports := []corev1.ServicePort{httpsPort("https", ServerPort, ServerPort)}
	if spec.KCPVirtualWorkspace == nil {
		// No server listens at this port; existing manifests refer to it.
		ports = append(ports, httpsPort("https-virtual-workspaces", virtualWorkspacePort, virtualWorkspacePort))
	}
	return s.service(spec.ServiceTemplate, ports...)
}

// commandLine has the order that users of extraArgs rely on: the last value of a flag applies, so extraArgs override the flags before
// them, and the flags after them override extraArgs.
func (s Shard) commandLine(etcd Etcd, dependencies Dependencies) *commandLine {
	c, spec := &commandLine{}, s.Spec()
	s.mountFiles(c)
	s.addFixedFlags(c)
	if !s.IsRoot() {
		s.addSecondaryFlags(c, dependencies)
	}
	s.addPeerFlags(c)
	s.addSharedIndexFlags(c)
	c.addLogging(spec.Logging)
	c.args = append(c.args, spec.ExtraArgs...)
	if dependencies.Cache != nil {
		if s.IsRoot() {
			c.addFlag("cache-kubeconfig", cacheKubeconfig)
		}
		c.mountCacheFiles(dependencies.Cache, s.Certificate(CacheClient))
	}
	if virtualWorkspace := dependencies.VirtualWorkspace; virtualWorkspace != nil {
		c.addFlag("run-virtual-workspaces", false)
		c.addFlag("shard-virtual-workspace-url", VirtualWorkspaceURL(virtualWorkspace))
	}
	c.addEtcd(etcd)
	c.addAudit(spec.Audit)
	c.addAuthorization(spec.Authorization)
	c.addAuthentication(spec.Auth)
	// The shard's own keys, which are the only ones for its own logical clusters, are among the fixed flags.
	remote := slices.DeleteFunc(slices.Clone(dependencies.TokenKeys), func(key TokenKey) bool { return key.Shard == s.Name() })
	c.addTokenKeys("remote-service-account-key-file", spec.Auth, remote)
	return c
}

// mountFiles mounts the CAs of the installation, and only those certificates and kubeconfigs of the shard that it uses: with the others a
// shard would have power over the rest of the installation. The kubeconfig of the external logical cluster admin only provides the
// address of the front proxy; its certificate is not mounted.
func (s Shard) mountFiles(c *commandLine) {
	for _, ca := range []struct {
		volume, dir, secret string
	}{
		{"kcp-ca", "root", CASecret(s.root, RootCA)},
		{"server-ca", "server", CASecret(s.root, ServerCA)},
		{"requestheader-client-ca", "requestheader-client", trustedCA(s.root, RequestHeaderCA, s.Name(), nil)},
		{"client-ca", "client", s.clientCA()},
	} {
		c.addMount(caVolume(ca.volume, ca.secret), shardTLS+"/ca/"+ca.dir)
	}
	kubeconfigs := []string{"external-logical-cluster-admin-kubeconfig"}
	if !s.IsRoot() {
		kubeconfigs = append(kubeconfigs, "client-kubeconfig")
	}
	c.addMount(secretVolume("server-cert", s.Certificate("server")), shardTLS+"/server")
	s.mountOwnTokenKeys(c)
	c.addMount(secretVolume("client-cert", s.Certificate("client")), shardTLS+"/client")
	for _, name := range kubeconfigs {
		c.addMount(secretVolume(name, s.Certificate(name)), "/etc/kcp/"+name)
	}
	if len(s.CABundleRefs()) > 0 {
		c.addMount(secretVolume("ca-bundle", MergedCABundle(s.Name())), shardTLS+"/ca/ca-bundle")
	}
}

func (s Shard) addFixedFlags(c *commandLine) {
	c.addFlag("root-ca-file", shardTLS+"/ca/root/tls.crt")
	c.addFlag("client-ca-file", shardTLS+"/ca/client/tls.crt")
	c.addRequestHeader(shardTLS+"/ca/requestheader-client/tls.crt", frontProxyUser+","+internalProxyUser)
	c.addFlag("tls-private-key-file", shardTLS+"/server/tls.key")
	c.addFlag("tls-cert-file", shardTLS+"/server/tls.crt")
	s.addOwnTokenKeys(c)
	c.addFlag("service-account-lookup", false)
	c.addFlag("shard-base-url", s.BaseURL())
	c.addFlag("shard-external-url", ExternalURL(s.root))
	c.addFlag("external-logical-cluster-admin-kubeconfig", "/etc/kcp/external-logical-cluster-admin-kubeconfig/"+KubeconfigKey)
	c.addFlag("batteries-included", "workspace-types")
	c.addFlag("root-directory", "")
	c.addFlag("enable-leader-election", true)
	c.addFlag("logging-format", "json")
}

// addSecondaryFlags are the flags of a shard that is not the root shard: its name, and the addresses of the root shard
// and of the cache, which the root shard embeds if there is no cache server.
func (s Shard) addSecondaryFlags(c *commandLine, dependencies Dependencies) {
	const rootKubeconfig = "/etc/kcp/client-kubeconfig/" + KubeconfigKey
	c.addFlag("shard-name", s.ShardName())
	c.addFlag("external-hostname", s.root.Spec.External.Hostname)
	c.addFlag("root-shard-kubeconfig-file", rootKubeconfig)
	cache := rootKubeconfig
	if dependencies.Cache != nil {
		cache = cacheKubeconfig
	}
	c.addFlag("cache-kubeconfig", cache)
}

// addPeerFlags are the flags with which a shard connects to others: to the root shard, and to those from which logical clusters move to it.
func (s Shard) addPeerFlags(c *commandLine) {
	c.addFlag("shard-client-key-file", shardTLS+"/client/tls.key")
	c.addFlag("shard-client-cert-file", shardTLS+"/client/tls.crt")
	c.addFlag("shard-virtual-workspace-ca-file", shardTLS+"/ca/server/tls.crt")
}

// mountCacheFiles mounts the files of a client of a cache server. certificate is the Secret with the certificate of
// this client: one with full access to the cache would have power over all shards.
func (c *commandLine) mountCacheFiles(cache *operatorv1alpha1.CacheServer, certificate string) {
	server := NewCacheServer(cache)
	c.addMount(secretVolume("cache-server-kubeconfig", server.Kubeconfig()), cacheDir+"/kubeconfig")
	c.addMount(caVolume("cache-server-ca", server.CASecret()), cacheDir+"/tls/ca/root")
	c.addMount(secretVolume("cache-server-client-cert", certificate), cacheDir+"/tls/client-certificate")
}
