// Package content deletes what a namespace or a whole logical cluster holds, resource by resource, through the shard's
// API. It reads the watch cache first and sends requests only for objects that exist: most resources hold nothing.
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
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/metadata"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// A list from storage waits up to a tenth of a second for the watch cache to catch up, so resources are listed side by
// side then; requests that delete cost the server work.
const (
	parallelLists   = 32
	parallelDeletes = 8
	// deletesPerPass bounds what one call deletes of a resource. The workers that call it are shared by all tenants: who
	// deletes a hundred thousand objects takes turns with the others.
	deletesPerPass = 500
)

// Resource versions of a list: what the watch cache has at once, or what a client would see.
const (
	Cached = "0"
	Latest = ""
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// Remains counts what a deletion left: objects per resource, and objects per finalizer that holds them.
type Remains struct {
	mu         sync.Mutex
	Resources  map[string]int
	Finalizers map[string]int
	since      time.Time
}

func NewRemains() *Remains {
	return &Remains{Resources: map[string]int{}, Finalizers: map[string]int{}}
}

func (r *Remains) None() bool { return len(r.Resources) == 0 }

// Count adds an object that is left, which has been going since then; zero if it does not go yet.
func (r *Remains) Count(resource schema.GroupResource, finalizers []string, since time.Time) {
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

// Since returns when the first of what is left began to be deleted; zero if nothing of it did, or nothing is left.
func (r *Remains) Since() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since
}

// add counts an object that is left, as it was read.
func (r *Remains) add(resource schema.GroupResource, object metav1.Object) {
	var since time.Time
	if began := object.GetDeletionTimestamp(); began != nil {
		since = began.Time
	}
	r.Count(resource, object.GetFinalizers(), since)
}

// String is the message of the condition WorkspaceContentDeleted. It is the same for the same counts.
func (r *Remains) String() string {
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

// Delete deletes all objects of the resources in the logical cluster of the context, or in one of its namespaces, and
// returns what did not go at once, what one call leaves for the next one among it. Every resource is tried even if one
// fails; the first error is returned.
func Delete(ctx context.Context, client metadata.Interface, resources []*storage.Resource, namespace, resourceVersion string) (*Remains, error) {
	left := NewRemains()
	var running errgroup.Group
	running.SetLimit(parallelLists)
	for _, resource := range resources {
		if resourceVersion == Cached { // nearly all are empty, and known at once
			objects, err := list(ctx, resource, namespace, resourceVersion)
			if err != nil || len(objects) > 0 {
				running.Go(func() error { return deleteListed(ctx, client, resource, objects, err, left) })
			}
			continue
		}
		running.Go(func() error {
			objects, err := list(ctx, resource, namespace, resourceVersion)
			return deleteListed(ctx, client, resource, objects, err, left)
		})
	}
	return left, running.Wait()
}

// deleteListed deletes what a list found, if it did not fail.
func deleteListed(ctx context.Context, client metadata.Interface, resource *storage.Resource, objects []metav1.Object, err error, left *Remains) error {
	if err != nil || len(objects) == 0 {
		return err
	}
	return deleteAll(ctx, client, resource, objects, left)
}

// deleteAll deletes objects of one resource, one first and, if that went well, the others side by side: where a webhook
// of the tenant hangs, one request learns it. After a failure the rest is left to the next pass.
func deleteAll(ctx context.Context, client metadata.Interface, resource *storage.Resource, objects []metav1.Object, left *Remains) error {
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
		if object.GetDeletionTimestamp() != nil || tried == deletesPerPass {
			left.add(name, object)
			continue
		}
		tried++
		if tried == 1 {
			deletes.Go(func() error { return try(object) })
			_ = deletes.Wait() // its error stays with the group
			continue
		}
		deletes.Go(func() error { return try(object) })
	}
	return deletes.Wait()
}

// Keys counts what storage itself has, below all caches.
type Keys interface {
	// CountIn returns the number of objects of each of the resources in the context's logical cluster, or in one of its
	// namespaces. It is one request to storage for many resources, where consistent lists would be one for each.
	CountIn(ctx context.Context, resources []*storage.Resource, namespace string) ([]int64, error)
}

// Empty returns those of the resources that hold nothing in the namespace, or in the whole logical cluster if it is
// empty, as storage itself has it now.
func Empty(ctx context.Context, keys Keys, resources []*storage.Resource, namespace string) (map[schema.GroupVersionResource]bool, error) {
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

func list(ctx context.Context, resource *storage.Resource, namespace, resourceVersion string) ([]metav1.Object, error) {
	found, err := resource.Store.List(request.WithNamespace(ctx, namespace), &internalversion.ListOptions{ResourceVersion: resourceVersion})
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

// deleteOne deletes one object that is not being deleted yet. It tells whether the object is gone, rather than held by
// finalizers or by what it contains.
func deleteOne(ctx context.Context, client metadata.Interface, resource *storage.Resource, object metav1.Object) (gone bool, err error) {
	held := len(object.GetFinalizers()) > 0 || resource.GVR.GroupResource() == namespaces
	background, uid := metav1.DeletePropagationBackground, object.GetUID()
	err = client.Resource(resource.GVR).Namespace(object.GetNamespace()).Delete(ctx, object.GetName(), metav1.DeleteOptions{
		PropagationPolicy: &background,
		Preconditions:     &metav1.Preconditions{UID: &uid},
	})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsConflict(err): // another object has the name now; the next pass sees it
		return false, nil
	case err != nil:
		return false, fmt.Errorf("deleting %s %q: %w", resource.GVR.GroupResource(), object.GetName(), err)
	}
	return !held, nil
}
