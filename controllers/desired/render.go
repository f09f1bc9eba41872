package desired

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Server is one server of an installation: its Deployment and the objects that go with it.
type Server struct {
	Objects    []client.Object // Service, kubeconfigs and configuration
	Bundles    []Bundle
	Deployment *appsv1.Deployment
}

// Bundle merges CA certificates, each from the key tls.crt of a Secret.
type Bundle struct {
	Secret *corev1.Secret                 // that holds the merged certificates; without data
	CA     string                         // Secret of the installation's own CA, which comes first
	Refs   []*corev1.LocalObjectReference // Secrets of the user; nil ones are left out
}

// Sources are the names of the Secrets that are merged, in order.
func (b Bundle) Sources() []string {
	out := []string{b.CA}
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
		Bundles:    mergedBundles(s, s.Namespace()),
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
		Bundles:    mergedBundles(v, v.object.Namespace),
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
	bundle := func(name string, ca CA, refs ...*corev1.LocalObjectReference) Bundle {
		return Bundle{Secret: bundleSecret(name, p.root.Namespace, p.SecretLabels(), p.OwnerReferences()), CA: CASecret(p.root, ca), Refs: refs}
	}
	bundles := []Bundle{bundle(MergedClientCA(p.BundleOwner()), ClientCA, p.ClientCABundleRefs()...)}
	if p.CABundleRef() != nil {
		bundles = append(bundles, bundle(MergedCABundle(p.BundleOwner()), ServerCA, p.CABundleRef()))
	}
	return Server{Objects: []client.Object{ProxyService(p), config, kubeconfig}, Bundles: bundles, Deployment: ProxyDeployment(p, image)}, nil
}

// bundleOwner is a server that merges the user's CAs with those of its installation.
type bundleOwner interface {
	Name() string
	Root() *operatorv1alpha1.RootShard
	CABundleRefs() []*corev1.LocalObjectReference
	ClientCABundleRefs() []*corev1.LocalObjectReference
	SecretLabels() map[string]string
	OwnerReferences() []metav1.OwnerReference
}

// mergedBundles are the bundles of a server whose spec adds CAs.
func mergedBundles(o bundleOwner, namespace string) []Bundle {
	var out []Bundle
	add := func(name string, ca CA, refs []*corev1.LocalObjectReference) {
		if len(refs) > 0 {
			secret := bundleSecret(name, namespace, o.SecretLabels(), o.OwnerReferences())
			out = append(out, Bundle{Secret: secret, CA: CASecret(o.Root(), ca), Refs: refs})
		}
	}
	add(MergedCABundle(o.Name()), ServerCA, o.CABundleRefs())
	add(MergedClientCA(o.Name()), ClientCA, o.ClientCABundleRefs())
	return out
}
