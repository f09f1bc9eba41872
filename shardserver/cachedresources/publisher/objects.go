package publisher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/cachedresources"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// writers is the number of concurrent writes of one ClusterCachedResource.
const writers = 4

// step is an operation on one object in the cache.
type step int

const (
	leave step = iota
	write
	remove
)

// plan compares the selected objects with those in the cache, by name. Objects that are being deleted stay as they are
// until they have no finalizers.
func plan(objects []crdstorage.Object, published map[string]publishedObject) map[string]step {
	steps := make(map[string]step, len(objects))
	for i := range objects {
		object := &objects[i]
		current, exists := published[object.GetName()]
		switch {
		case object.GetDeletionTimestamp() != nil:
			if len(object.GetFinalizers()) > 0 {
				steps[object.GetName()] = leave
			}
		case !exists || current.original != (original{string(object.GetUID()), object.GetResourceVersion()}):
			steps[object.GetName()] = write
		default:
			steps[object.GetName()] = leave
		}
	}
	for name := range published {
		if _, selected := steps[name]; !selected {
			steps[name] = remove
		}
	}
	return steps
}

// syncObjects writes and deletes objects as planned, and then publishes the completeness marker.
func (p *Publisher) syncObjects(ctx context.Context, state *publishedState, cachedResource *cachev1alpha1.ClusterCachedResource, resource *storage.Resource) error {
	objects, err := list(ctx, resource, cachedresources.Selector(cachedResource))
	if err != nil {
		return err
	}
	steps := plan(objects, state.objects)
	var mu sync.Mutex // guards state.objects and failed
	var failed []error
	var writing sync.WaitGroup
	slots := make(chan struct{}, writers)
	for i := range objects {
		object := &objects[i]
		if steps[object.GetName()] != write || ctx.Err() != nil {
			continue
		}
		slots <- struct{}{}
		mu.Lock() // other writes are in progress
		current, exists := state.objects[object.GetName()]
		mu.Unlock()
		writing.Go(func() {
			defer func() { <-slots }()
			written, err := p.write(ctx, state, object, current, exists)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				state.record(written)
			case client.IsRefused(err):
				// Retrying would block all others forever. The counts in the status of the ClusterCachedResource show that it is
				// missing.
				klog.FromContext(ctx).Error(err, "Failed to publish an object of a cached resource", "resource", state.resource, "cluster", state.cluster, "name", object.GetName())
			default:
				failed = append(failed, err)
			}
		})
	}
	writing.Wait()
	for name, step := range steps {
		if step != remove {
			continue
		}
		if err := p.delete(ctx, state, p.key(state, name), state.objects[name].uid); err != nil {
			failed = append(failed, err)
			continue
		}
		delete(state.objects, name)
	}
	if err := errors.Join(append(failed, ctx.Err())...); err != nil {
		return err
	}
	return p.ensureCompleteMarker(ctx, state)
}

// list returns the selected objects of the logical cluster of the context from the watch cache.
func list(ctx context.Context, resource *storage.Resource, selector labels.Selector) ([]crdstorage.Object, error) {
	gr := resource.GVR.GroupResource()
	ctx = request.WithNamespace(request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: gr.Group, Resource: gr.Resource}), "")
	found, err := resource.Store.List(ctx, &internalversion.ListOptions{LabelSelector: selector, ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", gr, err)
	}
	objects, ok := found.(*crdstorage.List)
	if !ok {
		return nil, fmt.Errorf("listing %s: got %T", gr, found)
	}
	return objects.Items, nil
}

// write creates or replaces one object in the cache.
func (p *Publisher) write(ctx context.Context, state *publishedState, object *crdstorage.Object, current publishedObject, exists bool) (*client.Object, error) {
	content, err := p.newPublishedObject(ctx, state, object)
	if err != nil {
		return nil, err
	}
	if exists && current.original.uid == content.GetAnnotations()[client.OriginalUIDAnnotation] {
		content.SetResourceVersion(current.resourceVersion)
		content.SetUID(current.uid)
		return p.cfg.Cache.Update(ctx, state.resource, state.cluster, content)
	}
	if exists { // a recreated object must not keep the UID and age of the previous one
		if err := p.delete(ctx, state, p.key(state, object.GetName()), current.uid); err != nil {
			return nil, err
		}
	}
	return p.cfg.Cache.Create(ctx, state.resource, state.cluster, content)
}

// newPublishedObject returns the object to publish, in the published version, annotated with its origin.
func (p *Publisher) newPublishedObject(ctx context.Context, state *publishedState, object *crdstorage.Object) (*unstructured.Unstructured, error) {
	content, err := object.Unstructured()
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", object.GetName(), err)
	}
	if content.GroupVersionKind().Version != state.resource.Version {
		gvr := state.resource
		gvr.Resource, _, _ = strings.Cut(gvr.Resource, ":")
		if content, err = p.cfg.Objects.Resource(gvr).Get(ctx, object.GetName(), metav1.GetOptions{}); err != nil {
			return nil, fmt.Errorf("reading %q as %s: %w", object.GetName(), gvr.GroupVersion(), err)
		}
	}
	annotations := content.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	for _, key := range []string{client.ViaAnnotation, client.DownAnnotation, client.ReachAnnotation} {
		delete(annotations, key) // tenants cannot set it
	}
	annotations[client.ShardAnnotation] = p.cfg.Shard
	annotations[logicalcluster.AnnotationKey] = state.cluster.String()
	annotations[client.OriginalUIDAnnotation] = string(content.GetUID())
	annotations[client.OriginalResourceVersionAnnotation] = content.GetResourceVersion()
	content.SetAnnotations(annotations)
	content.SetResourceVersion("")
	return content, nil
}
