package publisher

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// cacheResource is a resource "<resource>:<identity>" of a logical cluster in the cache.
type cacheResource struct {
	resource schema.GroupVersionResource
	cluster  logicalcluster.Name
}

// original is the state of an object on this shard.
type original struct{ uid, resourceVersion string }

// publishedObject is one object in the cache.
type publishedObject struct {
	original original
	// uid and resourceVersion are the cache's.
	uid             types.UID
	resourceVersion string
}

// publishedState is the state of one ClusterCachedResource in the cache. It is used by one worker at a time.
type publishedState struct {
	cacheResource
	// loaded is set when the rest was read from the cache, in an epoch, from the store of that incarnation.
	loaded      bool
	epoch       uint64
	incarnation string
	objects     map[string]publishedObject
	// completeUID is the UID of the completeness marker; empty without one.
	completeUID types.UID
}

// getState returns the published state of a ClusterCachedResource.
func (p *Publisher) getState(key controller.Request) *publishedState {
	p.mu.Lock()
	defer p.mu.Unlock()
	state := p.states[key]
	if state == nil {
		state = &publishedState{}
		p.states[key] = state
	}
	return state
}

// refreshState brings the state up to date with the cache. It returns false while the cache is unavailable.
func (p *Publisher) refreshState(ctx context.Context, state *publishedState, desired cacheResource) (known bool, err error) {
	incarnation, known := p.cfg.Informer.PublishedIncarnation(clusterCachedResources)
	if !known {
		return false, nil
	}
	if state.loaded && state.cacheResource != desired { // the resource or the identity has changed
		if err := p.withdraw(ctx, state); err != nil {
			return true, err
		}
		state.loaded = false
	}
	state.cacheResource = desired
	epoch := p.epoch.Load()
	if state.loaded && state.epoch == epoch && state.incarnation == incarnation {
		return true, nil
	}
	objects, position, err := p.cfg.Cache.ListScoped(ctx, state.resource, p.cfg.Shard, state.cluster)
	if err != nil {
		return true, err
	}
	state.epoch, state.incarnation, state.loaded = epoch, position.Incarnation, true
	state.objects, state.completeUID = map[string]publishedObject{}, ""
	for _, object := range objects {
		if object.Key == client.CompleteKey(p.cfg.Shard, state.cluster) {
			state.completeUID = object.Meta.UID
			continue
		}
		state.record(object)
	}
	return true, nil
}

// record stores the state of an object in the cache.
func (s *publishedState) record(object *client.Object) {
	annotations := object.Meta.Annotations
	s.objects[object.Name] = publishedObject{
		original: original{annotations[client.OriginalUIDAnnotation], annotations[client.OriginalResourceVersionAnnotation]},
		uid:      object.Meta.UID, resourceVersion: object.Meta.ResourceVersion,
	}
}

// withdraw deletes everything in the cache, the completeness marker first.
func (p *Publisher) withdraw(ctx context.Context, state *publishedState) error {
	if err := p.delete(ctx, state, client.CompleteKey(p.cfg.Shard, state.cluster), state.completeUID); err != nil {
		return err
	}
	state.completeUID = ""
	for name, publishedObject := range state.objects {
		if err := p.delete(ctx, state, p.key(state, name), publishedObject.uid); err != nil {
			return err
		}
		delete(state.objects, name)
	}
	return nil
}

// ensureCompleteMarker publishes the completeness marker, unless it is published.
func (p *Publisher) ensureCompleteMarker(ctx context.Context, state *publishedState) error {
	if state.completeUID != "" {
		return nil
	}
	key := client.CompleteKey(p.cfg.Shard, state.cluster)
	marker := &unstructured.Unstructured{}
	marker.SetAPIVersion(state.resource.GroupVersion().String())
	marker.SetKind(client.CompleteKind)
	marker.SetNamespace(key.Namespace)
	marker.SetName(key.Name)
	written, err := p.cfg.Cache.Create(ctx, state.resource, state.cluster, marker)
	if err != nil {
		return err
	}
	state.completeUID = written.Meta.UID
	return nil
}

func (p *Publisher) delete(ctx context.Context, state *publishedState, key client.Key, uid types.UID) error {
	if uid == "" {
		return nil
	}
	err := p.cfg.Cache.Delete(ctx, state.resource, key, uid)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("withdrawing %q: %w", key.Name, err)
	}
	return nil
}

func (p *Publisher) key(state *publishedState, name string) client.Key {
	return client.Key{Shard: p.cfg.Shard, Cluster: state.cluster, Name: name}
}
