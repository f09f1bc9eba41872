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

// resyncDelay is how often consumers are computed again: the index that counts bindings may be a moment behind an event
// of a binding.
const resyncDelay = 2 * time.Second

var (
	endpointSlices         = cachev1alpha1.Resource("clustercachedresourceendpointslices")
	clusterCachedResources = cachev1alpha1.Resource("clustercachedresources")
	// reconcileKey is the only key: all sources are computed in one pass over the few slices.
	reconcileKey = controller.Request{ClusterName: logicalcluster.Shard, Name: "*"}
)

// ControllerConfig configures the controller.
type ControllerConfig struct {
	Registry   *storage.Registry
	Exports    cachedresources.Exports
	Replicator *Replicator
}

type sourceController struct {
	ControllerConfig
	slices   *storage.Reader[*cachev1alpha1.ClusterCachedResourceEndpointSlice]
	resolver cachedresources.SliceResolver
}

// Controller returns the controller that sets the sources of the Replicator: the objects on other shards that a slice
// of any shard serves by an export that is bound on this shard.
func Controller(cfg ControllerConfig) controller.Controller {
	w := &sourceController{
		ControllerConfig: cfg,
		slices:           storage.NewReader[*cachev1alpha1.ClusterCachedResourceEndpointSlice](cfg.Registry, endpointSlices).Global(),
		resolver:         cachedresources.NewSliceResolver(cfg.Registry, cfg.Exports),
	}
	mapToReconcileKey := func(watch.Event) []controller.Request { return []controller.Request{reconcileKey} }
	return controller.Controller{
		Name: "copies-of-cached-resources",
		Sources: []controller.Source{
			{Resource: endpointSlices, MapFunc: mapToReconcileKey, Global: true},
			{Resource: clusterCachedResources, MapFunc: mapToReconcileKey, Global: true},
			{Resource: apisv1alpha2.Resource("apiexports"), MapFunc: w.exportKeys, Global: true},
			{Resource: apisv1alpha2.Resource("apibindings"), MapFunc: w.bindingKeys},
		},
		MaxConcurrentReconciles: 1, Reconcile: w.reconcile,
	}
}

// exportKeys returns the key for an export with resources of a slice, at present or before.
func (s *sourceController) exportKeys(event watch.Event) []controller.Request {
	export, ok := event.Object.(*apisv1alpha2.APIExport)
	if !ok {
		return nil
	}
	return s.keysForExport(export.Name)
}

// bindingKeys returns the key for a binding of such an export that was created or deleted.
func (s *sourceController) bindingKeys(event watch.Event) []controller.Request {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok || event.Type == watch.Modified || binding.Spec.Reference.Export == nil {
		return nil
	}
	return s.keysForExport(binding.Spec.Reference.Export.Name)
}

func (s *sourceController) keysForExport(export string) []controller.Request {
	known, err := s.slices.List(logicalcluster.With(context.Background(), logicalcluster.Wildcard), "", nil)
	if err != nil {
		return nil // not installed yet: its own events trigger the reconcile
	}
	if !slices.ContainsFunc(known, func(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) bool {
		return slice.Spec.APIExport.Name == export
	}) {
		return nil
	}
	return []controller.Request{reconcileKey}
}

// reconcile computes all sources. Those that cannot be resolved now stay as they are.
func (s *sourceController) reconcile(ctx context.Context, _ controller.Request) (controller.Result, error) {
	known, err := s.slices.List(logicalcluster.With(ctx, logicalcluster.Wildcard), "", nil)
	if err != nil {
		return controller.Result{}, err
	}
	var sources []Source
	var failed []error
	for _, slice := range known {
		source, needed, err := s.resolveSource(ctx, slice)
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("endpoint slice %q of %q: %w", slice.Name, logicalcluster.Of(slice), err))
		case needed:
			sources = append(sources, source)
		}
	}
	// Sources of slices that are not synced yet are kept.
	if err := s.Registry.RemoteStore().CheckSynced(endpointSlices); err != nil || len(failed) > 0 {
		sources = append(s.Replicator.Sources(), sources...)
		if s.Replicator.Sources() == nil { // replicas from before the start must not be deleted yet
			return controller.Result{RequeueAfter: resyncDelay}, errors.Join(append(failed, err)...)
		}
	}
	s.Replicator.SetSources(ctx, sources)
	result := controller.Result{}
	if len(known) > 0 {
		result.RequeueAfter = resyncDelay
	}
	return result, errors.Join(failed...)
}

// resolveSource returns the source of a slice, if it has one.
func (s *sourceController) resolveSource(ctx context.Context, slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) (Source, bool, error) {
	resolved, err := s.resolver.Resolve(ctx, slice)
	if err != nil || !resolved.Complete() {
		return Source{}, false, err
	}
	if isLocal, err := s.Registry.IsLocal(ctx, logicalcluster.Of(resolved.Resource)); err != nil || isLocal {
		return Source{}, false, err
	}
	if consumed, err := s.Exports.Consumed(ctx, resolved.Export); err != nil || !consumed {
		return Source{}, false, err
	}
	source, ok := SourceOf(resolved.Resource)
	return source, ok, nil
}
