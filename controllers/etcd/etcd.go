// Package etcd computes the objects of an etcd that the operator runs for a shard or a cache server, and decides whether a
// change of its spec can be made to a cluster that holds data. All of it is pure. Certificates are described here and made
// by package pki; nothing here knows what is stored.
package etcd

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
)

const (
	clientPort  = 2379
	peerPort    = 2380
	metricsPort = 2381
	// maxMembers is the most that a spec can ask for. Certificates name all of them from the start.
	maxMembers = 3
)

// Cluster is the etcd of one shard or cache server.
type Cluster struct {
	owner   desired.Owner
	image   *operatorv1alpha1.ImageSpec
	prefix  string
	members int32
	storage operatorv1alpha1.EtcdStorage
	// retainVolumes says that the volumes stay when the StatefulSet is deleted.
	retainVolumes bool
}

// IsManaged says whether the operator runs the etcd of a shard. That of a cache server is run only where its spec has one.
func IsManaged(spec *operatorv1alpha1.EtcdConfig) bool { return spec == nil || spec.Managed != nil }

// NewForShard is the etcd of a shard whose etcd is managed.
func NewForShard(s desired.Shard) Cluster {
	spec := s.Spec()
	c := New(s.AsOwner(), spec.Etcd, spec.Image)
	// A Shard may be told to go while workspaces are on it, and then it waits. Whoever deletes in the foreground, as some
	// tools do, has its StatefulSet deleted meanwhile: with the volumes kept, it is made anew with all data. The
	// reconciler of the Shard deletes them in the end.
	c.retainVolumes = !s.IsRoot()
	return c
}

// New is an etcd that is managed, with defaults filled in. image is that of the owner's spec.
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

// ShardVolumeClaimLabels are the labels of the volume claims of a Shard. They name the Shard, so that nobody else's are deleted with it.
func ShardVolumeClaimLabels(name string) map[string]string {
	labels := desired.AppLabels(desired.ComponentEtcd, name)
	labels[operatorv1alpha1.LabelShard] = name
	return labels
}

// claimLabels are those of the volume claims. Where there was no label from the start there can be none: a StatefulSet does
// not let them be changed.
func (c Cluster) claimLabels() map[string]string {
	if c.retainVolumes {
		return ShardVolumeClaimLabels(c.owner.Name)
	}
	return c.labels()
}

// Owner is the custom resource that the etcd is for.
func (c Cluster) Owner() desired.Owner { return c.owner }

// Name is the name of the StatefulSet and of the Service that gives members their names.
func (c Cluster) Name() string { return StatefulSetName(c.owner) }

// StatefulSetName is the name of the StatefulSet of an owner's etcd.
func StatefulSetName(owner desired.Owner) string { return owner.Name + "-etcd" }

// Members is the number of members.
func (c Cluster) Members() int32 { return c.members }

// Quorum is the number of members without which nothing can be read or written.
func (c Cluster) Quorum() int32 { return c.members/2 + 1 }

// LosesRestartedMembers says whether a member whose pod is replaced comes back empty to the others, who then refuse it.
func (c Cluster) LosesRestartedMembers() bool { return c.members > 1 && c.storage.EmptyDir != nil }

// Connection is how a server reaches its store, whoever runs that.
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

// connection reaches each member by its own name, so that a client moves to another one by itself when a member goes.
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

func (c Cluster) clientService() string { return c.Name() + "-client" }

func (c Cluster) memberName(i int32) string { return fmt.Sprintf("%s-%d", c.Name(), i) }

func (c Cluster) memberHost(i int32) string {
	return c.memberName(i) + "." + desired.ServiceHost(c.Name(), c.owner.Namespace, c.owner.Domain)
}

// quotaBytes is the size at which etcd refuses writes. It leaves a quarter of the volume to the log, snapshots and
// defragmentation; above 8 GiB etcd is not meant to be run.
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
