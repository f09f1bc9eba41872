// Package etcd computes the objects of an etcd that the operator runs for a root shard, and decides whether a change of
// its spec can be made to a cluster that holds data. All of it is pure. Certificates are described here and made by
// package pki; nothing here knows what is stored.
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

// Cluster is the etcd of one root shard.
type Cluster struct {
	root    *operatorv1alpha1.RootShard
	members int32
	storage operatorv1alpha1.EtcdStorage
}

// IsManaged says whether the operator runs the root shard's etcd.
func IsManaged(root *operatorv1alpha1.RootShard) bool {
	return root.Spec.Etcd == nil || root.Spec.Etcd.Managed != nil
}

// For is the etcd of a root shard whose etcd is managed, with defaults filled in.
func For(root *operatorv1alpha1.RootShard) Cluster {
	c := Cluster{root: root, members: operatorv1alpha1.DefaultEtcdReplicas}
	if root.Spec.Etcd != nil && root.Spec.Etcd.Managed != nil {
		managed := root.Spec.Etcd.Managed
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

// Name is the name of the StatefulSet and of the Service that gives members their names.
func (c Cluster) Name() string { return c.root.Name + "-etcd" }

// Members is the number of members.
func (c Cluster) Members() int32 { return c.members }

// Quorum is the number of members without which nothing can be read or written.
func (c Cluster) Quorum() int32 { return c.members/2 + 1 }

// LosesMembers says whether a member whose pod is replaced comes back empty to the others, who then refuse it.
func (c Cluster) LosesMembers() bool { return c.members > 1 && c.storage.EmptyDir != nil }

// ConnectionOf is how the server of a root shard reaches its store, whoever runs that.
func ConnectionOf(root *operatorv1alpha1.RootShard) desired.Etcd {
	if IsManaged(root) {
		return For(root).connection()
	}
	spec := root.Spec.Etcd
	out := desired.Etcd{Servers: spec.Endpoints, Prefix: spec.Prefix}
	if spec.TLSConfig != nil {
		out.Credentials = spec.TLSConfig.SecretRef.Name
	}
	return out
}

// connection reaches each member by its own name, so that a client moves to
// another one by itself when a member goes.
func (c Cluster) connection() desired.Etcd {
	out := desired.Etcd{Credentials: c.certificates().Client}
	for i := range c.members {
		out.Servers = append(out.Servers, fmt.Sprintf("https://%s:%d", c.memberHost(i), clientPort))
	}
	if c.root.Spec.Etcd != nil {
		out.Prefix = c.root.Spec.Etcd.Prefix
	}
	return out
}

// Certificates are the cert-manager objects of the etcd.
func (c Cluster) Certificates() pki.Objects { return pki.ManagedEtcd(c.root, c.certificates()) }

func (c Cluster) certificates() pki.Etcd {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	for i := range int32(maxMembers) {
		hosts = append(hosts, c.memberHost(i))
	}
	for _, service := range []string{c.Name(), c.clientService()} {
		full := desired.ServiceHost(service, c.root.Namespace, desired.ClusterDomain(c.root))
		hosts = append(hosts, full, strings.TrimSuffix(full, "."+desired.ClusterDomain(c.root)))
	}
	return pki.Etcd{CA: c.Name() + "-ca", Server: c.Name() + "-server", Peer: c.Name() + "-peer", Client: c.Name() + "-client", Hosts: hosts}
}

func (c Cluster) clientService() string { return c.Name() + "-client" }

func (c Cluster) memberName(i int32) string { return fmt.Sprintf("%s-%d", c.Name(), i) }

func (c Cluster) memberHost(i int32) string {
	return c.memberName(i) + "." + desired.ServiceHost(c.Name(), c.root.Namespace, desired.ClusterDomain(c.root))
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
