package desired

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// KubeconfigKey is the key under which every Secret holds a kubeconfig.
const KubeconfigKey = "kubeconfig"

// MergedCA is the Secret with all certificates of a CA that a component trusts; of the client CA, also those that the user adds.
func MergedCA(ca CA, owner string) string { return owner + "-merged-" + string(ca) }

// MergedCABundle is the Secret with all server CAs that a component trusts.
func MergedCABundle(owner string) string { return owner + "-merged-ca-bundle" }

// ShardKubeconfigs are the kubeconfigs that the server of a shard uses. They reference certificate files.
func ShardKubeconfigs(s Shard) ([]*corev1.Secret, error) {
	const serverCA = shardTLS + "/ca/server/tls.crt"
	externalCA := serverCA
	if len(s.CABundleRefs()) > 0 {
		externalCA = shardTLS + "/ca/ca-bundle/tls.crt"
	}
	files := map[string]*clientcmdapi.Config{}
	if s.IsRoot() {
		files["logical-cluster-admin"] = fileKubeconfig("root-shard", "shard-base", "shard", s.BaseURL(), serverCA, shardTLS+"/logical-cluster-admin")
		files["external-logical-cluster-admin"] = fileKubeconfig("root-shard", "shard-base", "shard", PrivateURL(s.root), externalCA, shardTLS+"/external-logical-cluster-admin")
	} else {
		files["client"] = fileKubeconfig("root-shard", "shard-base", "shard", RootShardBaseURL(s.root), serverCA, shardTLS+"/client")
		files["logical-cluster-admin"] = fileKubeconfig("logical-cluster:admin", "logical-cluster", "logical-cluster-admin", s.BaseURL(), serverCA, shardTLS+"/logical-cluster-admin")
		files["external-logical-cluster-admin"] = fileKubeconfig("external-logical-cluster:admin", "external-logical-cluster", "external-logical-cluster-admin",
			PrivateURL(s.root), externalCA, shardTLS+"/external-logical-cluster-admin")
	}
	var out []*corev1.Secret
	for _, key := range slices.Sorted(maps.Keys(files)) {
		secret, err := s.kubeconfigSecret(s.Certificate(key+"-kubeconfig"), files[key])
		if err != nil {
			return nil, err
		}
		out = append(out, secret)
	}
	return out, nil
}

// ProxyKubeconfig is the kubeconfig with which a proxy watches the shards.
func ProxyKubeconfig(p Proxy) (*corev1.Secret, error) {
	files := fileKubeconfig("system:admin", "system:admin", "admin", RootShardBaseURL(p.root), proxyCADir+"/tls.crt", proxyDir+"/kubeconfig-client-cert")
	return p.kubeconfigSecret(p.dynamicKubeconfig(), files)
}

// UserKubeconfig is the kubeconfig of a Kubeconfig object, with its credentials embedded.
type UserKubeconfig struct {
	User          string
	Server        string // without a path
	Workspace     string
	CA, Cert, Key []byte // PEM
	WithShardBase bool   // a third context, for a target that is a shard
}

// File renders the kubeconfig.
func (k UserKubeconfig) File() ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["default"] = &clientcmdapi.Cluster{Server: k.Server + "/clusters/" + k.Workspace, CertificateAuthorityData: k.CA}
	config.Clusters["base"] = &clientcmdapi.Cluster{Server: k.Server, CertificateAuthorityData: k.CA}
	config.AuthInfos[k.User] = &clientcmdapi.AuthInfo{ClientCertificateData: k.Cert, ClientKeyData: k.Key}
	config.Contexts["default"] = &clientcmdapi.Context{Cluster: "default", AuthInfo: k.User}
	config.Contexts["base"] = &clientcmdapi.Context{Cluster: "base", AuthInfo: k.User}
	if k.WithShardBase {
		config.Contexts["shard-base"] = &clientcmdapi.Context{Cluster: "base", AuthInfo: k.User}
	}
	config.CurrentContext = "default"
	return clientcmd.Write(*config)
}

// UserSecret is the Secret of a Kubeconfig object in the installation of root. It preserves other keys. If the Secret has another owner,
// it also preserves the app labels, because tools identify their objects by these labels.
func UserSecret(kubeconfig *operatorv1alpha1.Kubeconfig, root *operatorv1alpha1.RootShard, file []byte, owned bool) *corev1.Secret {
	secret := generatedSecret(kubeconfig.Spec.SecretRef.Name, kubeconfig.Namespace, KubeconfigLabels(kubeconfig, root), nil, map[string][]byte{KubeconfigKey: file})
	if owned {
		secret.OwnerReferences = NewOwnerReferences("Kubeconfig", kubeconfig)
	} else {
		maps.DeleteFunc(secret.Labels, func(key, _ string) bool { return strings.HasPrefix(key, "app.kubernetes.io/") })
	}
	secret.Type = "" // immutable, and the Secret may exist
	return secret
}

// KubeconfigClientCertificates returns the client certificates in the Secret of a Kubeconfig; none if it cannot be read.
func KubeconfigClientCertificates(secret *corev1.Secret) [][]byte {
	config, err := clientcmd.Load(secret.Data[KubeconfigKey])
	if err != nil {
		return nil
	}
	var out [][]byte
	for _, user := range config.AuthInfos {
		if len(user.ClientCertificateData) > 0 {
			out = append(out, user.ClientCertificateData)
		}
	}
	return out
}

func fileKubeconfig(cluster, context, user, server, caFile, certDir string) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: caFile}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificate: certDir + "/tls.crt", ClientKey: certDir + "/tls.key"}
	config.Contexts[context] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = context
	return config
}

func (c component) kubeconfigSecret(name string, config *clientcmdapi.Config) (*corev1.Secret, error) {
	file, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing kubeconfig %s: %w", name, err)
	}
	return c.secret(name, map[string][]byte{KubeconfigKey: file}), nil
}

// secret is a Secret that the operator generates for the server.
func (c component) secret(name string, data map[string][]byte) *corev1.Secret {
	return generatedSecret(name, c.Namespace(), c.FileLabels(), c.OwnerReferences(), data)
}

func generatedSecret(name, namespace string, labels map[string]string, owner []metav1.OwnerReference, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels, OwnerReferences: owner},
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}
}
