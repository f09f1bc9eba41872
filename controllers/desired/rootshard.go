package desired

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Etcd is the store of a shard as its server sees it.
type Etcd struct {
	Servers     []string // client URLs
	Prefix      string   // "" is the server's own
	Credentials string   // Secret with tls.crt, tls.key and ca.crt; "" for none
}

// RootShardDeployment is the root shard's server.
func RootShardDeployment(root *operatorv1alpha1.RootShard, image Image, etcd Etcd) *appsv1.Deployment {
	line := rootShardCommandLine(root, etcd)
	return server{
		meta:      rootShardMeta(root),
		selector:  AppLabels(ComponentRootShard, root.Name),
		container: "kcp",
		command:   []string{"/kcp", "start"},
		args:      line.args,
		volumes:   line.volumes,
		mounts:    line.mounts,
		resources: serverResources(root.Spec.Resources),
		probes: probes{
			startup:   httpsProbe("/readyz", 10, 5, 60),
			readiness: httpsProbe("/readyz", 10, 10, 6),
			liveness:  httpsProbe("/livez", 10, 10, 6),
		},
		image:     image,
		imageSpec: root.Spec.Image,
		replicas:  root.Spec.Replicas,
		template:  root.Spec.DeploymentTemplate,
		extras:    root.Spec.ContainerExtras,
	}.deployment()
}

// RootShardService is the Service of the root shard's server.
func RootShardService(root *operatorv1alpha1.RootShard) *corev1.Service {
	ports := []corev1.ServicePort{httpsPort("https", ServerPort, ServerPort)}
	if root.Spec.KCPVirtualWorkspace == nil {
		// Nothing listens there; manifests of others refer to it.
		ports = append(ports, httpsPort("https-virtual-workspaces", virtualWorkspacePort, virtualWorkspacePort))
	}
	return service(rootShardMeta(root), AppLabels(ComponentRootShard, root.Name), root.Spec.ServiceTemplate, ports...)
}

func rootShardMeta(root *operatorv1alpha1.RootShard) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: RootShardServer(root), Namespace: root.Namespace,
		Labels:          AppLabels(ComponentRootShard, root.Name),
		OwnerReferences: OwnedBy("RootShard", root),
	}
}

// rootShardCommandLine keeps the order that users of extraArgs rely on: of a flag given twice the last one counts, so
// extraArgs win over what comes before them and lose against what comes after.
func rootShardCommandLine(root *operatorv1alpha1.RootShard, etcd Etcd) *commandLine {
	c := &commandLine{}
	const tls = "/etc/kcp/tls"
	for _, ca := range []struct {
		volume, dir, secret string
	}{
		{"kcp-ca", "root", CASecret(root, RootCA)},
		{"server-ca", "server", CASecret(root, ServerCA)},
		{"service-account-ca", "service-account", CASecret(root, ServiceAccountCA)},
		{"requestheader-client-ca", "requestheader-client", CASecret(root, RequestHeaderCA)},
		{"client-ca", "client", rootShardClientCA(root)},
	} {
		c.mount(caVolume(ca.volume, ca.secret), tls+"/ca/"+ca.dir)
	}
	for _, name := range []string{"server", "service-account", "client", "logical-cluster-admin", "external-logical-cluster-admin"} {
		c.mount(secretVolume(name+"-cert", root.Name+"-"+name), tls+"/"+name)
	}
	for _, name := range []string{"logical-cluster-admin-kubeconfig", "external-logical-cluster-admin-kubeconfig"} {
		c.mount(secretVolume(name, root.Name+"-"+name), "/etc/kcp/"+name)
	}
	if root.Spec.CABundleSecretRef != nil {
		c.mount(secretVolume("ca-bundle", MergedCABundle(root.Name)), tls+"/ca/ca-bundle")
	}

	c.flag("root-ca-file", tls+"/ca/root/tls.crt")
	c.flag("client-ca-file", tls+"/ca/client/tls.crt")
	c.requestHeader(tls+"/ca/requestheader-client/tls.crt", frontProxyUser+","+internalProxyUser)
	c.flag("tls-private-key-file", tls+"/server/tls.key")
	c.flag("tls-cert-file", tls+"/server/tls.crt")
	c.flag("service-account-key-file", tls+"/service-account/tls.crt")
	c.flag("service-account-private-key-file", tls+"/service-account/tls.key")
	c.flag("service-account-lookup", false)
	c.flag("shard-client-key-file", tls+"/client/tls.key")
	c.flag("shard-client-cert-file", tls+"/client/tls.crt")
	c.flag("shard-base-url", RootShardBaseURL(root))
	c.flag("shard-external-url", ExternalURL(root))
	c.flag("logical-cluster-admin-kubeconfig", "/etc/kcp/logical-cluster-admin-kubeconfig/kubeconfig")
	c.flag("external-logical-cluster-admin-kubeconfig", "/etc/kcp/external-logical-cluster-admin-kubeconfig/kubeconfig")
	c.flag("batteries-included", "workspace-types")
	c.flag("root-directory", "")
	c.flag("enable-leader-election", true)
	c.flag("logging-format", "json")

	c.logging(root.Spec.Logging)
	c.args = append(c.args, root.Spec.ExtraArgs...)
	c.etcd(etcd.Servers, etcd.Prefix, etcd.Credentials)
	c.audit(root.Spec.Audit)
	c.authorization(root.Spec.Authorization)
	c.authentication(root.Spec.Auth, []string{root.Name})
	return c
}

// rootShardClientCA is the Secret with the CAs whose client certificates the root shard accepts.
func rootShardClientCA(root *operatorv1alpha1.RootShard) string {
	if root.Spec.ClientCABundleRef != nil {
		return MergedClientCA(root.Name)
	}
	return CASecret(root, ClientCA)
}
