// Package endpointslice holds the controller of APIExportEndpointSlices. It sets the conditions of a slice for its export
// and partition, and lists the virtual workspace URL of each shard with a logical cluster that binds the export.
//
// Shards must not write to each other: every shard publishes the exports that it has consumers of (ConsumersSource), and
// the shard of a slice applies the endpoints of all shards, each with the field manager of that shard. The bindings of a logical
// cluster that moves count on both shards: on the destination from the moment they are copied, before writes to the logical cluster
// are paused (Announcement), and on the origin until they are deleted there.
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

// resyncPeriod is how often a slice is reconciled without an event, in case the deletion of the last binding was missed
// between two watches.
const resyncPeriod = 10 * time.Minute

// Config holds the dependencies of the controller.
type Config struct {
	Registry *storage.Registry
	// Clients write through the shard's own API.
	Clients *loopback.Clients
	Exports *apiindex.Resolver
	// Consumers indexes bindings and Slices endpoint slices by export.
	Consumers *apiindex.ReferenceIndex[*apisv1alpha2.APIBinding]
	Slices    *apiindex.ReferenceIndex[*apisv1alpha1.APIExportEndpointSlice]
	// ShardName is the name of this shard's Shard object in root.
	ShardName string
}

type sliceController struct {
	cfg          Config
	slices       *storage.Reader[*apisv1alpha1.APIExportEndpointSlice]
	partitions   endpoints.Partitions
	shards       endpoints.ShardLister
	shardChanges endpoints.ShardChanges
	consumers    endpoints.Consumers
}

// Controllers returns the controllers of this package.
func Controllers(cfg Config) []controller.Controller {
	c := &sliceController{
		cfg:        cfg,
		slices:     storage.NewReader[*apisv1alpha1.APIExportEndpointSlice](cfg.Registry, slices),
		partitions: endpoints.NewPartitions(cfg.Registry),
		shards:     endpoints.NewShardLister(cfg.Registry),
		consumers:  endpoints.NewConsumers(cfg.Registry, cfg.ShardName),
	}
	return []controller.Controller{{
		Name: "apiexportendpointslice",
		Sources: []controller.Source{
			{Resource: slices, MapFunc: c.sliceKeys},
			{Resource: exports, MapFunc: c.exportKeys, Global: true},
			{Resource: bindings, MapFunc: c.bindingKeys, WatchFunc: newBindingReader(cfg).WatchMoving},
			{Resource: partitions, MapFunc: c.partitionKeys},
			{Resource: shards, MapFunc: c.shardKeys, Global: true},
			{Resource: consumers, MapFunc: c.consumerKeys, Global: true},
		},
		Reconcile: c.reconcile,
	}}
}

// newBindingReader returns the reader of the bindings of this shard.
func newBindingReader(cfg Config) *storage.Reader[*apisv1alpha2.APIBinding] {
	return storage.NewReader[*apisv1alpha2.APIBinding](cfg.Registry, bindings)
}

func (c *sliceController) sliceKeys(event watch.Event) []controller.Request {
	if slice, ok := event.Object.(*apisv1alpha1.APIExportEndpointSlice); ok {
		// The index has its own watch. Events that follow must find this slice in it.
		c.cfg.Slices.Observe(slice, event.Type == watch.Deleted)
	}
	return controller.RequestForObject(event)
}

// exportKeys returns the slices of an added or deleted export.
func (c *sliceController) exportKeys(event watch.Event) []controller.Request {
	export, ok := event.Object.(*apisv1alpha2.APIExport)
	if !ok || event.Type == watch.Modified {
		return nil
	}
	return c.cfg.Slices.RequestsFor(export)
}

// bindingKeys returns the slices of the export of an added or deleted binding.
func (c *sliceController) bindingKeys(event watch.Event) []controller.Request {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok || event.Type == watch.Modified {
		return nil
	}
	c.cfg.Consumers.Observe(binding, event.Type == watch.Deleted)
	reference, err := apiindex.ReferenceOf(binding)
	if err != nil {
		return nil
	}
	// Slices may refer to the export by another path than the binding.
	export, err := c.cfg.Exports.Resolve(context.Background(), reference)
	if err != nil {
		return c.cfg.Slices.RequestsForReferences(reference)
	}
	return c.cfg.Slices.RequestsFor(export)
}

func (c *sliceController) partitionKeys(event watch.Event) []controller.Request {
	partition, ok := event.Object.(*topologyv1alpha1.Partition)
	if !ok {
		return nil
	}
	return controller.RequestsForObjects(c.slices, logicalcluster.Of(partition), func(slice *apisv1alpha1.APIExportEndpointSlice) bool {
		return slice.Spec.Partition == partition.Name
	})
}

// shardKeys returns all slices when a shard is added or deleted, or its URLs or labels change.
func (c *sliceController) shardKeys(event watch.Event) []controller.Request {
	if _, changed := c.shardChanges.Observe(event); !changed {
		return nil
	}
	return controller.RequestsForObjects(c.slices, logicalcluster.Wildcard, nil)
}

// consumerKeys returns the slices of the export of an ExportConsumers object that another shard published or deleted.
func (c *sliceController) consumerKeys(event watch.Event) []controller.Request {
	exportConsumers, ok := event.Object.(*shardingv1alpha1.ExportConsumers)
	if !ok {
		return nil
	}
	key := exportbindings.ExportKey{Cluster: logicalcluster.Of(exportConsumers), Name: exportConsumers.Name}
	export, err := c.cfg.Exports.Get(context.Background(), key)
	if err != nil {
		return c.cfg.Slices.RequestsForReferences(apiindex.Reference{Path: key.Cluster.Path(), Name: key.Name})
	}
	return c.cfg.Slices.RequestsFor(export)
}

// reconcile observes, writes the conditions, and applies the endpoints of shards.
func (c *sliceController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	stored, err := c.slices.Get(ctx, "", key.Name)
	if apierrors.IsNotFound(err) || (err == nil && stored.DeletionTimestamp != nil) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	state, err := c.observe(ctx, stored)
	if err != nil {
		return controller.Result{}, err
	}
	slice := stored.DeepCopy()
	setConditions(slice, state)
	if !equality.Semantic.DeepEqual(stored.Status, slice.Status) {
		if err := c.cfg.Clients.Typed.Status().Update(ctx, slice); client.IgnoreNotFound(err) != nil {
			return controller.Result{}, fmt.Errorf("writing the status of APIExportEndpointSlice %q: %w", slice.Name, err)
		}
	}
	if err := c.applyEndpoints(ctx, slice, state); err != nil {
		return controller.Result{}, err
	}
	return controller.Result{RequeueAfter: resyncPeriod}, nil
}

// observedState holds the inputs of the status of a slice.
type observedState struct {
	reference apiindex.Reference
	// invalidReference is why the reference cannot be parsed, or nil.
	invalidReference error
	export           *apisv1alpha2.APIExport
	// selector is the selector of the partition. It is nil if the partition is missing or invalid; partitionProblem is the
	// message for that.
	selector         labels.Selector
	partitionProblem string
	shards           []*corev1alpha1.Shard
	// hasConsumers reports whether a shard has consumers, and whether that is known.
	hasConsumers func(shard string) (consumed, known bool)
}

func (c *sliceController) observe(ctx context.Context, slice *apisv1alpha1.APIExportEndpointSlice) (observedState, error) {
	o := observedState{}
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
	o.hasConsumers, err = c.consumers.ForExport(ctx, apiindex.ExportKeyOf(o.export), c.cfg.Consumers.HasReferences(o.export))
	return o, err
}

// setConditions sets the conditions and the shard selector of a slice.
func setConditions(slice *apisv1alpha1.APIExportEndpointSlice, o observedState) {
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
