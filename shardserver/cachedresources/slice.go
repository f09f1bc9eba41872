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
	cfg        Config
	slices     *storage.Reader[*cachev1alpha1.ClusterCachedResourceEndpointSlice]
	lookup     Lookup
	partitions endpoints.Partitions
	shards     endpoints.AllShards
	shardNews  endpoints.ShardNews
	consumers  endpoints.Consumers
}

func sliceControllerOf(cfg Config) controller.Controller {
	c := &sliceController{
		cfg:        cfg,
		slices:     storage.NewReader[*cachev1alpha1.ClusterCachedResourceEndpointSlice](cfg.Registry, endpointSlices),
		lookup:     NewLookup(cfg.Registry, cfg.Exports),
		partitions: endpoints.NewPartitions(cfg.Registry),
		shards:     endpoints.NewAllShards(cfg.Registry),
		consumers:  endpoints.NewConsumers(cfg.Registry, cfg.ShardName),
	}
	return controller.Controller{
		Name: "clustercachedresourceendpointslice",
		Inputs: []controller.Input{
			{Resource: endpointSlices, Keys: controller.ObjectKey},
			{Resource: cachedResources, Keys: c.all, Everywhere: true},
			{Resource: apisv1alpha2.Resource("apiexports"), Keys: c.all, Everywhere: true},
			{Resource: apisv1alpha2.Resource("apibindings"), Keys: c.bindingKeys},
			{Resource: topologyv1alpha1.Resource("partitions"), Keys: c.all},
			{Resource: corev1alpha1.Resource("shards"), Keys: c.shardKeys, Everywhere: true},
			{Resource: shardingv1alpha1.Resource("exportconsumers"), Keys: c.consumerKeys, Everywhere: true},
		},
		Reconcile: c.reconcile,
	}
}

// all returns all slices: they are few, and so are events of what they are about.
func (c *sliceController) all(watch.Event) []controller.Key {
	return c.matching(func(*cachev1alpha1.ClusterCachedResourceEndpointSlice) bool { return true })
}

// shardKeys returns all slices when a shard comes, goes, or has another address or other labels.
func (c *sliceController) shardKeys(event watch.Event) []controller.Key {
	if _, news := c.shardNews.Of(event); !news {
		return nil
	}
	return c.all(event)
}

// consumerKeys returns the slices for an export of which another shard says that it has consumers, or none any more.
func (c *sliceController) consumerKeys(event watch.Event) []controller.Key {
	said, ok := event.Object.(*shardingv1alpha1.ExportConsumers)
	if !ok {
		return nil
	}
	return c.matching(func(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		return slice.Spec.APIExport.Name == said.Name
	})
}

// bindingKeys returns the slices for an export that a binding, which came or went, names. They may name it otherwise, so
// its name is what counts.
func (c *sliceController) bindingKeys(event watch.Event) []controller.Key {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok || event.Type == watch.Modified || binding.Spec.Reference.Export == nil {
		return nil
	}
	return c.matching(func(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		return slice.Spec.APIExport.Name == binding.Spec.Reference.Export.Name
	})
}

func (c *sliceController) matching(matches func(*cachev1alpha1.ClusterCachedResourceEndpointSlice) bool) []controller.Key {
	all, err := c.slices.List(logicalcluster.With(context.Background(), logicalcluster.Wildcard), "", nil)
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

// facts are what the status of a slice follows from.
type facts struct {
	sight Sight
	// selector is that of the partition, nil if that is missing or cannot be understood, which fault says.
	selector labels.Selector
	fault    string
	shards   []*corev1alpha1.Shard
	// consumed tells whether a shard has consumers, and whether that is known.
	consumed func(shard string) (consumed, known bool)
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
	seen, err := c.observe(ctx, stored)
	if err != nil {
		return controller.Result{}, err
	}
	slice := stored.DeepCopy()
	decide(slice, seen)
	if !equality.Semantic.DeepEqual(stored.Status, slice.Status) {
		if err := c.cfg.Clients.Typed.Status().Update(ctx, slice); client.IgnoreNotFound(err) != nil {
			return controller.Result{}, fmt.Errorf("writing the status of ClusterCachedResourceEndpointSlice %q: %w", slice.Name, err)
		}
	}
	if !seen.sight.Complete() || seen.selector == nil {
		return controller.Result{}, nil
	}
	slice.SetGroupVersionKind(cachev1alpha1.SchemeGroupVersion.WithKind("ClusterCachedResourceEndpointSlice"))
	listed := endpoints.Listed{Slice: slice}
	for _, endpoint := range slice.Status.Endpoints {
		listed.Addresses = append(listed.Addresses, endpoint.URL)
	}
	path := "/services/replication/" + logicalcluster.Of(slice).String() + "/" + slice.Name
	return controller.Result{}, listed.Apply(ctx, c.cfg.Clients.Typed, listed.Wanted(seen.shards, seen.selector, seen.consumed, path))
}

func (c *sliceController) observe(ctx context.Context, slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) (facts, error) {
	var seen facts
	var err error
	if seen.sight, err = c.lookup.Of(ctx, slice); err != nil {
		return seen, err
	}
	if seen.selector, seen.fault, err = c.partitions.Selector(ctx, slice.Spec.Partition); err != nil {
		return seen, err
	}
	if seen.shards, err = c.shards.List(ctx); err != nil || seen.sight.Export == nil {
		return seen, err
	}
	here, err := c.cfg.Exports.Consumed(ctx, seen.sight.Export)
	if err != nil {
		return seen, err
	}
	seen.consumed, err = c.consumers.Of(ctx, apiindex.ExportKeyOf(seen.sight.Export), here)
	return seen, err
}

// decide brings conditions and selector of a slice in line with what was observed.
func decide(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice, seen facts) {
	sight := seen.sight
	mark(slice, cachev1alpha1.ResourceValid, sight.Resource != nil, cachev1alpha1.ReasonClusterCachedResourceNotFound, sight.ResourceFault)
	mark(slice, cachev1alpha1.APIExportValid, sight.ExportFault == "", cachev1alpha1.ReasonAPIExportInvalidReference, sight.ExportFault)
	mark(slice, cachev1alpha1.PartitionValid, seen.selector != nil, cachev1alpha1.ReasonPartitionInvalidReference, seen.fault)
	if !sight.Complete() {
		slice.Status.Endpoints = nil
	}
	if seen.selector != nil {
		slice.Status.ShardSelector = seen.selector.String()
	}
}

var _ conditionsv1alpha1.Setter = &cachev1alpha1.ClusterCachedResourceEndpointSlice{}
