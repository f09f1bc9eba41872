package desired

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// rootShardName is the name of every root shard inside its installation, independent of the name of its RootShard.
const rootShardName = "root"

// Shard is the server of one shard: of a RootShard, or of a Shard that belongs to one. Both run the same server and
// differ in names and dependencies.
type Shard struct {
	component
	root  *operatorv1alpha1.RootShard
	shard *operatorv1alpha1.Shard // nil for the root shard
}

// NewRootShard returns the shard of a RootShard.
func NewRootShard(root *operatorv1alpha1.RootShard) Shard {
	return Shard{root: root, component: component{
		owner: root, kind: "RootShard", label: operatorv1alpha1.LabelRootShard, component: ComponentRootShard, suffix: "-kcp", root: root.Name,
	}}
}

// NewShard returns the shard of a Shard in the installation of root.
func NewShard(shard *operatorv1alpha1.Shard, root *operatorv1alpha1.RootShard) Shard {
	return Shard{root: root, shard: shard, component: component{
		owner: shard, kind: "Shard", label: operatorv1alpha1.LabelShard, component: ComponentShard, suffix: "-shard-kcp", root: rootName(root),
	}}
}

// IsRoot reports whether the shard is the root shard of its installation.
func (s Shard) IsRoot() bool { return s.shard == nil }

// Root is the RootShard of the installation.
func (s Shard) Root() *operatorv1alpha1.RootShard { return s.root }

// ShardName is the name of the shard inside the installation.
func (s Shard) ShardName() string {
	if s.IsRoot() {
		return rootShardName
	}
	return s.shard.Name
}

// Annotations are the annotations of the custom resource.
func (s Shard) Annotations() map[string]string { return s.owner.GetAnnotations() }

// EtcdStatus is the status of the etcd in the custom resource.
func (s Shard) EtcdStatus() *operatorv1alpha1.EtcdStatus {
	if s.IsRoot() {
		return s.root.Status.Etcd
	}
	return s.shard.Status.Etcd
}

// Spec is the common part of the specs of a RootShard and a Shard.
func (s Shard) Spec() operatorv1alpha1.CommonShardSpec {
	if s.IsRoot() {
		return s.root.Spec.CommonShardSpec
	}
	return s.shard.Spec.CommonShardSpec
}

// CacheRef is the name of the CacheServer that the shard uses, with the field that names it: the shard's own field, or else that of the
// installation. The name is empty if the root shard embeds the cache.
func (s Shard) CacheRef() (name, field string) {
	if !s.IsRoot() {
		if own := s.shard.Spec.Cache.Ref; own != nil && own.Name != "" {
			return own.Name, "cache.ref"
		}
	}
	ref := s.root.Spec.Cache.Ref
	switch {
	case ref == nil || ref.Name == "":
		return "", ""
	case s.IsRoot():
		return ref.Name, "cache.ref"
	default:
		return ref.Name, "cache.ref of RootShard " + s.root.Name
	}
}

// ClusterDomain is the DNS domain of the cluster the shard runs in.
func (s Shard) ClusterDomain() string { return orDefault(s.Spec().ClusterDomain, DefaultClusterDomain) }

// Host is the DNS name of the shard's Service.
func (s Shard) Host() string { return ServiceHost(s.Server(), s.Namespace(), s.ClusterDomain()) }

// BaseURL is the URL under which other components reach the shard.
func (s Shard) BaseURL() string {
	if base := s.Spec().ShardBaseURL; base != "" {
		return base
	}
	return s.ServiceURL()
}

// ServiceURL is the URL of the shard's Service, under which the operator reaches it. BaseURL may be an address that only
// the pods of the installation resolve.
func (s Shard) ServiceURL() string { return httpsURL(s.Host(), ServerPort) }

// ClientCABundleRefs name the Secrets of the user with further client CAs, in the order they are merged. The one of the RootShard applies
// to all shards.
func (s Shard) ClientCABundleRefs() []*corev1.LocalObjectReference {
	refs := []*corev1.LocalObjectReference{s.root.Spec.ClientCABundleRef}
	if !s.IsRoot() {
		refs = append(refs, s.shard.Spec.ClientCABundleRef)
	}
	return dropNil(refs...)
}

// CABundleRefs name the user's Secret with CAs of the external address, if the spec sets it.
func (s Shard) CABundleRefs() []*corev1.LocalObjectReference {
	return dropNil(s.Spec().CABundleSecretRef)
}

// clientCA is the Secret with the CAs whose client certificates the shard accepts.
func (s Shard) clientCA() string {
	return trustedCA(s.root, ClientCA, s.Name(), s.ClientCABundleRefs())
}

// dropNil returns the references that are set.
func dropNil(refs ...*corev1.LocalObjectReference) []*corev1.LocalObjectReference {
	return slices.DeleteFunc(refs, func(ref *corev1.LocalObjectReference) bool { return ref == nil })
}
