// Package routing provides the records of this shard for the index that front proxies share: its logical clusters, the
// destinations of its workspaces, the issuers of its workspace types and, on the root shard, the shards. It reads watch
// caches and keeps no state. Package sharedindex writes the records to etcd.
package routing

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Source is a sharedindex.Source of one shard.
type Source struct {
	registry *storage.Registry
	// isRoot is set on the root shard, which provides the records of shards.
	isRoot bool
}

var _ sharedindex.Source = &Source{}

// NewSource returns the source of the shard with that name, over its storages.
func NewSource(registry *storage.Registry, shard string) *Source {
	return &Source{registry: registry, isRoot: shard == sharedindex.RootShard}
}

// recordFunc returns the key and the record of an object. The record is nil if the object has none, or none any more; the
// key is empty if the object is irrelevant.
type recordFunc func(runtime.Object) (sharedindex.Key, any)

func (s *Source) recordFuncs() map[schema.GroupResource]recordFunc {
	all := map[schema.GroupResource]recordFunc{
		corev1alpha1.Resource("logicalclusters"):                          logicalClusterRecord,
		tenancyv1alpha1.Resource("workspaces"):                            workspaceRecord,
		tenancyv1alpha1.Resource("workspacetypes"):                        workspaceTypeRecord,
		tenancyv1alpha1.Resource("workspaceauthenticationconfigurations"): configurationRecord,
	}
	if s.isRoot {
		all[corev1alpha1.Resource("shards")] = shardRecord
	}
	return all
}

// ListAndWatch implements sharedindex.Source: one watch for each resource, over all logical clusters.
func (s *Source) ListAndWatch(ctx context.Context, emit func(sharedindex.Change), synced func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var emitMu sync.Mutex
	var streams, listing sync.WaitGroup
	for gr, toRecord := range s.recordFuncs() {
		listing.Add(1)
		listed := sync.OnceFunc(listing.Done)
		streams.Go(func() {
			defer listed()
			cancel(s.watchResource(ctx, gr, listed, func(event watch.Event) {
				if change, ok := newChange(toRecord, event); ok {
					emitMu.Lock()
					defer emitMu.Unlock()
					emit(change)
				}
			}))
		})
	}
	listing.Wait()
	if ctx.Err() == nil {
		emitMu.Lock()
		synced()
		emitMu.Unlock()
	}
	streams.Wait()
	return context.Cause(ctx)
}

// watchResource hands events of one resource on until the watch ends, which is an error. listed is called when there was
// everything once.
func (s *Source) watchResource(ctx context.Context, gr schema.GroupResource, listed func(), handle func(watch.Event)) error {
	stream, err := storage.NewReader[runtime.Object](s.registry, gr).WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("watching %s: %w", gr, err)
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		switch event.Type {
		case watch.Bookmark:
			listed()
		case watch.Error:
			return fmt.Errorf("watching %s: %w", gr, apierrors.FromObject(event.Object))
		default:
			handle(event)
		}
	}
	return fmt.Errorf("watching %s: the watch ended", gr)
}

// newChange returns what an event means for the index; ok is false if that is nothing.
func newChange(toRecord recordFunc, event watch.Event) (change sharedindex.Change, ok bool) {
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return change, false
	}
	if cluster := logicalcluster.Of(object); cluster.Empty() || cluster.IsSystem() {
		return change, false // what every shard has, and nobody reaches
	}
	key, record := toRecord(event.Object)
	if key.Kind == "" {
		return change, false
	}
	change.Key = key
	if event.Type == watch.Deleted || record == nil {
		return change, true
	}
	if change.Value, err = sharedindex.Encode(record); err != nil {
		klog.ErrorS(err, "An object cannot be written to the shared index", "kind", key.Kind, "cluster", key.Cluster, "name", key.Name)
		return sharedindex.Change{Key: key}, true
	}
	return change, true
}

func logicalClusterRecord(object runtime.Object) (sharedindex.Key, any) {
	o := object.(*corev1alpha1.LogicalCluster)
	return sharedindex.Key{Kind: sharedindex.Clusters, Cluster: logicalcluster.Of(o)},
		sharedindex.Cluster{Type: o.Annotations[corev1alpha1.LogicalClusterTypeAnnotationKey]}
}

func workspaceRecord(object runtime.Object) (sharedindex.Key, any) {
	o := object.(*tenancyv1alpha1.Workspace)
	key := sharedindex.Key{Kind: sharedindex.Workspaces, Cluster: logicalcluster.Of(o), Name: o.Name}
	record, ok := sharedindex.WorkspaceDestination(string(o.Status.Phase), o.Spec.Cluster, o.Annotations[corev1alpha1.ShardAnnotationKey], o.Spec.URL, o.Spec.Mount != nil)
	if !ok {
		return key, nil
	}
	return key, record
}

func workspaceTypeRecord(object runtime.Object) (sharedindex.Key, any) {
	o := object.(*tenancyv1alpha1.WorkspaceType)
	key := sharedindex.Key{Kind: sharedindex.Types, Cluster: logicalcluster.Of(o), Name: o.Name}
	var names []string
	for _, configuration := range o.Spec.AuthenticationConfigurations {
		names = append(names, configuration.Name)
	}
	if len(names) == 0 {
		return key, nil
	}
	return key, sharedindex.Type{Configurations: names}
}

func configurationRecord(object runtime.Object) (sharedindex.Key, any) {
	o := object.(*tenancyv1alpha1.WorkspaceAuthenticationConfiguration)
	return sharedindex.Key{Kind: sharedindex.Issuers, Cluster: logicalcluster.Of(o), Name: o.Name}, sharedindex.AuthenticationConfiguration{JWT: o.Spec.JWT}
}

func shardRecord(object runtime.Object) (sharedindex.Key, any) {
	o := object.(*corev1alpha1.Shard)
	if logicalcluster.Of(o) != logicalcluster.Root {
		return sharedindex.Key{}, nil // only objects in root are shards; others could have their names
	}
	return sharedindex.Key{Kind: sharedindex.Shards, Name: o.Name}, sharedindex.Shard{BaseURL: o.Spec.BaseURL, Labels: o.Labels}
}
