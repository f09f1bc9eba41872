// Package topology divides the shards of an installation: its controller keeps the Partitions of every PartitionSet up
// to date with the labels of the shards. Endpoint slices use partitions; package endpoints resolves them.
package topology

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var (
	shards        = corev1alpha1.Resource("shards")
	partitions    = topologyv1alpha1.Resource("partitions")
	partitionSets = topologyv1alpha1.Resource("partitionsets")
)

// Config configures the controller.
type Config struct {
	Registry *storage.Registry
	// Clients are loopback clients.
	Clients *loopback.Clients
}

// partitionSetController creates the desired partitions of sets and removes the others.
type partitionSetController struct {
	clients      *loopback.Clients
	sets         *storage.Reader[*topologyv1alpha1.PartitionSet]
	partitions   *storage.Reader[*topologyv1alpha1.Partition]
	shards       endpoints.ShardLister
	shardChanges endpoints.ShardChanges
}

// Controller returns the controller of this package.
func Controller(cfg Config) controller.Controller {
	c := &partitionSetController{
		clients:    cfg.Clients,
		sets:       storage.NewReader[*topologyv1alpha1.PartitionSet](cfg.Registry, partitionSets),
		partitions: storage.NewReader[*topologyv1alpha1.Partition](cfg.Registry, partitions),
		shards:     endpoints.NewShardLister(cfg.Registry),
	}
	return controller.Controller{
		Name: "partitionset",
		Sources: []controller.Source{
			{Resource: partitionSets, MapFunc: controller.RequestForObject},
			{Resource: partitions, MapFunc: ownerKey},
			{Resource: shards, MapFunc: c.allKeys, Global: true},
		},
		MaxConcurrentReconciles: 2,
		Reconcile:               c.reconcile,
	}
}

// ownerKey returns the set that owns a partition.
func ownerKey(event watch.Event) []controller.Request {
	partition, ok := event.Object.(*topologyv1alpha1.Partition)
	if !ok {
		return nil
	}
	owner := metav1.GetControllerOf(partition)
	if owner == nil || owner.Kind != "PartitionSet" {
		return nil
	}
	return []controller.Request{{ClusterName: logicalcluster.Of(partition), Name: owner.Name}}
}

// allKeys returns the sets of all logical clusters: each may select the shard that changed. Labels change rarely.
func (c *partitionSetController) allKeys(event watch.Event) []controller.Request {
	if _, changed := c.shardChanges.Observe(event); !changed {
		return nil
	}
	return controller.RequestsForObjects(c.sets, logicalcluster.Wildcard, nil)
}

func (c *partitionSetController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	stored, err := c.sets.Get(ctx, "", key.Name)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	if stored.DeletionTimestamp != nil {
		return controller.Result{}, nil // garbage collection deletes its partitions
	}
	set := stored.DeepCopy()
	failed := c.reconcilePartitions(ctx, set)
	if equality.Semantic.DeepEqual(stored.Status, set.Status) {
		return controller.Result{}, failed
	}
	if err := c.clients.Typed.Status().Update(ctx, set); client.IgnoreNotFound(err) != nil {
		return controller.Result{}, fmt.Errorf("updating the status of partition set %q: %w", key.Name, err)
	}
	return controller.Result{}, failed
}

// reconcilePartitions creates and deletes the partitions of a set, and updates its status.
func (c *partitionSetController) reconcilePartitions(ctx context.Context, set *topologyv1alpha1.PartitionSet) error {
	all, err := c.shards.List(ctx)
	if err != nil {
		return fmt.Errorf("listing shards: %w", err)
	}
	desired, err := desiredPartitions(set, all)
	if err != nil {
		conditionsv1alpha1.MarkFalse(set, topologyv1alpha1.PartitionSetValid, topologyv1alpha1.ReasonInvalidSelector, conditionsv1alpha1.SeverityError, "spec.shardSelector: %v", err)
		return nil
	}
	conditionsv1alpha1.MarkTrue(set, topologyv1alpha1.PartitionSetValid)
	set.Status.Count = uint16(min(len(desired), 1<<16-1))
	if err := c.syncPartitions(ctx, set, desired); err != nil {
		conditionsv1alpha1.MarkFalse(set, topologyv1alpha1.PartitionsReady, topologyv1alpha1.ReasonErrorGeneratingPartitions, conditionsv1alpha1.SeverityError, "%v", err)
		return err
	}
	conditionsv1alpha1.MarkTrue(set, topologyv1alpha1.PartitionsReady)
	return nil
}

// syncPartitions deletes and creates partitions. It decides by a consistent list, because their names are generated: a
// cache that does not have the partitions of the last reconcile yet would yield duplicates.
func (c *partitionSetController) syncPartitions(ctx context.Context, set *topologyv1alpha1.PartitionSet, desired []*topologyv1alpha1.Partition) error {
	owned, err := c.partitions.List(ctx, "", nil)
	if err == nil && !diff(desired, controlledBy(set, owned)).isEmpty() {
		owned, err = c.partitions.ListLatest(ctx, "", nil)
	}
	if err != nil {
		return fmt.Errorf("listing partitions: %w", err)
	}
	pending := diff(desired, controlledBy(set, owned))
	for _, partition := range pending.remove {
		if err := c.clients.Typed.Delete(ctx, partition, client.Preconditions{UID: &partition.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting partition %q: %w", partition.Name, err)
		}
	}
	for _, partition := range pending.create {
		if err := c.clients.Typed.Create(ctx, partition); err != nil {
			return fmt.Errorf("creating partition %q: %w", partition.GenerateName, err)
		}
	}
	return nil
}

// controlledBy returns the partitions of a set, without those that are being deleted.
func controlledBy(set *topologyv1alpha1.PartitionSet, all []*topologyv1alpha1.Partition) []*topologyv1alpha1.Partition {
	var owned []*topologyv1alpha1.Partition
	for _, partition := range all {
		if metav1.IsControlledBy(partition, set) && partition.DeletionTimestamp == nil {
			owned = append(owned, partition)
		}
	}
	return owned
}
