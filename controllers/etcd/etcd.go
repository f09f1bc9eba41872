// Package etcd renders the objects of an etcd that the operator runs for a shard or a cache server, and validates
// changes of its spec against a cluster that holds data. All functions are pure. Package pki renders the certificates.
package etcd

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
)

const (
	clientPort  = 2379
	peerPort    = 2380
	metricsPort = 2381
	// maxMembers is the maximum of a spec. Certificates name all members from the start.
	maxMembers = 3
)

// Cluster is the etcd of one shard or cache server.
type Cluster struct {
	owner   desired.Owner
	image   *operatorv1alpha1.ImageSpec
	prefix  string
	members int32
	storage operatorv1alpha1.EtcdStorage
	// retainVolumes retains the volumes when the StatefulSet is deleted; a finalizer of the owner deletes them.
	retainVolumes bool
	// labelClaims labels the volumes as those of a Shard.
	labelClaims bool
}

// IsManaged reports whether the operator runs the etcd of a shard. That of a cache server is managed only if its spec
// sets etcd.managed.
func IsManaged(spec *operatorv1alpha1.EtcdConfig) bool { return spec == nil || spec.Managed != nil }

// NewForShard returns the managed etcd of a shard.
func NewForShard(s desired.Shard) Cluster {
	spec := s.Spec()
	c := New(s.AsOwner(), spec.Etcd, spec.Image)
	// The deletion of a Shard, or of a RootShard that has served, waits for its workspaces. A foreground deletion, which some tools use,
	// deletes the StatefulSet in the meantime: with retained volumes the operator creates it again with all data.
	c.labelClaims = !s.IsRoot()
	c.retainVolumes = !s.IsRoot() || slices.Contains(s.Root().Finalizers, operatorv1alpha1.FinalizerRootShard)
	return c
}

// RootShardVolumeClaims selects the volume claims of the etcd of a RootShard, and not those of a Shard of that name.
func RootShardVolumeClaims(name string) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
		MatchLabels:      desired.AppLabels(desired.ComponentEtcd, name),
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: operatorv1alpha1.LabelShard, Operator: metav1.LabelSelectorOpDoesNotExist}},
	})
}

// New returns a managed etcd, with defaults. image is from the spec of the owner.
func New(owner desired.Owner, spec *operatorv1alpha1.EtcdConfig, image *operatorv1alpha1.ImageSpec) Cluster {
	c := Cluster{owner: owner, image: image, members: operatorv1alpha1.DefaultEtcdReplicas}
	if spec != nil {
		c.prefix = spec.Prefix
	}
	if spec != nil && spec.Managed != nil {
		managed := spec.Managed
		if managed.Replicas != nil {
			c.members = *managed.Replicas
		}
		if managed.Storage != nil {
			c.storage = *managed.Storage
		}
	}
	if c.storage.EmptyDir == nil && c.storage.Size == nil {
		size := resource.MustParse(operatorv1alpha1.DefaultEtcdStorageSize)
		c.storage.Size = &size
	}
	return c
}

// ShardVolumeClaimLabels are the labels of the volume claims of a Shard. They name the Shard, so that a finalizer deletes no other
// claims.
func ShardVolumeClaimLabels(name string) map[string]string {
	labels := desired.AppLabels(desired.ComponentEtcd, name)
	labels[operatorv1alpha1.LabelShard] = name
	return labels
}

// claimLabels are the labels of the volume claims. In an existing StatefulSet they are immutable.
func (c Cluster) claimLabels() map[string]string {
	if c.labelClaims {
		return ShardVolumeClaimLabels(c.owner.Name)
	}
	return c.labels()
}

// Owner is the custom resource that the etcd belongs to.
func (c Cluster) Owner() desired.Owner { return c.owner }

// Name is the name of the StatefulSet and of the Service that gives members their names.
func (c Cluster) Name() string { return StatefulSetName(c.owner) }

// StatefulSetName is the name of the StatefulSet of an owner's etcd.
func StatefulSetName(owner desired.Owner) string { return owner.Name + "-etcd" }

// Members is the number of members.
func (c Cluster) Members() int32 { return c.members }

// Quorum is the number of members that reads and writes need.
func (c Cluster) Quorum() int32 { return c.members/2 + 1 }

// LosesDataOnRestart reports whether a member loses its data when its pod is replaced, so that it cannot join again.
func (c Cluster) LosesDataOnRestart() bool { return c.members > 1 && c.storage.EmptyDir != nil }

// Connection is the connection of a server to its store, managed or not.
func Connection(owner desired.Owner, spec *operatorv1alpha1.EtcdConfig) desired.Etcd {
	if IsManaged(spec) {
		return New(owner, spec, nil).connection()
	}
	out := desired.Etcd{Servers: spec.Endpoints, Prefix: spec.Prefix}
	if spec.TLSConfig != nil {
		out.Credentials = spec.TLSConfig.SecretRef.Name
	}
	return out
}

// connection names each member, so that clients fail over when one fails.
func (c Cluster) connection() desired.Etcd {
	out := desired.Etcd{Credentials: c.certificates().Client, Prefix: c.prefix}
	for i := range c.members {
		out.Servers = append(out.Servers, fmt.Sprintf("https://%s:%d", c.memberHost(i), clientPort))
	}
	return out
}

// Certificates are the cert-manager objects of the etcd.
func (c Cluster) Certificates() pki.Objects { return pki.ManagedEtcd(c.owner, c.certificates()) }

func (c Cluster) certificates() pki.Etcd {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	for i := range int32(maxMembers) {
		hosts = append(hosts, c.memberHost(i))
	}
	for _, service := range []string{c.Name(), c.clientService()} {
		full := desired.ServiceHost(service, c.owner.Namespace, c.owner.Domain)
		hosts = append(hosts, full, strings.TrimSuffix(full, "."+c.owner.Domain))
	}
	return pki.Etcd{CA: c.Name() + "-ca", Server: c.Name() + "-server", Peer: c.Name() + "-peer", Client: c.Name() + "-client", Hosts: hosts}
}

// ClaimNames are the names of the volume claims, by ordinal; none on an emptyDir.
func (c Cluster) ClaimNames() []string {
	if c.storage.EmptyDir != nil {
		return nil
	}
	var out []string
	for i := range c.members {
		out = append(out, dataVolume+"-"+c.memberName(i))
	}
	return out
}

// ClaimSize is the size of each volume claim.
func (c Cluster) ClaimSize() resource.Quantity { return *c.storage.Size }

// Record is the name of the ConfigMap with the record of the bootstrap.
func (c Cluster) Record() string { return c.Name() + "-record" }

// ClientSecret is the name of the Secret with the certificate of a client.
func (c Cluster) ClientSecret() string { return c.certificates().Client }

func (c Cluster) clientService() string { return c.Name() + "-client" }

func (c Cluster) memberName(i int32) string { return fmt.Sprintf("%s-%d", c.Name(), i) }

func (c Cluster) memberHost(i int32) string {
	return c.memberName(i) + "." + desired.ServiceHost(c.Name(), c.owner.Namespace, c.owner.Domain)
}

// quotaBytes is the backend quota. It leaves a quarter of the volume to the log, snapshots and defragmentation; 8 GiB is the maximum that
// etcd recommends.
func (c Cluster) quotaBytes() int64 {
	const gib = int64(1) << 30
	switch {
	case c.storage.Size != nil:
		return min(8*gib, c.storage.Size.Value()/4*3)
	case c.storage.EmptyDir != nil && c.storage.EmptyDir.SizeLimit != nil:
		return min(8*gib, c.storage.EmptyDir.SizeLimit.Value()/4*3)
	default:
		return 2 * gib
	}
}
