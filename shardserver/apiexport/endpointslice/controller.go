// Package endpointslice holds the controller of APIExportEndpointSlices: it says whether export and partition of a slice
// are there, and lists this shard's address while a logical cluster of this shard binds the export.
//
// Every shard writes its own address, as a field manager of its own, so that shards need not know of one another.
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
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiexport"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/endpoints"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var (
	slices     = apisv1alpha1.Resource("apiexportendpointslices")
	exports    = apisv1alpha2.Resource("apiexports")
	bindings   = apisv1alpha2.Resource("apibindings")
	partitions = topologyv1alpha1.Resource("partitions")
	shards     = corev1alpha1.Resource("shards")
)

// lookAgain is how often a slice is looked at if nothing happens. It mends what the end of a watch has hidden: that the
// last binding went.
const lookAgain = 10 * time.Minute

// Config is what the controller needs.
type Config struct {
	Registry *storage.Registry
	// Clients write through the shard's own API.
	Clients *loopback.Clients
	Exports *apiexport.Catalog
	// Consumers tells which bindings refer to an export, Slices which endpoint slices do.
	Consumers *apiexport.Referrers[*apisv1alpha2.APIBinding]
	Slices    *apiexport.Referrers[*apisv1alpha1.APIExportEndpointSlice]
	// ShardName is the name of this shard's Shard object in root.
	ShardName string
}

type sliceController struct {
	cfg        Config
	slices     *storage.Reader[*apisv1alpha1.APIExportEndpointSlice]
	partitions endpoints.Partitions
	shards     *storage.Reader[*corev1alpha1.Shard]
}

// Controllers returns the controllers of this package.
func Controllers(cfg Config) []controller.Controller {
	c := &sliceController{
		cfg:        cfg,
		slices:     storage.NewReader[*apisv1alpha1.APIExportEndpointSlice](cfg.Registry, slices),
		partitions: endpoints.NewPartitions(cfg.Registry),
		shards:     storage.NewReader[*corev1alpha1.Shard](cfg.Registry, shards),
	}
	return []controller.Controller{{
		Name: "apiexportendpointslice",
		Inputs: []controller.Input{
			{Resource: slices, Keys: c.sliceKeys},
			{Resource: exports, Keys: c.exportKeys},
			{Resource: bindings, Keys: c.bindingKeys},
			{Resource: partitions, Keys: c.partitionKeys},
			{Resource: shards, Keys: c.shardKeys},
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
	return c.cfg.Slices.To(export)
}

// bindingKeys returns the slices of the export that a binding which came or went refers to.
func (c *sliceController) bindingKeys(event watch.Event) []controller.Key {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok || event.Type == watch.Modified {
		return nil
	}
	c.cfg.Consumers.Take(binding, event.Type == watch.Deleted)
	reference, err := apiexport.ReferenceOf(binding)
	if err != nil {
		return nil
	}
	// Slices may name the export otherwise than the binding does.
	export, err := c.cfg.Exports.ByPath(context.Background(), reference)
	if err != nil {
		return c.cfg.Slices.ToAny(reference)
	}
	return c.cfg.Slices.To(export)
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

// shardKeys returns all slices when this shard is registered anew: its address or its labels may be others.
func (c *sliceController) shardKeys(event watch.Event) []controller.Key {
	if shard, ok := event.Object.(*corev1alpha1.Shard); !ok || shard.Name != c.cfg.ShardName {
		return nil
	}
	return c.keysIn(logicalcluster.Wildcard, func(*apisv1alpha1.APIExportEndpointSlice) bool { return true })
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

// reconcile is a ladder: observe, say what is wrong, add or remove this shard's address.
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
	decide(slice, observed)
	if !equality.Semantic.DeepEqual(stored.Status, slice.Status) {
		if err := c.cfg.Clients.Typed.Status().Update(ctx, slice); client.IgnoreNotFound(err) != nil {
			return controller.Result{}, fmt.Errorf("writing the status of APIExportEndpointSlice %q: %w", slice.Name, err)
		}
	}
	if err := c.apply(ctx, slice, observed); err != nil {
		return controller.Result{}, err
	}
	return controller.Result{RequeueAfter: lookAgain}, nil
}

// observed is what the status of a slice follows from.
type observed struct {
	reference apiexport.Reference
	// invalid says why the reference cannot be followed.
	invalid error
	export  *apisv1alpha2.APIExport
	// selector is that of the partition, nil if that is missing or cannot be understood, which fault says.
	selector labels.Selector
	fault    string
	shard    *corev1alpha1.Shard
	consumed bool
}

func (c *sliceController) observe(ctx context.Context, slice *apisv1alpha1.APIExportEndpointSlice) (observed, error) {
	o := observed{}
	if o.reference, o.invalid = apiexport.ReferenceOfSlice(slice); o.invalid == nil {
		export, err := c.cfg.Exports.ByPath(ctx, o.reference)
		if client.IgnoreNotFound(err) != nil {
			return o, err
		}
		if err == nil {
			o.export = export
		}
	}
	var err error
	if o.selector, o.fault, err = c.partitions.Selector(ctx, slice.Spec.Partition); err != nil {
		return o, err
	}
	shard, err := c.shards.Get(logicalcluster.With(ctx, logicalcluster.Root), "", c.cfg.ShardName)
	if client.IgnoreNotFound(err) != nil {
		return o, err
	}
	if err == nil {
		o.shard = shard
	}
	if o.export == nil {
		return o, nil
	}
	if err := c.cfg.Consumers.WaitForSync(ctx); err != nil {
		return o, err
	}
	o.consumed = c.cfg.Consumers.Any(o.export)
	return o, nil
}

// decide brings the conditions and the selector of a slice in line with what was observed.
func decide(slice *apisv1alpha1.APIExportEndpointSlice, o observed) {
	switch {
	case o.invalid != nil:
		exportInvalid(slice, apisv1alpha1.InternalErrorReason, fmt.Sprintf("spec.export cannot be used: %v; create a slice with another one", o.invalid))
	case o.export == nil:
		exportInvalid(slice, apisv1alpha1.APIExportNotFoundReason, fmt.Sprintf("APIExport %q was not found; create it, or delete the slice", o.reference))
	default:
		conditionsv1alpha1.MarkTrue(slice, apisv1alpha1.APIExportValid)
	}
	if o.selector == nil {
		conditionsv1alpha1.MarkFalse(slice, apisv1alpha1.PartitionValid, apisv1alpha1.PartitionInvalidReferenceReason, conditionsv1alpha1.SeverityError, "%s", o.fault)
		return
	}
	conditionsv1alpha1.MarkTrue(slice, apisv1alpha1.PartitionValid)
	slice.Status.ShardSelector = o.selector.String()
}

func exportInvalid(slice *apisv1alpha1.APIExportEndpointSlice, reason, message string) {
	conditionsv1alpha1.MarkFalse(slice, apisv1alpha1.APIExportValid, reason, conditionsv1alpha1.SeverityError, "%s", message)
	slice.Status.APIExportEndpoints = nil
}
