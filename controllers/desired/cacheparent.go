package desired

import (
	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// ParentClient is the suffix of the certificate by which a cache server is known to the cache above it.
const ParentClient = "parent-client"

// cacheParentDir is where a cache server finds what it reaches the one above with.
const cacheParentDir = cacheDir + "/parent"

// CacheParent is the cache above a cache server, as that reaches it: by a certificate that the operator has made, or by a
// kubeconfig of the user's.
type CacheParent struct {
	URL      string
	CASecret string // with the CA of its serving certificate
	Issuer   string // of certificates that its clients are known by
	// Kubeconfig is the Secret that the user brought; then the others are empty.
	Kubeconfig string
}

// ParentCacheServer is a CacheServer as the parent of others.
func ParentCacheServer(cache *operatorv1alpha1.CacheServer) *CacheParent {
	c := NewCacheServer(cache)
	return &CacheParent{URL: c.URL(), CASecret: c.CASecret(), Issuer: c.CA()}
}

// ParentRootShard is the cache that a root shard holds itself.
func ParentRootShard(root *operatorv1alpha1.RootShard) *CacheParent {
	return &CacheParent{URL: RootShardBaseURL(root), CASecret: CASecret(root, ServerCA), Issuer: CAName(root, ClientCA)}
}

// ParentKubeconfig is a cache that only the user knows.
func ParentKubeconfig(secret string) *CacheParent { return &CacheParent{Kubeconfig: secret} }

// ParentKubeconfigSecret is what a cache server reaches its parent with, where the operator makes it.
func ParentKubeconfigSecret(c CacheServer, parent *CacheParent) (*corev1.Secret, error) {
	files := fileKubeconfig("parent", "parent", "cache", parent.URL, cacheParentDir+"/ca/tls.crt", cacheParentDir+"/client-certificate")
	return kubeconfigSecret(c.parentKubeconfig(), c.object.Namespace, c.SecretLabels(), c.Owner(), files)
}

func (c CacheServer) parentKubeconfig() string { return c.object.Name + "-parent-kubeconfig" }

// parentFlags puts a cache server below another cache.
func (c CacheServer) parentFlags(line *commandLine, parent *CacheParent) {
	line.flag("cache-name", c.CacheName())
	line.flag("parent-kubeconfig", cacheParentDir+"/kubeconfig/"+KubeconfigKey)
	if parent.Kubeconfig != "" {
		line.mount(secretVolume("parent-kubeconfig", parent.Kubeconfig), cacheParentDir+"/kubeconfig")
		return
	}
	line.mount(secretVolume("parent-kubeconfig", c.parentKubeconfig()), cacheParentDir+"/kubeconfig")
	line.mount(caVolume("parent-ca", parent.CASecret), cacheParentDir+"/ca")
	line.mount(secretVolume("parent-client-cert", c.Certificate(ParentClient)), cacheParentDir+"/client-certificate")
}
