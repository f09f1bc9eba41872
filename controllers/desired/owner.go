package desired

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Owner is the custom resource that owns the objects of an etcd.
type Owner struct {
	Name, Namespace string
	Domain          string                  // of the DNS of the cluster it runs in
	References      []metav1.OwnerReference // to the custom resource
	SecretLabels    map[string]string       // of its Secrets
}

// AsOwner is the shard as the owner of its etcd.
func (s Shard) AsOwner() Owner {
	return Owner{Name: s.Name(), Namespace: s.Namespace(), Domain: s.ClusterDomain(), References: s.OwnerReferences(), SecretLabels: s.FileLabels()}
}

// AsOwner is the cache server as the owner of its etcd.
func (c CacheServer) AsOwner() Owner {
	return Owner{Name: c.object.Name, Namespace: c.object.Namespace, Domain: c.ClusterDomain(), References: c.OwnerReferences(), SecretLabels: c.FileLabels()}
}
