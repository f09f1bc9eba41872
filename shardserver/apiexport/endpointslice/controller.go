// Package endpointslice holds the controller of APIExportEndpointSlices: it says whether export and partition of a slice
// are there, and lists the address of each shard while a logical cluster of that shard binds the export.
//
// No shard writes into another: every shard publishes which exports it has consumers of (ConsumersSource), and the shard
// of a slice lists the addresses of all, each under the field manager that a shard would have that wrote its own.
package endpointslice

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	exportbindings "github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var (
	slices     = apisv1alpha1.Resource("apiexportendpointslices")
	exports    = apisv1alpha2.Resource("apiexports")
	bindings   = apisv1alpha2.Resource("apibindings")
	partitions = topologyv1alpha1.Resource("partitions")
	shards     = corev1alpha1.Resource("shards")
	consumers  = shardingv1alpha1.Resource("exportconsumers")
)

// resyncPeriod is how often a slice is looked at if nothing happens. It mends what the end of a watch has hidden: that the
// last binding went.
const resyncPeriod = 10 * time.Minute

// Config is what the controller needs.
type Config struct {
	Registry *storage.Registry
	// Clients write through the shard's own API.
	Clients *loopback.Clients
	Exports *apiindex.Resolver
	// Consumers tells which bindings refer to an export, Slices which endpoint slices do.
	Consumers *apiindex.ReferenceIndex[*apisv1alpha2.APIBinding]
	Slices    *apiindex.ReferenceIndex[*apisv1alpha1.APIExportEndpointSlice]
	// ShardName is the name of this shard's Shard object in root.
	ShardName string
}

type sliceController struct {
	cfg        Config
	slices     *storage.Reader[*apisv1alpha1.APIExportEndpointSlice]
	partitions endpoints.Partitions
	shards     endpoints.AllShards
	shardNews  endpoints.ShardNews
	consumers  endpoints.Consumers
}

// Controllers returns the controllers of this package.
func Controllers(cfg Config) []controller.Controller {
	c := &sliceController{
		cfg:        cfg,
		slices:     storage.NewReader[*apisv1alpha1.APIExportEndpointSlice](cfg.Registry, slices),
		partitions: endpoints.NewPartitions(cfg.Registry),
		shards:     endpoints.NewAllShards(cfg.Registry),
		consumers:  endpoints.NewConsumers(cfg.Registry, cfg.ShardName),
	}
	return []controller.Controller{{
		Name: "apiexportendpointslice",
		Inputs: []controller.Input{
			{Resource: slices, Keys: c.sliceKeys},
			{Resource: exports, Keys: c.exportKeys, Everywhere: true},
			{Resource: bindings, Keys: c.bindingKeys},
			{Resource: partitions, Keys: c.partitionKeys},
			{Resource: shards, Keys: c.shardKeys, Everywhere: true},
			{Resource: consumers, Keys: c.consumerKeys, Everywhere: true},
		},
		Reconcile: c.reconcile,
	}}
}

func (c *sliceController) sliceKeys(event watch.Event) []controller.Key {
	if slice, ok := event.Object.(*apisv1alpha1.APIExportEndpointSlice); ok {
		// Whoever asks for the slices of an export from now on must get this one.
		c.cfg.Slices.Take(slice, event.Type == watch.Deleted)
	}
	return controller.ObjectKey(event)
}

// exportKeys returns the slices of an export that came or went. Its changes do not concern them.
func (c *sliceController) exportKeys(event watch.Event) []controller.Key {
	export, ok := event.Object.(*apisv1alpha2.APIExport)
	if !ok || event.Type == watch.Modified {
		return nil
	}
	return c.cfg.Slices.KeysFor(export)
}

// bindingKeys returns the slices of the export that a binding which came or went refers to.
func (c *sliceController) bindingKeys(event watch.Event) []controller.Key {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok || event.Type == watch.Modified {
		return nil
	}
	c.cfg.Consumers.Take(binding, event.Type == watch.Deleted)
	reference, err := apiindex.ReferenceOf(binding)
	if err != nil {
		return nil
	}
	// Slices may name the export otherwise than the binding does.
	export, err := c.cfg.Exports.Resolve(context.Background(), reference)
	if err != nil {
		return c.cfg.Slices.KeysForReferences(reference)
	}
	return c.cfg.Slices.KeysFor(export)
}

func (c *sliceController) partitionKeys(event watch.Event) []controller.Key {
	partition, ok := event.Object.(*topologyv1alpha1.Partition)
	if !ok {
		return nil
	}
	return c.keysIn(logicalcluster.Of(partition), func(slice *apisv1alpha1.APIExportEndpointSlice) bool {
		return slice.Spec.Partition == partition.Name
	})
}

// shardKeys returns all slices when a shard comes, goes, or has another address or other labels.
func (c *sliceController) shardKeys(event watch.Event) []controller.Key {
	if _, news := c.shardNews.Of(event); !news {
		return nil
	}
	return c.keysIn(logicalcluster.Wildcard, func(*apisv1alpha1.APIExportEndpointSlice) bool { return true })
}

// consumerKeys returns the slices of the export of which another shard says that it has consumers, or none any more.
func (c *sliceController) consumerKeys(event watch.Event) []controller.Key {
	said, ok := event.Object.(*shardingv1alpha1.ExportConsumers)
	if !ok {
		return nil
	}
	of := exportbindings.ExportKey{Cluster: logicalcluster.Of(said), Name: said.Name}
	export, err := c.cfg.Exports.Get(context.Background(), of)
	if err != nil {
		return c.cfg.Slices.KeysForReferences(apiindex.Reference{Path: of.Cluster.Path(), Name: of.Name})
	}
	return c.cfg.Slices.KeysFor(export)
}

func (c *sliceController) keysIn(cluster logicalcluster.Name, matches func(*apisv1alpha1.APIExportEndpointSlice) bool) []controller.Key {
	all, err := c.slices.List(logicalcluster.With(context.Background(), cluster), "", nil)
	if err != nil {
		return nil // not installed yet: its own events will come
	}
	var keys []controller.Key
	for _, slice := range all {
		if matches(slice) {
			keys = append(keys, controller.Key{Cluster: logicalcluster.Of(slice), Name: slice.Name})
		}
	}
	return keys
}

// reconcile is a ladder: observe, say what is wrong, add or remove the addresses of shards.
func (c *sliceController) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	stored, err := c.slices.Get(ctx, "", key.Name)
	if apierrors.IsNotFound(err) || (err == nil && stored.DeletionTimestamp != nil) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	observed, err := c.observe(ctx, stored)
	if err != nil {
		return controller.Result{}, err
	}
	slice := stored.DeepCopy()
	setConditions(slice, observed)
	if !equality.Semantic.DeepEqual(stored.Status, slice.Status) {
		if err := c.cfg.Clients.Typed.Status().Update(ctx, slice); client.IgnoreNotFound(err) != nil {
			return controller.Result{}, fmt.Errorf("writing the status of APIExportEndpointSlice %q: %w", slice.Name, err)
		}
	}
	if err := c.applyEndpoints(ctx, slice, observed); err != nil {
		return controller.Result{}, err
	}
	return controller.Result{RequeueAfter: resyncPeriod}, nil
}

// observed is what the status of a slice follows from.
type observed struct {
	reference apiindex.Reference
	// invalidReference says why the reference cannot be followed.
	invalidReference error
	export           *apisv1alpha2.APIExport
	// selector is that of the partition, nil if that is missing or cannot be understood, which fault says.
	selector         labels.Selector
	partitionProblem string
	shards           []*corev1alpha1.Shard
	// hasConsumers tells whether a shard has consumers, and whether that is known.
	hasConsumers func(shard string) (consumed, known bool)
}

func (c *sliceController) observe(ctx context.Context, slice *apisv1alpha1.APIExportEndpointSlice) (observed, error) {
	o := observed{}
	if o.reference, o.invalidReference = apiindex.ReferenceOfSlice(slice); o.invalidReference == nil {
		export, err := c.cfg.Exports.Resolve(ctx, o.reference)
		if client.IgnoreNotFound(err) != nil {
			return o, err
		}
		if err == nil {
			o.export = export
		}
	}
	var err error
	if o.selector, o.partitionProblem, err = c.partitions.Selector(ctx, slice.Spec.Partition); err != nil {
		return o, err
	}
	if o.shards, err = c.shards.List(ctx); err != nil {
		return o, err
	}
	if o.export == nil {
		return o, nil
	}
	if err := c.cfg.Consumers.WaitForSync(ctx); err != nil {
		return o, err
	}
	o.hasConsumers, err = c.consumers.Of(ctx, apiindex.ExportKeyOf(o.export), c.cfg.Consumers.HasReferences(o.export))
	return o, err
}

// setConditions brings the conditions and the selector of a slice in line with what was observed.
func setConditions(slice *apisv1alpha1.APIExportEndpointSlice, o observed) {
	switch {
	case o.invalidReference != nil:
		markExportInvalid(slice, apisv1alpha1.InternalErrorReason, fmt.Sprintf("spec.export cannot be used: %v; create a slice with another one", o.invalidReference))
	case o.export == nil:
		markExportInvalid(slice, apisv1alpha1.APIExportNotFoundReason, fmt.Sprintf("APIExport %q was not found; create it, or delete the slice", o.reference))
	default:
		conditionsv1alpha1.MarkTrue(slice, apisv1alpha1.APIExportValid)
	}
	if o.selector == nil {
		conditionsv1alpha1.MarkFalse(slice, apisv1alpha1.PartitionValid, apisv1alpha1.PartitionInvalidReferenceReason, conditionsv1alpha1.SeverityError, "%s", o.partitionProblem)
		return
	}
	conditionsv1alpha1.MarkTrue(slice, apisv1alpha1.PartitionValid)
	slice.Status.ShardSelector = o.selector.String()
}

func markExportInvalid(slice *apisv1alpha1.APIExportEndpointSlice, reason, message string) {
	conditionsv1alpha1.MarkFalse(slice, apisv1alpha1.APIExportValid, reason, conditionsv1alpha1.SeverityError, "%s", message)
	slice.Status.APIExportEndpoints = nil
}
