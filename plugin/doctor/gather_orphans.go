package doctor

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// maxRechecks bounds how much of what seems to be an orphan is read again. After a restore, it can be the content of a shard.
const maxRechecks = 1000

// orphanReader reads again what seems to be an orphan, at the shards: while lists were read, Workspaces were created, deleted and moved.
type orphanReader struct {
	*gatherer
	shards map[string]Shard
	homes  map[string]string // the shards of logical clusters
}

func (g *gatherer) recheckOrphans(ctx context.Context) {
	r := &orphanReader{gatherer: g, shards: map[string]Shard{}, homes: make(map[string]string, len(g.facts.LogicalClusters))}
	for _, shard := range g.facts.Shards {
		r.shards[shard.Name] = shard
	}
	for _, cluster := range g.facts.LogicalClusters {
		r.homes[cluster.Cluster] = cluster.Shard
	}
	clusters, workspaces := orphanCandidates(g.facts, Limits{Grace: g.grace})
	clusters = clusters[:min(len(clusters), maxRechecks)]
	workspaces = workspaces[:min(len(workspaces), maxRechecks)]
	g.limited(len(clusters), func(i int) {
		cluster := &g.facts.LogicalClusters[clusters[i]] // no other goroutine has it
		cluster.Recheck = r.cluster(ctx, *cluster)
	})
	g.limited(len(workspaces), func(i int) {
		workspace := &g.facts.Workspaces[workspaces[i]]
		workspace.Recheck = r.workspace(ctx, *workspace)
	})
}

// cluster looks for a logical cluster and its Workspace.
func (r *orphanReader) cluster(ctx context.Context, cluster LogicalCluster) Recheck {
	object, err := r.get(ctx, cluster.Shard, cluster.Cluster, connection.LogicalClusters, corev1alpha1.LogicalClusterName)
	switch {
	case err != nil:
		return ""
	case object == nil:
		return RecheckChanged
	}
	if now, err := logicalClusterOf(cluster.Shard, object); err != nil || now.Deleting != nil || now.IsMoving {
		return RecheckChanged
	}
	home, known := r.homes[cluster.OwnerCluster]
	if !known { // no shard has the workspace of the Workspace
		return RecheckConfirmed
	}
	owner, err := r.get(ctx, home, cluster.OwnerCluster, connection.Workspaces, cluster.OwnerName)
	switch {
	case err != nil:
		return ""
	case owner != nil && string(owner.GetUID()) == cluster.OwnerUID:
		return RecheckChanged
	}
	return RecheckConfirmed
}

// workspace looks for a Workspace, and at all shards for its logical cluster.
func (r *orphanReader) workspace(ctx context.Context, workspace Workspace) Recheck {
	object, err := r.get(ctx, r.homes[workspace.Cluster], workspace.Cluster, connection.Workspaces, workspace.Name)
	switch {
	case err != nil:
		return ""
	case object == nil || string(object.GetUID()) != workspace.UID:
		return RecheckChanged
	}
	if now, err := workspaceOf(object); err != nil || now.Deleting != nil || now.LogicalCluster != workspace.LogicalCluster {
		return RecheckChanged
	}
	for name := range r.shards {
		cluster, err := r.get(ctx, name, workspace.LogicalCluster, connection.LogicalClusters, corev1alpha1.LogicalClusterName)
		switch {
		case err != nil:
			return ""
		case cluster != nil:
			return RecheckChanged
		}
	}
	return RecheckConfirmed
}

// get reads an object at a shard. It returns nil if the object does not exist, or the shard does not have the logical cluster, which it
// refuses as forbidden.
func (r *orphanReader) get(ctx context.Context, shard, cluster string, resource schema.GroupVersionResource, name string) (*unstructured.Unstructured, error) {
	parsed, err := logicalcluster.ParseName(cluster)
	if err != nil {
		return nil, err
	}
	client, err := r.shardClient(r.shards[shard], parsed.Path())
	if err != nil {
		return nil, err
	}
	object, err := client.Resource(resource).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	return object, err
}
