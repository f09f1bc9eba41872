package desired

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// CacheClient is the suffix of the client certificate of a server for its cache server. The certificate has the name of the server, which
// may read all objects and write its own.
const CacheClient = "cache-client"

// CacheServer is the server of a CacheServer.
type CacheServer struct {
	component
	object *operatorv1alpha1.CacheServer
}

// NewCacheServer returns the server of a CacheServer.
func NewCacheServer(cache *operatorv1alpha1.CacheServer) CacheServer {
	return CacheServer{object: cache, component: component{
		owner: cache, kind: "CacheServer", label: operatorv1alpha1.LabelCacheServer, component: ComponentCacheServer, suffix: "-cache-server",
	}}
}

// ClusterDomain is the DNS domain of the cluster the server runs in.
func (c CacheServer) ClusterDomain() string {
	return orDefault(c.object.Spec.ClusterDomain, DefaultClusterDomain)
}

// Host is the DNS name of the Service.
func (c CacheServer) Host() string {
	return ServiceHost(c.Server(), c.object.Namespace, c.ClusterDomain())
}

// URL is the URL at which shards reach the server.
func (c CacheServer) URL() string { return httpsURL(c.Host(), ServerPort) }

// CA is the name of the Issuer and the Certificate of the server's certificate authority.
func (c CacheServer) CA() string { return c.object.Name + "-ca" }

// ProvidedCA is the Secret with a certificate authority that the user provides, or "".
func (c CacheServer) ProvidedCA() string {
	if ref := c.object.Spec.Certificates.CASecretRef; ref != nil {
		return ref.Name
	}
	return ""
}

// CASecret is the name of the Secret that holds the certificate authority.
func (c CacheServer) CASecret() string { return orDefault(c.ProvidedCA(), c.CA()) }

// CacheName is the name of the cache among those of its hierarchy.
func (c CacheServer) CacheName() string { return orDefault(c.object.Spec.CacheName, c.object.Name) }

// Kubeconfig is the Secret with the kubeconfig that clients of the server mount.
func (c CacheServer) Kubeconfig() string { return c.object.Name + "-kubeconfig" }

// IsEmbedded reports whether the store is embedded in the pod.
func (c CacheServer) IsEmbedded() bool { return c.object.Spec.Etcd == nil }

// CacheServerService is the Service of a cache server.
func CacheServerService(c CacheServer) *corev1.Service {
	return c.service(c.object.Spec.ServiceTemplate, httpsPort("https", ServerPort, ServerPort))
}

// CacheServerKubeconfig is the kubeconfig of clients. It references file paths at which each client mounts its own certificate.
func CacheServerKubeconfig(c CacheServer) (*corev1.Secret, error) {
	files := fileKubeconfig("cache", "cache", "cache", c.URL(), cacheDir+"/tls/ca/root/tls.crt", cacheDir+"/tls/client-certificate")
	return c.kubeconfigSecret(c.Kubeconfig(), files)
}

// CacheServerDeployment is the Deployment of a cache server. etcd is its store unless that is embedded; parent is the cache above it, or
// nil.
func CacheServerDeployment(c CacheServer, image Image, etcd Etcd, parent *CacheParent) *appsv1.Deployment {
	line, spec := c.commandLine(etcd, parent), c.object.Spec
	replicas := spec.Replicas
	if c.IsEmbedded() {
		// An embedded store belongs to one pod: two pods would each have half of the objects.
		one := int32(1)
		if replicas == nil || *replicas > 1 {
			replicas = &one
		}
	}
	return server{
		component: c.component,
		container: "cache-server",
		command:   []string{"/cache-server"},
		args:      line.args,
		volumes:   line.volumes,
		mounts:    line.mounts,
		resources: mergedResources(cacheResources(), spec.Resources),
		probes:    defaultProbes(),
		image:     image,
		imageSpec: spec.Image,
		replicas:  replicas,
		template:  spec.DeploymentTemplate,
		extras:    spec.ContainerExtras,
	}.deployment()
}

func cacheResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("2Gi")},
	}
}

func (c CacheServer) commandLine(etcd Etcd, parent *CacheParent) *commandLine {
	const tls, credentials, scratch = cacheDir + "/tls", cacheDir + "/etcd", "/var/etcd"
	line := &commandLine{}
	line.addMount(secretVolume("serving-cert", c.Certificate("server")), tls+"/server")
	line.addMount(caVolume("client-ca", c.CASecret()), tls+"/ca/root")
	line.addFlag("tls-cert-file", tls+"/server/tls.crt")
	line.addFlag("tls-private-key-file", tls+"/server/tls.key")
	line.addFlag("root-directory", "")
	line.addFlag("client-ca-file", tls+"/ca/root/tls.crt")
	if c.IsEmbedded() {
		line.addFlag("embedded-etcd-directory", scratch)
		line.volumes = append(line.volumes, corev1.Volume{Name: "etcd-scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		line.mounts = append(line.mounts, corev1.VolumeMount{Name: "etcd-scratch", MountPath: scratch})
	} else {
		line.addEtcdWithMount(etcd, "etcd-cert", credentials)
	}
	if parent != nil {
		c.addParentFlags(line, parent)
	}
	line.addLogging(c.object.Spec.Logging)
	line.args = append(line.args, c.object.Spec.ExtraArgs...)
	return line
}
