// Package content deletes all objects of a namespace or of a logical cluster, resource by resource, through the shard's
// API. It lists from the watch cache and sends requests only for objects that exist, because most resources have none.
package content

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/metadata"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Consistent lists wait for the watch cache, so many run concurrently; delete requests cost the server work.
const (
	parallelLists   = 32
	parallelDeletes = 8
	// fewDeletes are deleted at once: each waits for etcd, and most resources of a logical cluster have no more objects.
	fewDeletes = 4
	// maxDeletesPerCall bounds the deletions of one resource per call, because workers are shared by all tenants.
	maxDeletesPerCall = 500
)

// Resource versions of a list: any version from the watch cache, or a consistent one.
const (
	Cached = "0"
	Latest = ""
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// Remaining counts the objects that remain after a deletion, per resource and per finalizer.
type Remaining struct {
	mu         sync.Mutex
	Resources  map[string]int
	Finalizers map[string]int
	since      time.Time
}

func NewRemaining() *Remaining {
	return &Remaining{Resources: map[string]int{}, Finalizers: map[string]int{}}
}

func (r *Remaining) Empty() bool { return len(r.Resources) == 0 }

// Count adds a remaining object with its deletion timestamp, which is zero if it is not being deleted.
func (r *Remaining) Count(resource schema.GroupResource, finalizers []string, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Resources[resource.String()]++
	for _, finalizer := range finalizers {
		r.Finalizers[finalizer]++
	}
	if !since.IsZero() && (r.since.IsZero() || since.Before(r.since)) {
		r.since = since
	}
}

// Since returns the earliest deletion timestamp of the remaining objects; zero if none is being deleted.
func (r *Remaining) Since() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since
}

// add counts a remaining object.
func (r *Remaining) add(resource schema.GroupResource, object metav1.Object) {
	var since time.Time
	if deleted := object.GetDeletionTimestamp(); deleted != nil {
		since = deleted.Time
	}
	r.Count(resource, object.GetFinalizers(), since)
}

// String returns the message of the condition WorkspaceContentDeleted. Equal counts have equal messages.
func (r *Remaining) String() string {
	counts := func(of map[string]int, format string) string {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(of)) {
			parts = append(parts, fmt.Sprintf(format, name, of[name]))
		}
		return strings.Join(parts, ", ")
	}
	text := "Some resources are remaining: " + counts(r.Resources, "%s has %d resource instances")
	if len(r.Finalizers) > 0 {
		text += "; Some content in the logical cluster has finalizers remaining: " + counts(r.Finalizers, "%s in %d resource instances")
	}
	return text
}

// Delete deletes all objects of the resources in the logical cluster of the context, or in one of its namespaces. It
// returns the objects that remain because of finalizers or because the bound of one call is reached. All resources are
// processed even if one fails; the first error is returned. Lists of the watch cache may contain objects that the caller has
// deleted: gone has their UIDs.
func Delete(ctx context.Context, client metadata.Interface, resources []*storage.Resource, namespace, resourceVersion string, gone sets.Set[types.UID]) (*Remaining, error) {
	left := NewRemaining()
	var running errgroup.Group
	running.SetLimit(parallelLists)
	for _, resource := range resources {
		if resourceVersion == Cached { // fast, and nearly all are empty: a goroutine would cost more
			objects, err := List(ctx, resource, namespace, resourceVersion)
			objects = slices.DeleteFunc(objects, func(object metav1.Object) bool { return gone.Has(object.GetUID()) })
			if err != nil || len(objects) > 0 {
				running.Go(func() error { return deleteListed(ctx, client, resource, objects, err, left) })
			}
			continue
		}
		running.Go(func() error {
			objects, err := List(ctx, resource, namespace, resourceVersion)
			return deleteListed(ctx, client, resource, objects, err, left)
		})
	}
	return left, running.Wait()
}

// deleteListed deletes the objects of a list, unless listing failed.
func deleteListed(ctx context.Context, client metadata.Interface, resource *storage.Resource, objects []metav1.Object, err error, left *Remaining) error {
	if err != nil || len(objects) == 0 {
		return err
	}
	return deleteObjects(ctx, client, resource, objects, left)
}

// deleteObjects deletes objects of one resource: few of them concurrently, of many the first alone. If an admission webhook
// of the tenant hangs, only few requests wait for it. After a failure the others remain until the next call.
func deleteObjects(ctx context.Context, client metadata.Interface, resource *storage.Resource, objects []metav1.Object, left *Remaining) error {
	name := resource.GVR.GroupResource()
	var failed atomic.Bool
	try := func(object metav1.Object) error {
		if failed.Load() {
			left.add(name, object)
			return nil
		}
		gone, err := deleteOne(ctx, client, resource, object)
		if !gone {
			left.add(name, object)
		}
		if err != nil {
			failed.Store(true)
		}
		return err
	}
	var deletes errgroup.Group
	deletes.SetLimit(parallelDeletes)
	tried := 0
	for _, object := range objects {
		if object.GetDeletionTimestamp() != nil || tried == maxDeletesPerCall {
			left.add(name, object)
			continue
		}
		tried++
		if tried == 1 && len(objects) > fewDeletes {
			deletes.Go(func() error { return try(object) })
			_ = deletes.Wait() // the group keeps the error
			continue
		}
		deletes.Go(func() error { return try(object) })
	}
	return deletes.Wait()
}

// KeyCounter counts keys in etcd, below all caches.
type KeyCounter interface {
	// CountIn returns the number of objects of each of the resources in the context's logical cluster, or in one of its
	// namespaces. It needs one etcd request for many resources, instead of one consistent list for each.
	CountIn(ctx context.Context, resources []*storage.Resource, namespace string) ([]int64, error)
}

// FindEmpty returns for each resource whether it has no objects in the namespace, or in the whole logical cluster if
// namespace is "". It reads etcd.
func FindEmpty(ctx context.Context, keys KeyCounter, resources []*storage.Resource, namespace string) (map[schema.GroupVersionResource]bool, error) {
	counts, err := keys.CountIn(ctx, resources, namespace)
	if err != nil {
		return nil, err
	}
	empty := make(map[schema.GroupVersionResource]bool, len(resources))
	for i, resource := range resources {
		empty[resource.GVR] = counts[i] == 0
	}
	return empty, nil
}

// stopped is what the error of a watch cache says that was stopped: the definition of the resource was deleted since the resources were
// listed, as by a deletion before. The error has no type.
const stopped = "cacher is stopped"

// List returns the objects of a resource. A resource that is gone is a Conflict, which controllers repeat without an error in the log: the next
// list of resources does not have it.
func List(ctx context.Context, resource *storage.Resource, namespace, resourceVersion string) ([]metav1.Object, error) {
	found, err := resource.Store.List(request.WithNamespace(ctx, namespace), &internalversion.ListOptions{ResourceVersion: resourceVersion})
	if err != nil && strings.Contains(err.Error(), stopped) {
		return nil, apierrors.NewConflict(resource.GVR.GroupResource(), "", err)
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", resource.GVR.GroupResource(), err)
	}
	var objects []metav1.Object
	err = meta.EachListItem(found, func(obj runtime.Object) error {
		object, err := meta.Accessor(obj)
		objects = append(objects, object)
		return err
	})
	return objects, err
}

// deleteOne deletes one object that is not being deleted yet. It returns false if the object remains because of
// finalizers or of its content.
func deleteOne(ctx context.Context, client metadata.Interface, resource *storage.Resource, object metav1.Object) (gone bool, err error) {
	remains := len(object.GetFinalizers()) > 0 || resource.GVR.GroupResource() == namespaces
	background, uid := metav1.DeletePropagationBackground, object.GetUID()
	err = client.Resource(resource.GVR).Namespace(object.GetNamespace()).Delete(ctx, object.GetName(), metav1.DeleteOptions{
		PropagationPolicy: &background,
		Preconditions:     &metav1.Preconditions{UID: &uid},
	})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsConflict(err): // another object has the name now; the next call deletes it
		return false, nil
	case err != nil:
		return false, fmt.Errorf("deleting %s %q: %w", resource.GVR.GroupResource(), object.GetName(), err)
	}
	return !remains, nil
}
