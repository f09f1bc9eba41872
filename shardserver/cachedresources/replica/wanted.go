package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/cachedresources"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// compareAgain is how often it is looked again who consumes what: bindings are counted by an index that may be a moment
// behind the event of one.
const resyncDelay = 2 * time.Second

var (
	slicesOfOffers = cachev1alpha1.Resource("clustercachedresourceendpointslices")
	offers         = cachev1alpha1.Resource("clustercachedresources")
	// all is the one key: the sources are found in one pass over all slices, which are few.
	all = controller.Key{Cluster: logicalcluster.Shard, Name: "*"}
)

// WantedConfig is what the controller works with.
type WantedConfig struct {
	Registry   *storage.Registry
	Exports    cachedresources.Exports
	Replicator *Replicator
}

type wanted struct {
	WantedConfig
	slices *storage.Reader[*cachev1alpha1.ClusterCachedResourceEndpointSlice]
	lookup cachedresources.Lookup
}

// Wanted returns the controller that tells the Keeper what to follow: the objects that a slice of whatever shard shows by
// an export which is bound on this one, if they are on another.
func Wanted(cfg WantedConfig) controller.Controller {
	w := &wanted{
		WantedConfig: cfg,
		slices:       storage.NewReader[*cachev1alpha1.ClusterCachedResourceEndpointSlice](cfg.Registry, slicesOfOffers).Everywhere(),
		lookup:       cachedresources.NewLookup(cfg.Registry, cfg.Exports),
	}
	everything := func(watch.Event) []controller.Key { return []controller.Key{all} }
	return controller.Controller{
		Name: "copies-of-cached-resources",
		Inputs: []controller.Input{
			{Resource: slicesOfOffers, Keys: everything, Everywhere: true},
			{Resource: offers, Keys: everything, Everywhere: true},
			{Resource: apisv1alpha2.Resource("apiexports"), Keys: w.exported, Everywhere: true},
			{Resource: apisv1alpha2.Resource("apibindings"), Keys: w.bound},
		},
		Workers: 1, Reconcile: w.reconcile,
	}
}

// exported returns the key for an export that has, or may have had, something by a slice.
func (w *wanted) exported(event watch.Event) []controller.Key {
	export, ok := event.Object.(*apisv1alpha2.APIExport)
	if !ok {
		return nil
	}
	return w.named(export.Name)
}

// bound returns the key for a binding that came or went, of such an export.
func (w *wanted) bound(event watch.Event) []controller.Key {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok || event.Type == watch.Modified || binding.Spec.Reference.Export == nil {
		return nil
	}
	return w.named(binding.Spec.Reference.Export.Name)
}

func (w *wanted) named(export string) []controller.Key {
	known, err := w.slices.List(logicalcluster.With(context.Background(), logicalcluster.Wildcard), "", nil)
	if err != nil {
		return nil // not installed yet: its own events will come
	}
	if !slices.ContainsFunc(known, func(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		return slice.Spec.APIExport.Name == export
	}) {
		return nil
	}
	return []controller.Key{all}
}

// reconcile finds all sources. What cannot be decided now stays as it is.
func (w *wanted) reconcile(ctx context.Context, _ controller.Key) (controller.Result, error) {
	known, err := w.slices.List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
	if err != nil {
		return controller.Result{}, err
	}
	var sources []Source
	var failed []error
	for _, slice := range known {
		source, wanted, err := w.of(ctx, slice)
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("endpoint slice %q of %q: %w", slice.Name, logicalcluster.Of(slice), err))
		case wanted:
			sources = append(sources, source)
		}
	}
	// Slices that other shards have not told of yet do not end what they ask for.
	if err := w.Registry.Elsewhere().Known(slicesOfOffers); err != nil || len(failed) > 0 {
		sources = append(w.Replicator.Wanted(), sources...)
		if w.Replicator.Wanted() == nil { // what was copied before the start is not to be removed yet
			return controller.Result{RequeueAfter: resyncDelay}, errors.Join(append(failed, err)...)
		}
	}
	w.Replicator.Want(ctx, sources)
	result := controller.Result{}
	if len(known) > 0 {
		result.RequeueAfter = resyncDelay
	}
	return result, errors.Join(failed...)
}

// of returns what a slice has to be followed for, if anything.
func (w *wanted) of(ctx context.Context, slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) (Source, bool, error) {
	sight, err := w.lookup.Of(ctx, slice)
	if err != nil || !sight.Complete() {
		return Source{}, false, err
	}
	if here, err := w.Registry.Here(ctx, logicalcluster.Of(sight.Resource)); err != nil || here {
		return Source{}, false, err
	}
	if consumed, err := w.Exports.Consumed(ctx, sight.Export); err != nil || !consumed {
		return Source{}, false, err
	}
	source, ok := SourceOf(sight.Resource)
	return source, ok, nil
}
