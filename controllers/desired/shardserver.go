package desired

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Etcd is the connection of a server to its store.
type Etcd struct {
	Servers     []string // client URLs
	Prefix      string   // "" is the default of the server
	Credentials string   // Secret with tls.crt, tls.key and ca.crt; "" for none
}

// Dependencies are the objects that the server of a shard depends on, as observed.
type Dependencies struct {
	Cache            *operatorv1alpha1.CacheServer      // nil: the root shard embeds the cache
	VirtualWorkspace *operatorv1alpha1.VirtualWorkspace // nil: the shard serves virtual workspaces itself
	// Signers are the names of the RootShard and the Shards that sign service account tokens: the root shard first,
	// then sorted. The Secret <name>-service-account holds the key of each.
	Signers []string
}

// Directories of the files of a shard.
const (
	shardTLS        = "/etc/kcp/tls"
	cacheDir        = "/etc/cache-server"
	cacheKubeconfig = cacheDir + "/kubeconfig/" + KubeconfigKey
)

// ShardDeployment is the Deployment of a shard.
func ShardDeployment(s Shard, image Image, etcd Etcd, dependencies Dependencies) *appsv1.Deployment {
	line := s.commandLine(etcd, dependencies)
	spec := s.Spec()
	return server{
		meta:      s.meta(s.Server()),
		selector:  s.Labels(),
		container: "kcp",
		command:   []string{"/kcp", "start"},
		args:      line.args,
		volumes:   line.volumes,
		mounts:    line.mounts,
		resources: serverResources(spec.Resources),
		probes: probes{
			startup:   httpsProbe("/readyz", 10, 5, 60),
			readiness: httpsProbe("/readyz", 10, 10, 6),
			liveness:  httpsProbe("/livez", 10, 10, 6),
		},
		image:     image,
		imageSpec: spec.Image,
		replicas:  spec.Replicas,
		template:  spec.DeploymentTemplate,
		extras:    spec.ContainerExtras,
	}.deployment()
}

// ShardService is the Service of a shard.
func ShardService(s Shard) *corev1.Service {
	spec := s.Spec()
	ports := []corev1.ServicePort{httpsPort("https", ServerPort, ServerPort)}
	if spec.KCPVirtualWorkspace == nil {
		// Nothing listens there; existing manifests refer to it.
		ports = append(ports, httpsPort("https-virtual-workspaces", virtualWorkspacePort, virtualWorkspacePort))
	}
	return service(s.meta(s.Server()), s.Labels(), spec.ServiceTemplate, ports...)
}

// commandLine has the order that users of extraArgs rely on: the last value of a flag counts, so extraArgs override the
// flags before them and are overridden by those after.
func (s Shard) commandLine(etcd Etcd, dependencies Dependencies) *commandLine {
	c, spec := &commandLine{}, s.Spec()
	s.mountFiles(c)
	s.fixedFlags(c)
	if !s.IsRoot() {
		s.secondaryFlags(c, dependencies)
	}
	s.sharedIndexFlags(c)
	c.logging(spec.Logging)
	c.args = append(c.args, spec.ExtraArgs...)
	if dependencies.Cache != nil {
		if s.IsRoot() {
			c.flag("cache-kubeconfig", cacheKubeconfig)
		}
		c.cacheFiles(dependencies.Cache, s.Certificate(CacheClient))
	}
	if virtualWorkspace := dependencies.VirtualWorkspace; virtualWorkspace != nil {
		c.flag("run-virtual-workspaces", false)
		c.flag("shard-virtual-workspace-url", VirtualWorkspaceURL(virtualWorkspace))
		c.flag("shard-virtual-workspace-ca-file", shardTLS+"/ca/server/tls.crt")
	}
	c.etcd(etcd)
	c.audit(spec.Audit)
	c.authorization(spec.Authorization)
	c.authentication(spec.Auth, dependencies.Signers)
	return c
}

// mountFiles mounts the CAs of the installation and the certificates and kubeconfigs of the shard.
func (s Shard) mountFiles(c *commandLine) {
	for _, ca := range []struct {
		volume, dir, secret string
	}{
		{"kcp-ca", "root", CASecret(s.root, RootCA)},
		{"server-ca", "server", CASecret(s.root, ServerCA)},
		{"service-account-ca", "service-account", CASecret(s.root, ServiceAccountCA)},
		{"requestheader-client-ca", "requestheader-client", CASecret(s.root, RequestHeaderCA)},
		{"client-ca", "client", s.clientCA()},
	} {
		c.mount(caVolume(ca.volume, ca.secret), shardTLS+"/ca/"+ca.dir)
	}
	certificates := []string{"server", "service-account", "client", "logical-cluster-admin", "external-logical-cluster-admin"}
	kubeconfigs := []string{"logical-cluster-admin-kubeconfig", "external-logical-cluster-admin-kubeconfig"}
	if !s.IsRoot() {
		certificates, kubeconfigs = append(certificates, "mounts-proxy"), append(kubeconfigs, "client-kubeconfig")
	}
	for _, name := range certificates {
		c.mount(secretVolume(name+"-cert", s.Certificate(name)), shardTLS+"/"+name)
	}
	for _, name := range kubeconfigs {
		c.mount(secretVolume(name, s.Certificate(name)), "/etc/kcp/"+name)
	}
	if len(s.CABundleRefs()) > 0 {
		c.mount(secretVolume("ca-bundle", MergedCABundle(s.Name())), shardTLS+"/ca/ca-bundle")
	}
}

func (s Shard) fixedFlags(c *commandLine) {
	c.flag("root-ca-file", shardTLS+"/ca/root/tls.crt")
	c.flag("client-ca-file", shardTLS+"/ca/client/tls.crt")
	c.requestHeader(shardTLS+"/ca/requestheader-client/tls.crt", frontProxyUser+","+internalProxyUser)
	c.flag("tls-private-key-file", shardTLS+"/server/tls.key")
	c.flag("tls-cert-file", shardTLS+"/server/tls.crt")
	c.flag("service-account-key-file", shardTLS+"/service-account/tls.crt")
	c.flag("service-account-private-key-file", shardTLS+"/service-account/tls.key")
	c.flag("service-account-lookup", false)
	c.flag("shard-client-key-file", shardTLS+"/client/tls.key")
	c.flag("shard-client-cert-file", shardTLS+"/client/tls.crt")
	c.flag("shard-base-url", s.BaseURL())
	c.flag("shard-external-url", ExternalURL(s.root))
	c.flag("logical-cluster-admin-kubeconfig", "/etc/kcp/logical-cluster-admin-kubeconfig/"+KubeconfigKey)
	c.flag("external-logical-cluster-admin-kubeconfig", "/etc/kcp/external-logical-cluster-admin-kubeconfig/"+KubeconfigKey)
	c.flag("batteries-included", "workspace-types")
	c.flag("root-directory", "")
	c.flag("enable-leader-election", true)
	c.flag("logging-format", "json")
}

// secondaryFlags are the flags of a shard that is not the root shard: its name, and the addresses of the root shard and
// of the cache, which the root shard embeds if there is no cache server.
func (s Shard) secondaryFlags(c *commandLine, dependencies Dependencies) {
	const rootKubeconfig = "/etc/kcp/client-kubeconfig/" + KubeconfigKey
	c.flag("shard-name", s.ShardName())
	c.flag("external-hostname", s.root.Spec.External.Hostname)
	c.flag("root-shard-kubeconfig-file", rootKubeconfig)
	cache := rootKubeconfig
	if dependencies.Cache != nil {
		cache = cacheKubeconfig
	}
	c.flag("cache-kubeconfig", cache)
	c.flag("mount-proxy-client-cert-file", shardTLS+"/mounts-proxy/tls.crt")
	c.flag("mount-proxy-client-key-file", shardTLS+"/mounts-proxy/tls.key")
}

// cacheFiles mounts the files of a client of a cache server. certificate is the Secret with the certificate of this
// client: one with full access to the cache would have power over all shards.
func (c *commandLine) cacheFiles(cache *operatorv1alpha1.CacheServer, certificate string) {
	of := NewCacheServer(cache)
	c.mount(secretVolume("cache-server-kubeconfig", of.Kubeconfig()), cacheDir+"/kubeconfig")
	c.mount(caVolume("cache-server-ca", of.CASecret()), cacheDir+"/tls/ca/root")
	c.mount(secretVolume("cache-server-client-cert", certificate), cacheDir+"/tls/client-certificate")
}
