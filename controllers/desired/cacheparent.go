package desired

import (
	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// ParentClient is the suffix of the client certificate of a cache server for the cache above it.
const ParentClient = "parent-client"

// cacheParentDir is the directory with the credentials of a cache server for the cache above it.
const cacheParentDir = cacheDir + "/parent"

// CacheParent is the connection of a cache server to the cache above it: with a certificate that the operator issues, or with a
// kubeconfig of the user.
type CacheParent struct {
	URL      string
	CASecret string // with the CA of its serving certificate
	Issuer   string // of client certificates
	// Kubeconfig is a Secret of the user; if it is set, the other fields are empty.
	Kubeconfig string
}

// ParentCacheServer is a CacheServer as the parent of others.
func ParentCacheServer(cache *operatorv1alpha1.CacheServer) *CacheParent {
	c := NewCacheServer(cache)
	return &CacheParent{URL: c.URL(), CASecret: c.CASecret(), Issuer: c.CA()}
}

// ParentRootShard is the embedded cache of a root shard as the parent of others.
func ParentRootShard(root *operatorv1alpha1.RootShard) *CacheParent {
	return &CacheParent{URL: RootShardBaseURL(root), CASecret: CASecret(root, ServerCA), Issuer: SigningCA(root, ClientCA)}
}

// ParentKubeconfig is a cache that the user provides a kubeconfig for.
func ParentKubeconfig(secret string) *CacheParent { return &CacheParent{Kubeconfig: secret} }

// ParentKubeconfigSecret is the kubeconfig for a parent whose credentials the operator issues.
func ParentKubeconfigSecret(c CacheServer, parent *CacheParent) (*corev1.Secret, error) {
	files := fileKubeconfig("parent", "parent", "cache", parent.URL, cacheParentDir+"/ca/tls.crt", cacheParentDir+"/client-certificate")
	return c.kubeconfigSecret(c.parentKubeconfig(), files)
}

func (c CacheServer) parentKubeconfig() string { return c.object.Name + "-parent-kubeconfig" }

// addParentFlags sets the flags and mounts for the cache above.
func (c CacheServer) addParentFlags(line *commandLine, parent *CacheParent) {
	line.addFlag("cache-name", c.CacheName())
	line.addFlag("parent-kubeconfig", cacheParentDir+"/kubeconfig/"+KubeconfigKey)
	if parent.Kubeconfig != "" {
		line.addMount(secretVolume("parent-kubeconfig", parent.Kubeconfig), cacheParentDir+"/kubeconfig")
		return
	}
	line.addMount(secretVolume("parent-kubeconfig", c.parentKubeconfig()), cacheParentDir+"/kubeconfig")
	line.addMount(caVolume("parent-ca", parent.CASecret), cacheParentDir+"/ca")
	line.addMount(secretVolume("parent-client-cert", c.Certificate(ParentClient)), cacheParentDir+"/client-certificate")
}
