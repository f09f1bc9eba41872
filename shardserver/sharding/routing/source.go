// Package routing provides the records of this shard for the index that front proxies share: its logical clusters, the
// destinations of its workspaces, the issuers of its workspace types and, on the root shard, the shards. It reads watch
// caches and keeps no state. Package sharedindex writes the records to etcd.
package routing

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/informer"
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

var errWatchEnded = errors.New("a watch ended")

// ListAndWatch implements sharedindex.Source: one informer for each resource, over all logical clusters.
func (s *Source) ListAndWatch(ctx context.Context, emit func(sharedindex.Change), synced func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards emit and synced
	var running sync.WaitGroup
	var informers []*informer.Informer[runtime.Object]
	for gr, toRecord := range s.recordFuncs() {
		handler := func(deleted bool) func(context.Context, runtime.Object) error {
			return func(_ context.Context, object runtime.Object) error {
				if change, ok := newChange(toRecord, object, deleted); ok {
					mu.Lock()
					defer mu.Unlock()
					emit(change)
				}
				return nil
			}
		}
		update := handler(false)
		i := informer.NewWithHandler(gr, storage.NewReader[runtime.Object](s.registry, gr).WatchAll, informer.EventHandler[runtime.Object]{
			OnReplace: informer.ForEach(update), OnAdd: update, OnUpdate: update, OnDelete: handler(true),
			OnDisconnect: func() { cancel(fmt.Errorf("watching %s: %w", gr, errWatchEnded)) },
		})
		informers = append(informers, i)
		running.Go(func() { i.Run(ctx) })
	}
	defer running.Wait()
	for _, i := range informers {
		if i.WaitForSync(ctx) != nil {
			return context.Cause(ctx)
		}
	}
	mu.Lock()
	synced()
	mu.Unlock()
	<-ctx.Done()
	return context.Cause(ctx)
}

// newChange returns what an object means for the index; ok is false if that is nothing.
func newChange(toRecord recordFunc, object runtime.Object, deleted bool) (change sharedindex.Change, ok bool) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return change, false
	}
	if cluster := logicalcluster.Of(accessor); cluster.Empty() || cluster.IsSystem() {
		return change, false // every shard has these, and they are not routed
	}
	key, record := toRecord(object)
	if key.Kind == "" {
		return change, false
	}
	change.Key = key
	if deleted || record == nil {
		return change, true
	}
	if change.Value, err = sharedindex.Encode(record); err != nil {
		klog.ErrorS(err, "Failed to write an object to the shared index", "kind", key.Kind, "cluster", key.Cluster, "name", key.Name)
		return sharedindex.Change{Key: key}, true
	}
	return change, true
}

func logicalClusterRecord(object runtime.Object) (sharedindex.Key, any) {
	o := object.(*corev1alpha1.LogicalCluster)
	key := sharedindex.Key{Kind: sharedindex.Clusters, Cluster: logicalcluster.Of(o)}
	record, ok := sharedindex.LogicalCluster(o.Annotations)
	if !ok {
		return key, nil
	}
	return key, record
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
