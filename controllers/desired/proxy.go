package desired

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Common names of the client certificates of proxies.
const (
	frontProxyUser    = "kcp-front-proxy"
	internalProxyUser = "kcp-root-shard-proxy"
)

// Proxy is a front proxy or the internal proxy of a root shard. They run the same server and differ in names and in the fields with their
// settings.
type Proxy struct {
	component
	root  *operatorv1alpha1.RootShard
	front *operatorv1alpha1.FrontProxy // nil for the internal one
	spec  operatorv1alpha1.RootShardProxySpec
	// tokenKeys are the TokenKeys of Dependencies.
	tokenKeys []TokenKey
}

// NewInternalProxy returns the proxy of a root shard through which the operator reaches any workspace.
func NewInternalProxy(root *operatorv1alpha1.RootShard) Proxy {
	p := Proxy{root: root, component: component{
		owner: root, kind: "RootShard", label: operatorv1alpha1.LabelRootShard, component: ComponentRootShardProxy, suffix: "-proxy", root: root.Name,
	}}
	if root.Spec.Proxy != nil {
		p.spec = *root.Spec.Proxy
	}
	if p.spec.Image == nil {
		p.spec.Image = root.Spec.Image
	}
	return p
}

// NewFrontProxy returns a front proxy of the installation of root. tokenKeys are those by which service account tokens
// it accepts, as in Dependencies.
func NewFrontProxy(front *operatorv1alpha1.FrontProxy, root *operatorv1alpha1.RootShard, tokenKeys ...TokenKey) Proxy {
	owner := component{
		owner: front, kind: "FrontProxy", label: operatorv1alpha1.LabelFrontProxy, component: ComponentFrontProxy, suffix: "-front-proxy", root: rootName(root),
	}
	return Proxy{component: owner, root: root, front: front, tokenKeys: tokenKeys, spec: operatorv1alpha1.RootShardProxySpec{
		Image: front.Spec.Image, Replicas: front.Spec.Replicas, Resources: front.Spec.Resources,
		ServiceTemplate: front.Spec.ServiceTemplate, DeploymentTemplate: front.Spec.DeploymentTemplate,
		CertificateTemplates: front.Spec.CertificateTemplates, ContainerExtras: front.Spec.ContainerExtras, Logging: front.Spec.Logging,
		SharedIndex: front.Spec.SharedIndex,
	}}
}

// Root is the RootShard of the installation.
func (p Proxy) Root() *operatorv1alpha1.RootShard { return p.root }

// Certificate is the name of a certificate; side is server, kubeconfig or requestheader.
func (p Proxy) Certificate(side string) string {
	if p.front != nil {
		return p.root.Name + "-" + p.front.Name + "-" + side
	}
	return p.root.Name + "-proxy-" + side
}

// CommonName is the common name of its client certificates.
func (p Proxy) CommonName() string {
	if p.front != nil {
		return frontProxyUser
	}
	return internalProxyUser
}

// ServingNames are the names that the serving certificate is valid for.
func (p Proxy) ServingNames() []string {
	namespace, domain := p.root.Namespace, ClusterDomain(p.root)
	names := []string{p.Server(), p.Server() + "." + namespace, p.Server() + "." + namespace + ".svc", ServiceHost(p.Server(), namespace, domain)}
	if p.front == nil {
		return names
	}
	names = append(names, p.root.Spec.External.Hostname, p.root.Spec.External.PrivateHostname, TrimPort(p.front.Spec.ExternalHostname))
	if p.front.Spec.External != nil {
		names = append(names, p.front.Spec.External.Hostname)
	}
	return names
}

// CertificateTemplates are the certificate templates of the spec.
func (p Proxy) CertificateTemplates() operatorv1alpha1.CertificateTemplates {
	return p.spec.CertificateTemplates
}

// CABundleRef names the user's Secret with CAs of backends, or is nil.
func (p Proxy) CABundleRef() *corev1.LocalObjectReference {
	if p.front != nil {
		return p.front.Spec.CABundleSecretRef
	}
	return p.root.Spec.CABundleSecretRef
}

// ClientCABundleRefs name the user's Secrets with further client CAs, in the order they are merged.
func (p Proxy) ClientCABundleRefs() []*corev1.LocalObjectReference {
	refs := []*corev1.LocalObjectReference{p.root.Spec.ClientCABundleRef}
	if p.front != nil {
		refs = append(refs, p.front.Spec.ClientCABundleRef)
	}
	return refs
}

// BundleOwner is the prefix of the names of the merged bundles.
func (p Proxy) BundleOwner() string {
	if p.front != nil {
		return p.front.Name
	}
	return p.root.Name + "-proxy"
}

func (p Proxy) configMap() string {
	if p.front != nil {
		return p.front.Name + "-config"
	}
	return p.root.Name + "-proxy-config"
}

func (p Proxy) dynamicKubeconfig() string { return p.Certificate("dynamic-kubeconfig") }

// ServiceURL is the URL of the Service. Clients outside of the cluster may use another one. A headless Service resolves to the pods, and
// has their port.
func (p Proxy) ServiceURL() string {
	port := p.servicePort()
	if t := p.spec.ServiceTemplate; t != nil && t.Spec != nil && t.Spec.ClusterIP == corev1.ClusterIPNone {
		port = ServerPort
	}
	return httpsURL(ServiceHost(p.Server(), p.root.Namespace, ClusterDomain(p.root)), port)
}

// ReachesAllShardsAs reports whether a user in a group reaches the workspaces of all shards through the proxy: it
// routes to all shards, and does not drop the group.
func (p Proxy) ReachesAllShardsAs(group string) bool {
	for _, arg := range p.spec.ExtraArgs {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch name {
		case "shards", "shard-selector", "authentication-drop-groups", "authentication-pass-on-groups":
			return false // only the proxy can evaluate it
		}
	}
	if p.front == nil || p.front.Spec.Auth == nil {
		return true
	}
	auth := p.front.Spec.Auth
	return (groupList(auth.PassOnGroups) == "" || MatchesGroup(auth.PassOnGroups, group)) && !MatchesGroup(auth.DropGroups, group)
}

// MatchesGroup reports whether a list of groups, in which a trailing "*" matches any suffix, has a group.
func MatchesGroup(patterns []string, group string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, wild := strings.CutSuffix(pattern, "*")
		return pattern == group || wild && strings.HasPrefix(group, prefix)
	})
}

// ProxyService is the Service of a proxy.
func ProxyService(p Proxy) *corev1.Service {
	return p.service(p.spec.ServiceTemplate, httpsPort("https", p.servicePort(), ServerPort))
}

// servicePort returns the port of the proxy's address, or else of the installation's address.
func (p Proxy) servicePort() int32 {
	if p.front == nil {
		return ServerPort
	}
	if p.front.Spec.External != nil && p.front.Spec.External.Port > 0 {
		return p.front.Spec.External.Port
	}
	if host, port := splitHostPort(p.front.Spec.ExternalHostname); host != "" {
		return port
	}
	if p.root.Spec.External.Port > 0 {
		return p.root.Spec.External.Port
	}
	return ServerPort
}

// ProxyConfig is the ConfigMap with the path mappings: the backend of each URL path.
func ProxyConfig(p Proxy) (*corev1.ConfigMap, error) {
	ca := proxyCADir + "/tls.crt"
	if p.CABundleRef() != nil {
		ca = proxyCADir + "/ca-bundle/tls.crt"
	}
	var mappings []operatorv1alpha1.PathMapping
	for _, path := range []string{"/clusters/", "/services/"} {
		mappings = append(mappings, operatorv1alpha1.PathMapping{
			Path: path, Backend: RootShardBaseURL(p.root), BackendServerCA: ca,
			ProxyClientCert: proxyDir + "/requestheader-client/tls.crt",
			ProxyClientKey:  proxyDir + "/requestheader-client/tls.key",
		})
	}
	if p.front != nil {
		mappings = append(mappings, p.front.Spec.AdditionalPathMappings...)
	}
	file, err := yaml.Marshal(mappings)
	if err != nil {
		return nil, fmt.Errorf("writing the path mappings of %s: %w", p.Server(), err)
	}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: p.fileMeta(p.configMap()),
		Data:       map[string]string{"path-mapping.yaml": string(file)},
	}, nil
}

// Directories of the files of a proxy.
const (
	proxyDir   = "/etc/kcp-front-proxy"
	proxyCADir = "/etc/kcp/tls/ca"
)

// ProxyDeployment is the Deployment of a proxy.
func ProxyDeployment(p Proxy, image Image) *appsv1.Deployment {
	line := p.commandLine()
	out := server{
		component: p.component,
		container: "kcp-front-proxy",
		command:   []string{"/kcp-front-proxy"},
		args:      line.args,
		volumes:   line.volumes,
		mounts:    line.mounts,
		resources: mergedResources(proxyResources(), p.spec.Resources),
		// A proxy listens after it has synced the shards. Without the startup probe, the kubelet would restart it while the root shard
		// starts; the startup probe allows five minutes.
		probes:    defaultProbes(),
		image:     image,
		imageSpec: p.spec.Image,
		replicas:  p.spec.Replicas,
		template:  p.spec.DeploymentTemplate,
		extras:    p.spec.ContainerExtras,
	}.deployment()
	setCATrust(&out.Spec.Template, p.root, p.trusts())
	return out
}

// proxyResources are the default resources of a proxy: its index and its watches need memory in proportion to their number, and the limit
// protects the memory of the node.
func proxyResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")},
	}
}

// volumeName returns the name of the volume of a Secret or ConfigMap: the same name, or one from the path where it is mounted if pods refuse
// that. Names of volumes are shorter than those of Secrets, and have no dots.
func volumeName(name, path string) string {
	if len(validation.IsDNS1123Label(name)) == 0 {
		return name
	}
	return strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "-")
}

func (p Proxy) commandLine() *commandLine {
	c := &commandLine{}
	named := func(volume func(name, secret string) corev1.Volume, secret, path string) {
		c.addMount(volume(volumeName(secret, path), secret), path)
	}
	named(secretVolume, p.dynamicKubeconfig(), proxyDir+"/kubeconfig")
	named(secretVolume, p.Certificate("kubeconfig"), proxyDir+"/kubeconfig-client-cert")
	named(secretVolume, p.Certificate("server"), proxyDir+"/tls")
	named(secretVolume, p.Certificate("requestheader"), proxyDir+"/requestheader-client")
	rootVolume := volumeName(CAName(p.root, RootCA), proxyCADir)
	c.addMount(caVolume(rootVolume, CASecret(p.root, RootCA)), proxyCADir)
	// Existing manifests also use this path of the root CA.
	c.mounts = append(c.mounts, readOnly(rootVolume, proxyDir+"/tls/ca"))
	headerCAs := proxyCADir + "/requestheader-client"
	c.addMount(caVolume(volumeName(CAName(p.root, RequestHeaderCA), headerCAs), trustedCA(p.root, RequestHeaderCA, p.BundleOwner(), nil)), headerCAs)
	if p.CABundleRef() != nil {
		named(secretVolume, MergedCABundle(p.BundleOwner()), proxyCADir+"/ca-bundle")
	}
	named(secretVolume, MergedCA(ClientCA, p.BundleOwner()), proxyDir+"/client-ca")
	named(configMapVolume, p.configMap(), proxyDir+"/config")

	c.addFlag("secure-port", ServerPort)
	c.addFlag("root-kubeconfig", proxyDir+"/kubeconfig/kubeconfig")
	c.addFlag("shards-kubeconfig", proxyDir+"/kubeconfig/kubeconfig")
	c.addFlag("tls-private-key-file", proxyDir+"/tls/tls.key")
	c.addFlag("tls-cert-file", proxyDir+"/tls/tls.crt")
	c.addFlag("mapping-file", proxyDir+"/config/path-mapping.yaml")
	c.addFlag("client-ca-file", proxyDir+"/client-ca/tls.crt")
	// Another proxy that forwards to a mount presents this name; shards have no certificate of this CA.
	c.addRequestHeader(proxyCADir+"/requestheader-client/tls.crt", p.CommonName())
	c.addSharedIndex(p.root.Spec.SharedIndex, p.spec.SharedIndex, proxyIndexDir)
	if p.front == nil {
		c.addLogging(p.spec.Logging)
		c.args = append(c.args, p.spec.ExtraArgs...)
		return c
	}
	if auth := p.front.Spec.Auth; auth != nil {
		// An empty list drops no group; without a list the proxy has defaults.
		if auth.DropGroups != nil {
			c.addFlag("authentication-drop-groups", groupList(auth.DropGroups))
		}
		if auth.PassOnGroups != nil {
			c.addFlag("authentication-pass-on-groups", groupList(auth.PassOnGroups))
		}
	}
	c.addLogging(p.spec.Logging)
	c.args = append(c.args, p.spec.ExtraArgs...)
	c.addAuthentication(p.front.Spec.Auth)
	// The server sends each token for review to the shard of its logical cluster, so a key is valid for one shard only.
	c.addTokenKeys("service-account-key-file", p.front.Spec.Auth, p.tokenKeys)
	return c
}

// groupList joins groups for a comma-separated flag. A list of the empty group is empty.
func groupList(groups []string) string {
	var out []string
	for _, group := range groups {
		if group != "" {
			out = append(out, group)
		}
	}
	return strings.Join(out, ",")
}
