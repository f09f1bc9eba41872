// Package shardcompare compares the Workspaces of an installation with its logical clusters after one of its shards was restored from a backup: the
// restored shard has an older state than the others.
package shardcompare

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/moves"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Shard is a shard with a client of all its logical clusters at once.
type Shard struct {
	Name   string
	Client dynamic.Interface
}

// Result is what differs. Each entry names a workspace and its logical cluster.
type Result struct {
	// Gaps are Workspaces whose logical cluster no shard has.
	Gaps []string
	// Orphans are logical clusters, on the restored shard or of a Workspace that was there, whose Workspace no shard has.
	Orphans []string
	// Doubles are logical clusters of the restored shard that another shard has, too: they have moved since the backup.
	Doubles []string
}

// IsEmpty reports whether nothing differs.
func (r Result) IsEmpty() bool { return len(r.Gaps)+len(r.Orphans)+len(r.Doubles) == 0 }

// Compare reads all logical clusters and Workspaces of the shards, and compares them. identity is that of the export of Workspaces. What was created
// after before is left out: it is no consequence of the restore, and may be half done. For the time of the call, its memory grows with the number of
// logical clusters, of which it keeps the names.
func Compare(ctx context.Context, shards []Shard, identity, restored string, before time.Time) (Result, error) {
	c := newComparison(restored, before)
	// The restored shard first: what of the others concerns it depends on what it has.
	shards = slices.Clone(shards)
	slices.SortStableFunc(shards, func(a, b Shard) int { return rank(a, restored) - rank(b, restored) })
	for _, shard := range shards {
		err := forEach(ctx, shard.Client.Resource(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")), func(cluster *corev1alpha1.LogicalCluster) {
			c.addLogicalCluster(shard.Name, cluster)
		})
		if err != nil {
			return Result{}, fmt.Errorf("listing the logical clusters of shard %s: %w", shard.Name, err)
		}
	}
	// Afterwards: a Workspace exists before its logical cluster, and longer.
	workspaces := tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
	workspaces.Resource += ":" + identity // a list of all logical clusters requires the identity
	for _, shard := range shards {
		if err := forEach(ctx, shard.Client.Resource(workspaces), c.addWorkspace); err != nil {
			return Result{}, fmt.Errorf("listing the Workspaces of shard %s: %w", shard.Name, err)
		}
	}
	return c.result(), nil
}

func rank(shard Shard, restored string) int {
	if shard.Name == restored {
		return 0
	}
	return 1
}

func forEach[T any](ctx context.Context, resource dynamic.ResourceInterface, do func(*T)) error {
	return moves.ForEach(ctx, resource, metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		decoded := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, decoded); err != nil {
			return err
		}
		do(decoded)
		return nil
	})
}

// comparison collects what differs.
type comparison struct {
	restored string
	before   time.Time
	// existing are the logical clusters of all shards, and whether the restored one has them.
	existing map[string]bool
	// owned are the logical clusters that concern the restored shard, by the UIDs of their Workspaces.
	owned   map[types.UID]string
	gaps    map[types.UID]string
	doubles map[string]string
}

func newComparison(restored string, before time.Time) *comparison {
	return &comparison{restored: restored, before: before, existing: map[string]bool{}, owned: map[types.UID]string{}, gaps: map[types.UID]string{}, doubles: map[string]string{}}
}

// addLogicalCluster adds a logical cluster of a shard; those of the restored one come first.
func (c *comparison) addLogicalCluster(shard string, cluster *corev1alpha1.LogicalCluster) {
	name, owner := logicalcluster.Of(cluster).String(), cluster.Spec.Owner
	onRestored := c.existing[name] || shard == c.restored
	if owner == nil || owner.Resource != "workspaces" { // every shard has its own of these
		c.existing[name] = onRestored
		return
	}
	if isMoving(cluster) || cluster.DeletionTimestamp != nil {
		c.existing[name] = onRestored
		return
	}
	if shard != c.restored && c.existing[name] {
		c.doubles[name] = fmt.Sprintf("%s/%s (%s, on shard %s, too)", owner.Cluster, owner.Name, name, shard)
	}
	c.existing[name] = onRestored
	if (shard == c.restored || c.existing[owner.Cluster]) && cluster.CreationTimestamp.Time.Before(c.before) {
		c.owned[owner.UID] = fmt.Sprintf("%s on shard %s (%s/%s)", name, shard, owner.Cluster, owner.Name)
	}
}

// addWorkspace adds a Workspace of any shard, after all logical clusters.
func (c *comparison) addWorkspace(workspace *tenancyv1alpha1.Workspace) {
	delete(c.owned, workspace.UID)
	_, exists := c.existing[workspace.Spec.Cluster]
	isPlaced := workspace.Spec.Cluster != "" && workspace.Spec.Mount == nil && workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseScheduling
	if isPlaced && !exists && workspace.DeletionTimestamp == nil && workspace.CreationTimestamp.Time.Before(c.before) {
		c.gaps[workspace.UID] = fmt.Sprintf("%s/%s (%s)", logicalcluster.Of(workspace), workspace.Name, workspace.Spec.Cluster)
	}
}

func (c *comparison) result() Result {
	return Result{Gaps: sorted(c.gaps), Orphans: sorted(c.owned), Doubles: sorted(c.doubles)}
}

func sorted[K comparable](entries map[K]string) []string {
	out := make([]string, 0, len(entries))
	for _, entry := range entries {
		out = append(out, entry)
	}
	slices.Sort(out)
	return out
}

// isMoving reports whether a logical cluster is at two places because it moves.
func isMoving(cluster *corev1alpha1.LogicalCluster) bool {
	for _, moving := range []string{corev1alpha1.MigratingAnnotationKey, corev1alpha1.MovedToAnnotationKey, corev1alpha1.ArrivingAnnotationKey} {
		if cluster.Annotations[moving] != "" {
			return true
		}
	}
	return false
}
