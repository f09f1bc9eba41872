package desired

import (
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Labels by which Argo CD finds its clusters.
const (
	argoCDSecretType        = "argocd.argoproj.io/secret-type"
	argoCDSecretTypeCluster = "cluster"
)

// ArgoCDSecretName returns the name of the Secret that registers a Kubeconfig in Argo CD. Namespaces contain no dots, so the names of two
// Kubeconfigs cannot collide.
func ArgoCDSecretName(kubeconfig *operatorv1alpha1.Kubeconfig) string {
	return "kubeconfig." + kubeconfig.Namespace + "." + kubeconfig.Name
}

// argoCDConfig is the key config of the Secret of a cluster.
type argoCDConfig struct {
	TLSClientConfig argoCDTLS `json:"tlsClientConfig"`
}

type argoCDTLS struct {
	CAData   []byte `json:"caData"`
	CertData []byte `json:"certData"`
	KeyData  []byte `json:"keyData"`
}

// ArgoCDSecret returns the Secret that registers the workspace of a kubeconfig as a cluster of Argo CD.
func ArgoCDSecret(kubeconfig *operatorv1alpha1.Kubeconfig, root *operatorv1alpha1.RootShard, namespace string, user UserKubeconfig) (*corev1.Secret, error) {
	config, err := json.Marshal(argoCDConfig{argoCDTLS{CAData: user.CA, CertData: user.Cert, KeyData: user.Key}})
	if err != nil {
		return nil, fmt.Errorf("rendering the cluster of Argo CD: %w", err)
	}
	spec := kubeconfig.Spec.ArgoCD
	name := spec.ClusterName
	if name == "" {
		name = user.Workspace
	}
	data := map[string][]byte{"name": []byte(name), "server": []byte(user.Server + "/clusters/" + user.Workspace), "config": config}
	if spec.Project != "" {
		data["project"] = []byte(spec.Project)
	}
	labels := maps.Clone(spec.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, KubeconfigLabels(kubeconfig, root))
	maps.Copy(labels, map[string]string{argoCDSecretType: argoCDSecretTypeCluster, operatorv1alpha1.LabelKubeconfig: string(kubeconfig.UID)})
	return generatedSecret(ArgoCDSecretName(kubeconfig), namespace, labels, nil, data), nil
}

// ArgoCDClientCertificates returns the client certificates in the Secret of a cluster; none if it cannot be read.
func ArgoCDClientCertificates(secret *corev1.Secret) [][]byte {
	var config argoCDConfig
	if err := json.Unmarshal(secret.Data["config"], &config); err != nil || len(config.TLSClientConfig.CertData) == 0 {
		return nil
	}
	return [][]byte{config.TLSClientConfig.CertData}
}
