package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
)

// writers is the number of concurrent writes of a list.
const writers = 8

// eventHandler writes what the reflector of a source receives. It implements client.EventHandler. It blocks the
// reflector while it writes to etcd.
type eventHandler struct {
	ctx     context.Context // the lifetime of the reflector
	source  Source
	storage *writer
	// missing are replicas that are not in the cache. They are deleted when the shard reports that the source is
	// complete: an emptied cache is refilled gradually.
	missing map[string]bool
}

// OnReplace applies a list.
func (e *eventHandler) OnReplace(objects []*client.Object, _ client.Position) {
	var stored map[string]original
	e.retry("Listing replicas", func() (err error) {
		stored, err = e.storage.listOriginals(e.ctx, e.source.Cluster)
		return err
	})
	e.missing = make(map[string]bool, len(stored))
	for name := range stored {
		e.missing[name] = true
	}
	complete := false
	var writing sync.WaitGroup
	slots := make(chan struct{}, writers)
	for _, object := range objects {
		if e.isComplete(object) {
			complete = true
			continue
		}
		if !e.trusts(object) {
			continue
		}
		delete(e.missing, object.Name)
		if origin := originalOf(object.Meta.Annotations, object.APIVersion); origin.isSet() && stored[object.Name] == origin {
			continue
		}
		slots <- struct{}{}
		writing.Go(func() {
			defer func() { <-slots }()
			e.write(object)
		})
	}
	writing.Wait()
	if complete {
		e.finishReplace()
	}
}

// OnEvent applies one change.
func (e *eventHandler) OnEvent(change watch.EventType, object *client.Object, _ client.Position) {
	switch {
	case object == nil: // a bookmark
	case e.isComplete(object):
		if change != watch.Deleted {
			e.finishReplace()
		}
	case !e.trusts(object):
	case change == watch.Deleted:
		delete(e.missing, object.Name)
		e.retry("Deleting a replica", func() error { return e.storage.delete(e.ctx, e.source.Cluster, object.Name) })
	default:
		delete(e.missing, object.Name)
		e.write(object)
	}
}

// OnConnect implements client.EventHandler.
func (e *eventHandler) OnConnect() {}

// OnDisconnect implements client.EventHandler. The replica informer logs outages of the cache.
func (e *eventHandler) OnDisconnect(err error) {
	klog.FromContext(e.ctx).V(2).Info("Failed to watch a cached resource of another shard, will retry", "resource", e.source.Resource, "cluster", e.source.Cluster, "shard", e.source.Shard, "err", err)
}

// isComplete returns whether an object is the completeness marker of the source.
func (e *eventHandler) isComplete(object *client.Object) bool {
	return object.Key == client.CompleteKey(e.source.Shard, e.source.Cluster)
}

// trusts returns whether an object can belong to the source.
func (e *eventHandler) trusts(object *client.Object) bool {
	return object.Shard == e.source.Shard && object.Cluster == e.source.Cluster && object.Namespace == "" &&
		object.APIVersion == e.source.Resource.GroupVersion().String() && len(content.IsPathSegmentName(object.Name)) == 0
}

// finishReplace deletes the missing replicas and marks the rest as complete.
func (e *eventHandler) finishReplace() {
	for name := range e.missing {
		e.retry("Deleting a replica", func() error { return e.storage.delete(e.ctx, e.source.Cluster, name) })
	}
	e.missing = nil
	e.retry("Marking replicas as complete", func() error { return e.storage.putCompleteMarker(e.ctx, e.source) })
}

func (e *eventHandler) retry(operation string, fn func() error) {
	retry(e.ctx, operation, e.source, fn)
}

// write writes a replica. Objects that can never be stored are skipped, so that they do not block others.
func (e *eventHandler) write(object *client.Object) {
	replica, err := newReplica(object)
	if err == nil {
		e.retry("Writing a replica", func() error {
			err := e.storage.put(e.ctx, e.source.Cluster, replica)
			if apierrors.IsRequestEntityTooLargeError(err) {
				klog.FromContext(e.ctx).Error(err, "A cached resource of another shard is too large to be replicated", "object", object.Key)
				return nil
			}
			return err
		})
		return
	}
	klog.FromContext(e.ctx).Error(err, "Failed to replicate a cached resource of another shard", "object", object.Key)
}

// newReplica returns an object as this shard stores it, without managed fields: replicas are read-only.
func newReplica(object *client.Object) (*crdstorage.Object, error) {
	u, err := object.Unstructured()
	if err != nil {
		return nil, err
	}
	u.SetResourceVersion("")
	u.SetManagedFields(nil)
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[logicalcluster.AnnotationKey] = object.Cluster.String()
	u.SetAnnotations(annotations)
	data, err := json.Marshal(u.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", object.Key, err)
	}
	return crdstorage.NewObject(data, 0)
}
