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

// ArgoCDSecretName is the name of the Secret that registers a Kubeconfig in Argo CD. Namespaces have no dots, so that two Kubeconfigs
// have two names.
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

// ArgoCDSecret is the Secret by which Argo CD knows the workspace of a kubeconfig as a cluster.
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
