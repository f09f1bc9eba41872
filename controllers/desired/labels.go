package desired

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Values of the label app.kubernetes.io/component.
const (
	ComponentRootShard        = "rootshard"
	ComponentRootShardProxy   = "rootshard-proxy"
	ComponentShard            = "shard"
	ComponentFrontProxy       = "front-proxy"
	ComponentCacheServer      = "cache-server"
	ComponentVirtualWorkspace = "virtual-workspace"
	ComponentEtcd             = "etcd"
	ComponentKubeconfig       = "kubeconfig"
	ComponentBackup           = "backup"
)

// AppLabels are the labels by which Services and Deployments select pods. Selectors are immutable, so the values are those of existing
// installations, including managed-by.
func AppLabels(component, instance string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/managed-by": "kcp-operator",
		"app.kubernetes.io/name":       "kcp",
		"app.kubernetes.io/instance":   instance,
		"app.kubernetes.io/component":  component,
	}
}

// KubeconfigLabels are the labels of the Secrets of a Kubeconfig in the installation of root.
func KubeconfigLabels(kubeconfig *operatorv1alpha1.Kubeconfig, root *operatorv1alpha1.RootShard) map[string]string {
	return mergeMaps(AppLabels(ComponentKubeconfig, kubeconfig.Name),
		map[string]string{operatorv1alpha1.LabelRootShard: root.Name, operatorv1alpha1.LabelKubeconfig: kubeconfig.Name})
}

// NewOwnerReferences is the owner reference to a custom resource, so that its objects are deleted with it.
func NewOwnerReferences(kind string, owner metav1.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: operatorv1alpha1.SchemeGroupVersion.String(),
		Kind:       kind,
		Name:       owner.GetName(),
		UID:        owner.GetUID(),
		Controller: ptr.To(true),
		// A deletion of the owner in the foreground waits for this object.
		BlockOwnerDeletion: ptr.To(true),
	}}
}

// mergeMaps merges maps; the last value of a key wins. It is nil if all are empty.
func mergeMaps(parts ...map[string]string) map[string]string {
	var out map[string]string
	for _, part := range parts {
		if len(part) == 0 {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		maps.Copy(out, part)
	}
	return out
}

// withTemplateMetadata adds the annotations and labels of a template to metadata. Keys that are set keep their value.
func withTemplateMetadata(meta metav1.ObjectMeta, template *operatorv1alpha1.TemplateMetadata) metav1.ObjectMeta {
	if template != nil {
		meta.Annotations = mergeMaps(template.Annotations, meta.Annotations)
		meta.Labels = mergeMaps(template.Labels, meta.Labels)
	}
	return meta
}
