// Package routing tells the index that front proxies share what of this shard's objects leads requests here: its logical
// clusters, where its workspaces lead, the issuers that its workspace types bring and, on the root shard, what shards
// there are. It reads watch caches and keeps nothing; how records get into etcd is the business of package sharedindex.
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
	// root tells whether this shard says what shards there are.
	root bool
}

var _ sharedindex.Source = &Source{}

// NewSource returns the source of the shard with that name, over its storages.
func NewSource(registry *storage.Registry, shard string) *Source {
	return &Source{registry: registry, root: shard == sharedindex.RootShard}
}

// read turns an object into its record: nil for one that has none (any more), no key for one that concerns no record.
type read func(runtime.Object) (sharedindex.Key, any)

func (s *Source) reads() map[schema.GroupResource]read {
	all := map[schema.GroupResource]read{
		corev1alpha1.Resource("logicalclusters"):                          ofLogicalCluster,
		tenancyv1alpha1.Resource("workspaces"):                            ofWorkspace,
		tenancyv1alpha1.Resource("workspacetypes"):                        ofWorkspaceType,
		tenancyv1alpha1.Resource("workspaceauthenticationconfigurations"): ofConfiguration,
	}
	if s.root {
		all[corev1alpha1.Resource("shards")] = ofShard
	}
	return all
}

// ListAndWatch implements sharedindex.Source: one watch for each resource, over all logical clusters.
func (s *Source) ListAndWatch(ctx context.Context, emit func(sharedindex.Change), synced func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var emitting sync.Mutex
	var streams, listing sync.WaitGroup
	for gr, read := range s.reads() {
		listing.Add(1)
		listed := sync.OnceFunc(listing.Done)
		streams.Go(func() {
			defer listed()
			cancel(s.follow(ctx, gr, listed, func(event watch.Event) {
				if change, ok := changeOf(read, event); ok {
					emitting.Lock()
					defer emitting.Unlock()
					emit(change)
				}
			}))
		})
	}
	listing.Wait()
	if ctx.Err() == nil {
		emitting.Lock()
		synced()
		emitting.Unlock()
	}
	streams.Wait()
	return context.Cause(ctx)
}

// follow hands events of one resource on until the watch ends, which is an error. listed is called when there was
// everything once.
func (s *Source) follow(ctx context.Context, gr schema.GroupResource, listed func(), each func(watch.Event)) error {
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
			each(event)
		}
	}
	return fmt.Errorf("watching %s: the watch ended", gr)
}

// changeOf returns what an event means for the index; ok is false if that is nothing.
func changeOf(read read, event watch.Event) (change sharedindex.Change, ok bool) {
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return change, false
	}
	if cluster := logicalcluster.Of(object); cluster.Empty() || cluster.IsSystem() {
		return change, false // what every shard has, and nobody reaches
	}
	key, record := read(event.Object)
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

func ofLogicalCluster(object runtime.Object) (sharedindex.Key, any) {
	o := object.(*corev1alpha1.LogicalCluster)
	return sharedindex.Key{Kind: sharedindex.Clusters, Cluster: logicalcluster.Of(o)},
		sharedindex.Cluster{Type: o.Annotations[corev1alpha1.LogicalClusterTypeAnnotationKey]}
}

func ofWorkspace(object runtime.Object) (sharedindex.Key, any) {
	o := object.(*tenancyv1alpha1.Workspace)
	key := sharedindex.Key{Kind: sharedindex.Workspaces, Cluster: logicalcluster.Of(o), Name: o.Name}
	record, ok := sharedindex.WorkspaceDestination(string(o.Status.Phase), o.Spec.Cluster, o.Annotations[corev1alpha1.ShardAnnotationKey], o.Spec.URL, o.Spec.Mount != nil)
	if !ok {
		return key, nil
	}
	return key, record
}

func ofWorkspaceType(object runtime.Object) (sharedindex.Key, any) {
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

func ofConfiguration(object runtime.Object) (sharedindex.Key, any) {
	o := object.(*tenancyv1alpha1.WorkspaceAuthenticationConfiguration)
	return sharedindex.Key{Kind: sharedindex.Issuers, Cluster: logicalcluster.Of(o), Name: o.Name}, sharedindex.IssuersOf{JWT: o.Spec.JWT}
}

func ofShard(object runtime.Object) (sharedindex.Key, any) {
	o := object.(*corev1alpha1.Shard)
	if logicalcluster.Of(o) != logicalcluster.Root {
		return sharedindex.Key{}, nil // those are in root; one that is not must not take the name of one that is
	}
	return sharedindex.Key{Kind: sharedindex.Shards, Name: o.Name}, sharedindex.Shard{BaseURL: o.Spec.BaseURL, Labels: o.Labels}
}
