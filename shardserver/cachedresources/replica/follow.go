package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
)

// writers is how many copies are written at once when a list brings many.
const writers = 8

// follower writes down what the stream of a source tells. It implements client.EventHandler: it holds the stream up for as
// long as the shard's own etcd takes.
type follower struct {
	ctx    context.Context //nolint:containedctx // it is the lifetime of the stream
	source Source
	held   *held
	// missing are copies that are not in the cache of the stream. They are forgotten when the shard says that everything is
	// there: a cache that was emptied is filled again by and by.
	missing map[string]bool
}

// OnReplace takes over what is in the cache.
func (f *follower) OnReplace(objects []*client.Object, _ client.Position) {
	var stored map[string]original
	f.persist("Reading copies", func() (err error) {
		stored, err = f.held.list(f.ctx, f.source.Cluster)
		return err
	})
	f.missing = make(map[string]bool, len(stored))
	for name := range stored {
		f.missing[name] = true
	}
	complete := false
	var writing sync.WaitGroup
	slots := make(chan struct{}, writers)
	for _, object := range objects {
		if f.isComplete(object) {
			complete = true
			continue
		}
		if !f.believes(object) {
			continue
		}
		delete(f.missing, object.Name)
		if of := originalOf(object.Meta.Annotations, object.APIVersion); of.certain() && stored[object.Name] == of {
			continue
		}
		slots <- struct{}{}
		writing.Go(func() {
			defer func() { <-slots }()
			f.keep(object)
		})
	}
	writing.Wait()
	if complete {
		f.complete()
	}
}

// OnEvent takes over one change.
func (f *follower) OnEvent(change watch.EventType, object *client.Object, _ client.Position) {
	switch {
	case object == nil: // a bookmark
	case f.isComplete(object):
		if change != watch.Deleted {
			f.complete()
		}
	case !f.believes(object):
	case change == watch.Deleted:
		delete(f.missing, object.Name)
		f.persist("Removing a copy", func() error { return f.held.drop(f.ctx, f.source.Cluster, object.Name) })
	default:
		delete(f.missing, object.Name)
		f.keep(object)
	}
}

// OnConnect implements client.EventHandler.
func (f *follower) OnConnect() {}

// OnDisconnect implements client.EventHandler. The mirror tells of a cache that is away.
func (f *follower) OnDisconnect(err error) {
	klog.FromContext(f.ctx).V(2).Info("What another shard offers is not followed until the cache answers", "resource", f.source.Resource, "cluster", f.source.Cluster, "shard", f.source.Shard, "reason", err)
}

// isComplete tells whether an object is the word of its shard that everything is in the cache.
func (f *follower) isComplete(object *client.Object) bool {
	return object.Key == client.CompleteKey(f.source.Shard, f.source.Cluster)
}

// believes tells whether an object is one that the source can have.
func (f *follower) believes(object *client.Object) bool {
	return object.Shard == f.source.Shard && object.Cluster == f.source.Cluster && object.Namespace == "" &&
		object.APIVersion == f.source.Resource.GroupVersion().String() && len(content.IsPathSegmentName(object.Name)) == 0
}

// complete forgets what is not in the cache, and says that the rest is all that there is.
func (f *follower) complete() {
	for name := range f.missing {
		f.persist("Removing a copy", func() error { return f.held.drop(f.ctx, f.source.Cluster, name) })
	}
	f.missing = nil
	f.persist("Noting that copies are complete", func() error { return f.held.complete(f.ctx, f.source) })
}

func (f *follower) persist(what string, do func() error) { persist(f.ctx, what, f.source, do) }

// keep writes a copy. What can never be stored is left out, so that it does not hold up the rest.
func (f *follower) keep(object *client.Object) {
	made, err := copyOf(object)
	if err == nil {
		f.persist("Writing a copy", func() error {
			err := f.held.keep(f.ctx, f.source.Cluster, made)
			if errors.Is(err, rpctypes.ErrRequestTooLarge) || errors.Is(err, rpctypes.ErrGRPCRequestTooLarge) {
				klog.FromContext(f.ctx).Error(err, "What another shard offers is too large to be copied", "object", object.Key)
				return nil
			}
			return err
		})
		return
	}
	klog.FromContext(f.ctx).Error(err, "What another shard offers cannot be copied", "object", object.Key)
}

// copyOf returns an object as it is stored here. Who manages which of its fields nobody needs who cannot write it.
func copyOf(object *client.Object) (*crdstorage.Object, error) {
	whole, err := object.Unstructured()
	if err != nil {
		return nil, err
	}
	whole.SetResourceVersion("")
	whole.SetManagedFields(nil)
	annotations := whole.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[logicalcluster.AnnotationKey] = object.Cluster.String()
	whole.SetAnnotations(annotations)
	data, err := json.Marshal(whole.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", object.Key, err)
	}
	return crdstorage.NewObject(data, 0)
}
