package desired

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// VirtualWorkspace is a virtual workspace server beside a shard.
type VirtualWorkspace struct {
	component
	object *operatorv1alpha1.VirtualWorkspace
	target Shard
}

// NewVirtualWorkspace returns the server of a VirtualWorkspace, beside the shard target.
func NewVirtualWorkspace(virtualWorkspace *operatorv1alpha1.VirtualWorkspace, target Shard) VirtualWorkspace {
	return VirtualWorkspace{object: virtualWorkspace, target: target, component: component{
		owner: virtualWorkspace, kind: "VirtualWorkspace", label: operatorv1alpha1.LabelVirtualWorkspace,
		component: ComponentVirtualWorkspace, suffix: "-virtual-workspace", root: rootName(target.root),
	}}
}

// Root is the RootShard of the installation.
func (v VirtualWorkspace) Root() *operatorv1alpha1.RootShard { return v.target.root }

// Target is the shard that the server runs beside.
func (v VirtualWorkspace) Target() Shard { return v.target }

// Host is the DNS name of the Service.
func (v VirtualWorkspace) Host() string {
	return ServiceHost(v.Server(), v.object.Namespace, orDefault(v.object.Spec.ClusterDomain, DefaultClusterDomain))
}

// ServiceURL is the URL of the Service. Shards publish the external one.
func (v VirtualWorkspace) ServiceURL() string { return httpsURL(v.Host(), ServerPort) }

// IsStandard reports whether it is the server of this project, and not a command of the user, whose endpoints are unknown.
func (v VirtualWorkspace) IsStandard() bool { return len(v.object.Spec.Command) == 0 }

// ClientCABundleRefs name the Secrets of the user with further client CAs, in the order they are merged.
func (v VirtualWorkspace) ClientCABundleRefs() []*corev1.LocalObjectReference {
	return dropNil(v.target.root.Spec.ClientCABundleRef, v.object.Spec.ClientCABundleRef)
}

// CABundleRefs name the Secret of the user with further server CAs, if the spec sets it.
func (v VirtualWorkspace) CABundleRefs() []*corev1.LocalObjectReference {
	return dropNil(v.object.Spec.CABundleSecretRef)
}

// VirtualWorkspaceService is the Service of a virtual workspace server.
func VirtualWorkspaceService(v VirtualWorkspace) *corev1.Service {
	return v.service(v.object.Spec.ServiceTemplate, httpsPort("https", ServerPort, ServerPort))
}

// VirtualWorkspaceDeployment is the Deployment of a virtual workspace server. cache is the CacheServer of its target,
// or nil.
func VirtualWorkspaceDeployment(v VirtualWorkspace, image Image, cache *operatorv1alpha1.CacheServer) *appsv1.Deployment {
	spec := v.object.Spec
	shared := &commandLine{} // the mounts of all containers
	v.mountFiles(shared, cache)
	line := v.commandLine(cache)
	mountCredentials(line, "server-kubeconfig", "/etc/kcp/server-kubeconfig", v.target, v.Certificate("client"), spec.KubeconfigSecretRef)
	s := server{
		component: v.component,
		container: "kcp",
		command:   []string{"/virtual-workspaces"},
		args:      line.args,
		volumes:   slices.Concat(shared.volumes, line.volumes),
		mounts:    slices.Concat(shared.mounts, line.mounts),
		resources: serverResources(spec.Resources),
		image:     image,
		imageSpec: spec.Image,
		replicas:  spec.Replicas,
		template:  spec.DeploymentTemplate,
		extras:    spec.ContainerExtras,
	}
	if !v.IsStandard() {
		s.command, s.mayRunAsRoot = spec.Command, true
	} else {
		s.probes = defaultProbes()
	}
	out := s.deployment()
	for _, init := range spec.InitContainers {
		v.addInitContainer(&out.Spec.Template.Spec, init, shared.mounts, image)
	}
	pod := &out.Spec.Template.Spec
	pod.Volumes = deduplicateVolumes(pod.Volumes)
	setCATrust(&out.Spec.Template, v.target.root, RekeyableCAs())
	return out
}

// addInitContainer adds an init container of the spec, with its volumes.
func (v VirtualWorkspace) addInitContainer(pod *corev1.PodSpec, init operatorv1alpha1.VirtualWorkspaceInitContainer, shared []corev1.VolumeMount, image Image) {
	own := &commandLine{}
	mountCredentials(own, "init-"+init.Name+"-kubeconfig", "/etc/kcp/init-kubeconfig", v.target, v.Certificate("client"), init.KubeconfigSecretRef)
	imageSpec := init.Image
	if imageSpec == nil {
		imageSpec = v.object.Spec.Image
	}
	if init.Image != nil {
		pod.ImagePullSecrets = pullSecrets(&operatorv1alpha1.ImageSpec{ImagePullSecrets: pod.ImagePullSecrets}, init.Image.ImagePullSecrets)
	}
	pod.Volumes = slices.Concat(pod.Volumes, own.volumes, init.Volumes)
	pod.InitContainers = append(pod.InitContainers, corev1.Container{
		Name:                     init.Name,
		Image:                    image.With(imageSpec).String(),
		ImagePullPolicy:          corev1.PullIfNotPresent,
		Command:                  init.Command,
		Args:                     init.Args,
		Resources:                serverResources(init.Resources),
		VolumeMounts:             slices.Concat(shared, own.mounts, init.VolumeMounts),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		// A program of the user may write to the file system of its container.
		SecurityContext: &corev1.SecurityContext{SeccompProfile: runtimeDefault(), AllowPrivilegeEscalation: ptr.To(false)},
	})
}

// mountCredentials mounts the credentials of a container: its own kubeconfig, or else the kubeconfig of the target. It never mounts both.
func mountCredentials(c *commandLine, volume, dir string, target Shard, certificate string, own *corev1.LocalObjectReference) {
	if own != nil {
		c.addMount(secretVolume(volume, own.Name), dir)
		return
	}
	c.addMount(secretVolume("logical-cluster-admin-kubeconfig", target.Certificate("logical-cluster-admin-kubeconfig")), "/etc/kcp/logical-cluster-admin-kubeconfig")
	c.addMount(secretVolume("client-cert", certificate), shardTLS+"/logical-cluster-admin")
}

func (v VirtualWorkspace) mountFiles(c *commandLine, cache *operatorv1alpha1.CacheServer) {
	root := v.target.root
	c.addMount(caVolume("kcp-ca", CASecret(root, RootCA)), shardTLS+"/ca/root")
	c.addMount(caVolume("server-ca", CASecret(root, ServerCA)), shardTLS+"/ca/server")
	c.addMount(caVolume("requestheader-client-ca", trustedCA(root, RequestHeaderCA, v.object.Name, nil)), shardTLS+"/ca/requestheader-client")
	c.addMount(caVolume("client-ca", trustedCA(root, ClientCA, v.object.Name, v.ClientCABundleRefs())), shardTLS+"/ca/client")
	if len(v.CABundleRefs()) > 0 {
		c.addMount(caVolume("ca-bundle", MergedCABundle(v.object.Name)), shardTLS+"/ca/ca-bundle")
	}
	c.addMount(secretVolume("server-cert", v.Certificate("server")), shardTLS+"/server")
	if cache != nil {
		c.mountCacheFiles(cache, v.Certificate(CacheClient))
	}
}

func (v VirtualWorkspace) commandLine(cache *operatorv1alpha1.CacheServer) *commandLine {
	c := &commandLine{}
	c.addFlag("client-ca-file", shardTLS+"/ca/client/tls.crt")
	c.addFlag("tls-private-key-file", shardTLS+"/server/tls.key")
	c.addFlag("tls-cert-file", shardTLS+"/server/tls.crt")
	c.addFlag("bind-address", "0.0.0.0")
	c.addFlag("secure-port", ServerPort)
	c.addRequestHeader(shardTLS+"/ca/requestheader-client/tls.crt", frontProxyUser+","+internalProxyUser)
	if v.object.Spec.KubeconfigSecretRef != nil {
		c.addFlag("kubeconfig", "/etc/kcp/server-kubeconfig/"+KubeconfigKey)
	} else {
		c.addFlag("kubeconfig", "/etc/kcp/logical-cluster-admin-kubeconfig/"+KubeconfigKey)
	}
	// Other servers require this flag, but do not use it.
	c.addFlag("shard-external-url", "https://127.0.0.1:6443")
	if cache != nil {
		c.addFlag("cache-kubeconfig", cacheKubeconfig)
	}
	c.addLogging(v.object.Spec.Logging)
	c.args = append(c.args, v.object.Spec.ExtraArgs...)
	return c
}

// deduplicateVolumes keeps the first volume of each name: containers that share a volume each add it.
func deduplicateVolumes(volumes []corev1.Volume) []corev1.Volume {
	seen := map[string]bool{}
	return slices.DeleteFunc(volumes, func(volume corev1.Volume) bool {
		duplicate := seen[volume.Name]
		seen[volume.Name] = true
		return duplicate
	})
}
