package cachedresources

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var endpointSlices = cachev1alpha1.Resource("clustercachedresourceendpointslices")

type sliceController struct {
	cfg          Config
	slices       *storage.Reader[*cachev1alpha1.ClusterCachedResourceEndpointSlice]
	resolver     SliceResolver
	partitions   endpoints.Partitions
	shards       endpoints.ShardLister
	shardChanges endpoints.ShardChanges
	consumers    endpoints.Consumers
}

func newSliceController(cfg Config) controller.Controller {
	c := &sliceController{
		cfg:        cfg,
		slices:     storage.NewReader[*cachev1alpha1.ClusterCachedResourceEndpointSlice](cfg.Registry, endpointSlices),
		resolver:   NewSliceResolver(cfg.Registry, cfg.Exports),
		partitions: endpoints.NewPartitions(cfg.Registry),
		shards:     endpoints.NewShardLister(cfg.Registry),
		consumers:  endpoints.NewConsumers(cfg.Registry, cfg.ShardName),
	}
	return controller.Controller{
		Name: "clustercachedresourceendpointslice",
		Sources: []controller.Source{
			{Resource: endpointSlices, MapFunc: controller.RequestForObject},
			{Resource: cachedResources, MapFunc: c.allKeys, Global: true},
			{Resource: apisv1alpha2.Resource("apiexports"), MapFunc: c.allKeys, Global: true},
			{Resource: apisv1alpha2.Resource("apibindings"), MapFunc: c.bindingKeys},
			{Resource: topologyv1alpha1.Resource("partitions"), MapFunc: c.allKeys},
			{Resource: corev1alpha1.Resource("shards"), MapFunc: c.shardKeys, Global: true},
			{Resource: shardingv1alpha1.Resource("exportconsumers"), MapFunc: c.consumerKeys, Global: true},
		},
		Reconcile: c.reconcile,
	}
}

// allKeys returns all slices: they are few, and so are events of the objects that they reference.
func (c *sliceController) allKeys(watch.Event) []controller.Request {
	return controller.RequestsForObjects(c.slices, logicalcluster.Wildcard, nil)
}

// shardKeys returns all slices when a shard is created or deleted, or its addresses or labels change.
func (c *sliceController) shardKeys(event watch.Event) []controller.Request {
	if _, changed := c.shardChanges.Observe(event); !changed {
		return nil
	}
	return c.allKeys(event)
}

// consumerKeys returns the slices of an export when another shard publishes or deletes an ExportConsumers object of it.
func (c *sliceController) consumerKeys(event watch.Event) []controller.Request {
	consumers, ok := event.Object.(*shardingv1alpha1.ExportConsumers)
	if !ok {
		return nil
	}
	return controller.RequestsForObjects(c.slices, logicalcluster.Wildcard, func(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		return slice.Spec.APIExport.Name == consumers.Name
	})
}

// bindingKeys returns the slices of an export when a binding of it is created or deleted. They may reference the export
// by another path, so only the name is compared.
func (c *sliceController) bindingKeys(event watch.Event) []controller.Request {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok || event.Type == watch.Modified || binding.Spec.Reference.Export == nil {
		return nil
	}
	return controller.RequestsForObjects(c.slices, logicalcluster.Wildcard, func(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		return slice.Spec.APIExport.Name == binding.Spec.Reference.Export.Name
	})
}

// observed is the input of the status of a slice.
type observed struct {
	resolved ResolvedSlice
	// selector is that of the partition. It is nil if the partition is missing or invalid, which message reports.
	selector         labels.Selector
	partitionMessage string
	shards           []*corev1alpha1.Shard
	// consumed reports whether a shard has consumers, and whether that is known.
	consumed func(shard string) (consumed, known bool)
}

// reconcile observes, writes the conditions, and adds or removes the addresses of shards.
func (c *sliceController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	stored, err := c.slices.Get(ctx, "", key.Name)
	if apierrors.IsNotFound(err) || (err == nil && stored.DeletionTimestamp != nil) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	o, err := c.observe(ctx, stored)
	if err != nil {
		return controller.Result{}, err
	}
	slice := stored.DeepCopy()
	computeStatus(slice, o)
	if !equality.Semantic.DeepEqual(stored.Status, slice.Status) {
		if err := c.cfg.Clients.Typed.Status().Update(ctx, slice); client.IgnoreNotFound(err) != nil {
			return controller.Result{}, fmt.Errorf("writing the status of ClusterCachedResourceEndpointSlice %q: %w", slice.Name, err)
		}
	}
	if !o.resolved.Complete() || o.selector == nil {
		return controller.Result{}, nil
	}
	slice.SetGroupVersionKind(cachev1alpha1.SchemeGroupVersion.WithKind("ClusterCachedResourceEndpointSlice"))
	endpointSlice := endpoints.EndpointSlice{Slice: slice}
	for _, endpoint := range slice.Status.Endpoints {
		endpointSlice.Addresses = append(endpointSlice.Addresses, endpoint.URL)
	}
	path := "/services/replication/" + logicalcluster.Of(slice).String() + "/" + slice.Name
	return controller.Result{}, endpointSlice.Apply(ctx, c.cfg.Clients.Typed, endpointSlice.DesiredAddresses(o.shards, o.selector, o.consumed, path))
}

func (c *sliceController) observe(ctx context.Context, slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) (observed, error) {
	var o observed
	var err error
	if o.resolved, err = c.resolver.Resolve(ctx, slice); err != nil {
		return o, err
	}
	if o.selector, o.partitionMessage, err = c.partitions.Selector(ctx, slice.Spec.Partition); err != nil {
		return o, err
	}
	if o.shards, err = c.shards.List(ctx); err != nil || o.resolved.Export == nil {
		return o, err
	}
	here, err := c.cfg.Exports.Consumed(ctx, o.resolved.Export)
	if err != nil {
		return o, err
	}
	o.consumed, err = c.consumers.ForExport(ctx, apiindex.ExportKeyOf(o.resolved.Export), here)
	return o, err
}

// computeStatus sets the conditions and the selector of a slice by the observed state.
func computeStatus(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice, o observed) {
	resolved := o.resolved
	setCondition(slice, cachev1alpha1.ResourceValid, resolved.Resource != nil, cachev1alpha1.ReasonClusterCachedResourceNotFound, resolved.ResourceMessage)
	setCondition(slice, cachev1alpha1.APIExportValid, resolved.ExportMessage == "", cachev1alpha1.ReasonAPIExportInvalidReference, resolved.ExportMessage)
	setCondition(slice, cachev1alpha1.PartitionValid, o.selector != nil, cachev1alpha1.ReasonPartitionInvalidReference, o.partitionMessage)
	if !resolved.Complete() {
		slice.Status.Endpoints = nil
	}
	if o.selector != nil {
		slice.Status.ShardSelector = o.selector.String()
	}
}

var _ conditionsv1alpha1.Setter = &cachev1alpha1.ClusterCachedResourceEndpointSlice{}
