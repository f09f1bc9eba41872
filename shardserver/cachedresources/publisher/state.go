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
	of original
	// uid and resourceVersion are the cache's.
	uid             types.UID
	resourceVersion string
}

// publishedState is the state of one ClusterCachedResource in the cache. It is used by one worker at a time.
type publishedState struct {
	cacheResource
	// read says that the rest was read from the cache, in an epoch, from the store of that name.
	read        bool
	epoch       uint64
	incarnation string
	copies      map[string]publishedObject
	// complete is the uid of the word that all objects are there; empty without it.
	complete types.UID
}

// standing returns what stands in the cache of an offer.
func (p *Publisher) publishedState(key controller.Key) *publishedState {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.offers[key]
	if at == nil {
		at = &publishedState{}
		p.offers[key] = at
	}
	return at
}

// look brings what is known of the cache up to date. It returns false while the cache is away.
func (p *Publisher) look(ctx context.Context, at *publishedState, wanted cacheResource) (known bool, err error) {
	incarnation, known := p.cfg.Informer.PublishedIncarnation(offered)
	if !known {
		return false, nil
	}
	if at.read && at.cacheResource != wanted { // it offers something else now
		if err := p.withdraw(ctx, at); err != nil {
			return true, err
		}
		at.read = false
	}
	at.cacheResource = wanted
	epoch := p.epoch.Load()
	if at.read && at.epoch == epoch && at.incarnation == incarnation {
		return true, nil
	}
	objects, position, err := p.cfg.Cache.ListOf(ctx, at.resource, p.cfg.Shard, at.cluster)
	if err != nil {
		return true, err
	}
	at.epoch, at.incarnation, at.read = epoch, position.Incarnation, true
	at.copies, at.complete = map[string]publishedObject{}, ""
	for _, object := range objects {
		if object.Key == client.CompleteKey(p.cfg.Shard, at.cluster) {
			at.complete = object.Meta.UID
			continue
		}
		at.note(object)
	}
	return true, nil
}

// note takes in a copy as the cache has it.
func (s *publishedState) note(object *client.Object) {
	annotations := object.Meta.Annotations
	s.copies[object.Name] = publishedObject{
		of:  original{annotations[client.OriginalUIDAnnotation], annotations[client.OriginalResourceVersionAnnotation]},
		uid: object.Meta.UID, resourceVersion: object.Meta.ResourceVersion,
	}
}

// withdraw removes everything from the cache: first the word that it is complete.
func (p *Publisher) withdraw(ctx context.Context, at *publishedState) error {
	if err := p.delete(ctx, at, client.CompleteKey(p.cfg.Shard, at.cluster), at.complete); err != nil {
		return err
	}
	at.complete = ""
	for name, publishedObject := range at.copies {
		if err := p.delete(ctx, at, p.key(at, name), publishedObject.uid); err != nil {
			return err
		}
		delete(at.copies, name)
	}
	return nil
}

// sayComplete says that all objects are in the cache, unless that was said.
func (p *Publisher) sayComplete(ctx context.Context, at *publishedState) error {
	if at.complete != "" {
		return nil
	}
	key := client.CompleteKey(p.cfg.Shard, at.cluster)
	word := &unstructured.Unstructured{}
	word.SetAPIVersion(at.resource.GroupVersion().String())
	word.SetKind(client.CompleteKind)
	word.SetNamespace(key.Namespace)
	word.SetName(key.Name)
	written, err := p.cfg.Cache.Create(ctx, at.resource, at.cluster, word)
	if err != nil {
		return err
	}
	at.complete = written.Meta.UID
	return nil
}

func (p *Publisher) delete(ctx context.Context, at *publishedState, key client.Key, uid types.UID) error {
	if uid == "" {
		return nil
	}
	err := p.cfg.Cache.Delete(ctx, at.resource, key, uid)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("withdrawing %q: %w", key.Name, err)
	}
	return nil
}

func (p *Publisher) key(at *publishedState, name string) client.Key {
	return client.Key{Shard: p.cfg.Shard, Cluster: at.cluster, Name: name}
}
