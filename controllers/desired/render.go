package desired

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Server is one server of an installation: its Deployment and the related objects.
type Server struct {
	Objects    []client.Object // Service, kubeconfigs and configuration
	Bundles    []Bundle
	Deployment *appsv1.Deployment
}

// Bundle merges CA certificates, each from the key tls.crt of a Secret.
type Bundle struct {
	Secret *corev1.Secret // that holds the merged certificates; without data
	CA     string         // Secret of the installation's own CA, which comes first
	Others []string       // Secrets of other generations of that CA
	// WithoutChain leaves out what follows the first certificate in the Secrets of the installation's own CA. A CA above it would make its
	// retired generations valid.
	WithoutChain bool
	Refs         []*corev1.LocalObjectReference // Secrets of the user; nil ones are left out
}

// OwnCAs are the names of the Secrets of the installation's own CA.
func (b Bundle) OwnCAs() []string { return append([]string{b.CA}, b.Others...) }

// Sources are the names of the Secrets that are merged, in order.
func (b Bundle) Sources() []string {
	out := b.OwnCAs()
	for _, ref := range b.Refs {
		if ref != nil && ref.Name != "" {
			out = append(out, ref.Name)
		}
	}
	return out
}

// Render renders the server of a shard.
func (s Shard) Render(image Image, etcd Etcd, dependencies Dependencies) (Server, error) {
	out := Server{
		Objects:    []client.Object{ShardService(s)},
		Bundles:    s.mergedBundles(s.root, s.CABundleRefs(), s.ClientCABundleRefs()),
		Deployment: ShardDeployment(s, image, etcd, dependencies),
	}
	kubeconfigs, err := ShardKubeconfigs(s)
	for _, secret := range kubeconfigs {
		out.Objects = append(out.Objects, secret)
	}
	return out, err
}

// Render renders a cache server. etcd is its store unless that is embedded; parent is the cache above it, or nil.
func (c CacheServer) Render(image Image, etcd Etcd, parent *CacheParent) (Server, error) {
	out := Server{Objects: []client.Object{CacheServerService(c)}, Deployment: CacheServerDeployment(c, image, etcd, parent)}
	kubeconfig, err := CacheServerKubeconfig(c)
	if err != nil {
		return out, err
	}
	out.Objects = append(out.Objects, kubeconfig)
	if parent != nil && parent.Kubeconfig == "" {
		credentials, err := ParentKubeconfigSecret(c, parent)
		if err != nil {
			return out, err
		}
		out.Objects = append(out.Objects, credentials)
	}
	return out, nil
}

// Render renders a virtual workspace server. cache is the CacheServer of its target, or nil.
func (v VirtualWorkspace) Render(image Image, cache *operatorv1alpha1.CacheServer) Server {
	return Server{
		Objects:    []client.Object{VirtualWorkspaceService(v)},
		Bundles:    v.mergedBundles(v.target.root, v.CABundleRefs(), v.ClientCABundleRefs()),
		Deployment: VirtualWorkspaceDeployment(v, image, cache),
	}
}

// Render renders a proxy.
func (p Proxy) Render(image Image) (Server, error) {
	config, err := ProxyConfig(p)
	if err != nil {
		return Server{}, err
	}
	kubeconfig, err := ProxyKubeconfig(p)
	if err != nil {
		return Server{}, err
	}
	bundles := []Bundle{trustBundle(p.secret(MergedCA(ClientCA, p.BundleOwner()), nil), p.root, ClientCA, p.ClientCABundleRefs())}
	if hasRekeyed(p.root, RequestHeaderCA) {
		bundles = append(bundles, trustBundle(p.secret(MergedCA(RequestHeaderCA, p.BundleOwner()), nil), p.root, RequestHeaderCA, nil))
	}
	if ref := p.CABundleRef(); ref != nil {
		bundles = append(bundles, Bundle{
			Secret: p.secret(MergedCABundle(p.BundleOwner()), nil), CA: CASecret(p.root, ServerCA), Refs: []*corev1.LocalObjectReference{ref},
		})
	}
	return Server{Objects: []client.Object{ProxyService(p), config, kubeconfig}, Bundles: bundles, Deployment: ProxyDeployment(p, image)}, nil
}

// mergedBundles are the bundles of a server whose spec adds CAs to those of its installation, or whose installation has re-keyed one
// of its own.
func (c component) mergedBundles(root *operatorv1alpha1.RootShard, serverCAs, clientCAs []*corev1.LocalObjectReference) []Bundle {
	var out []Bundle
	if len(serverCAs) > 0 {
		out = append(out, Bundle{Secret: c.secret(MergedCABundle(c.Name()), nil), CA: CASecret(root, ServerCA), Refs: serverCAs})
	}
	if len(clientCAs) > 0 || hasRekeyed(root, ClientCA) {
		out = append(out, trustBundle(c.secret(MergedCA(ClientCA, c.Name()), nil), root, ClientCA, clientCAs))
	}
	if hasRekeyed(root, RequestHeaderCA) {
		out = append(out, trustBundle(c.secret(MergedCA(RequestHeaderCA, c.Name()), nil), root, RequestHeaderCA, nil))
	}
	return out
}
