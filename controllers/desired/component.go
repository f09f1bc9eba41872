package desired

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// component is one server of an installation. The names, labels and owner of its objects derive from the custom
// resource that it belongs to.
type component struct {
	owner     metav1.Object // the custom resource
	kind      string        // of the owner
	label     string        // with the name of the owner, on Secrets
	component string        // value of the label app.kubernetes.io/component
	suffix    string        // of the name of the Deployment and the Service
	root      string        // name of the RootShard of its installation; "" for a cache server, which several installations may use
}

// rootName is the name of a RootShard, or "" while it is unknown.
func rootName(root *operatorv1alpha1.RootShard) string {
	if root == nil {
		return ""
	}
	return root.Name
}

// Name is the name of the custom resource, the prefix of the names of its objects.
func (c component) Name() string { return c.owner.GetName() }

// Namespace is the namespace of the custom resource and of its objects.
func (c component) Namespace() string { return c.owner.GetNamespace() }

// Server is the name of the Deployment and the Service.
func (c component) Server() string { return c.Name() + c.suffix }

// Certificate is the name of one of the server's certificates, and of its Secret.
func (c component) Certificate(key string) string { return c.Name() + "-" + key }

// Labels are the app labels of the server.
func (c component) Labels() map[string]string { return AppLabels(c.component, c.Name()) }

// FileLabels are the labels of the server's Secrets, those of certificates included, and of its ConfigMaps.
func (c component) FileLabels() map[string]string {
	labels := c.Labels()
	if c.root != "" {
		labels[operatorv1alpha1.LabelRootShard] = c.root
	}
	labels[c.label] = c.Name()
	return labels
}

// OwnerReferences is the owner reference of the objects of the server.
func (c component) OwnerReferences() []metav1.OwnerReference {
	return NewOwnerReferences(c.kind, c.owner)
}

// EtcdOwner is the name under which the server owns its keys in etcd. It is the same after the custom resource is created
// again, and different in every Kubernetes cluster. It is empty while the cluster is unknown.
func (c component) EtcdOwner(clusterID string) string {
	if clusterID == "" {
		return ""
	}
	return strings.ToLower(c.kind) + "/" + c.Namespace() + "/" + c.Name() + "@" + clusterID
}

// fileMeta is the metadata of a ConfigMap.
func (c component) fileMeta(name string) metav1.ObjectMeta {
	meta := c.meta(name)
	meta.Labels = c.FileLabels()
	return meta
}

func (c component) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: c.Namespace(), Labels: c.Labels(), OwnerReferences: c.OwnerReferences()}
}
