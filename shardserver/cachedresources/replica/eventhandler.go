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
func (f *eventHandler) OnReplace(objects []*client.Object, _ client.Position) {
	var stored map[string]original
	f.retry("Listing replicas", func() (err error) {
		stored, err = f.storage.listOriginals(f.ctx, f.source.Cluster)
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
		if !f.trusts(object) {
			continue
		}
		delete(f.missing, object.Name)
		if origin := originalOf(object.Meta.Annotations, object.APIVersion); origin.isSet() && stored[object.Name] == origin {
			continue
		}
		slots <- struct{}{}
		writing.Go(func() {
			defer func() { <-slots }()
			f.write(object)
		})
	}
	writing.Wait()
	if complete {
		f.finishReplace()
	}
}

// OnEvent applies one change.
func (f *eventHandler) OnEvent(change watch.EventType, object *client.Object, _ client.Position) {
	switch {
	case object == nil: // a bookmark
	case f.isComplete(object):
		if change != watch.Deleted {
			f.finishReplace()
		}
	case !f.trusts(object):
	case change == watch.Deleted:
		delete(f.missing, object.Name)
		f.retry("Deleting a replica", func() error { return f.storage.delete(f.ctx, f.source.Cluster, object.Name) })
	default:
		delete(f.missing, object.Name)
		f.write(object)
	}
}

// OnConnect implements client.EventHandler.
func (f *eventHandler) OnConnect() {}

// OnDisconnect implements client.EventHandler. The replica informer logs outages of the cache.
func (f *eventHandler) OnDisconnect(err error) {
	klog.FromContext(f.ctx).V(2).Info("Watching a cached resource of another shard failed, will retry", "resource", f.source.Resource, "cluster", f.source.Cluster, "shard", f.source.Shard, "reason", err)
}

// isComplete returns whether an object is the completeness marker of the source.
func (f *eventHandler) isComplete(object *client.Object) bool {
	return object.Key == client.CompleteKey(f.source.Shard, f.source.Cluster)
}

// trusts returns whether an object can belong to the source.
func (f *eventHandler) trusts(object *client.Object) bool {
	return object.Shard == f.source.Shard && object.Cluster == f.source.Cluster && object.Namespace == "" &&
		object.APIVersion == f.source.Resource.GroupVersion().String() && len(content.IsPathSegmentName(object.Name)) == 0
}

// finishReplace deletes the missing replicas and marks the rest as complete.
func (f *eventHandler) finishReplace() {
	for name := range f.missing {
		f.retry("Deleting a replica", func() error { return f.storage.delete(f.ctx, f.source.Cluster, name) })
	}
	f.missing = nil
	f.retry("Marking replicas as complete", func() error { return f.storage.putCompleteMarker(f.ctx, f.source) })
}

func (f *eventHandler) retry(operation string, fn func() error) {
	retry(f.ctx, operation, f.source, fn)
}

// write writes a replica. Objects that can never be stored are skipped, so that they do not block others.
func (f *eventHandler) write(object *client.Object) {
	replica, err := newReplica(object)
	if err == nil {
		f.retry("Writing a replica", func() error {
			err := f.storage.put(f.ctx, f.source.Cluster, replica)
			if apierrors.IsRequestEntityTooLargeError(err) {
				klog.FromContext(f.ctx).Error(err, "A cached resource of another shard is too large to be replicated", "object", object.Key)
				return nil
			}
			return err
		})
		return
	}
	klog.FromContext(f.ctx).Error(err, "Replicating a cached resource of another shard failed", "object", object.Key)
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
