package tenancy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// parallel is how many requests one deletion has under way at once.
const parallel = 8

// Resource versions of a list: what the watch cache has, or what a client would see.
const (
	cached = "0"
	latest = ""
)

// content deletes what is in the logical cluster of the context, through the API, resource by resource.
type content struct {
	registry *storage.Registry
	metadata metadata.Interface
}

// remains counts what a deletion left: objects per resource, and objects per finalizer that holds them.
type remains struct {
	mu         sync.Mutex
	resources  map[string]int
	finalizers map[string]int
}

func newRemains() *remains {
	return &remains{resources: map[string]int{}, finalizers: map[string]int{}}
}

func (r *remains) none() bool { return len(r.resources) == 0 }

func (r *remains) add(resource string, finalizers []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resources[resource]++
	for _, finalizer := range finalizers {
		r.finalizers[finalizer]++
	}
}

// String is the message of the condition WorkspaceContentDeleted. It is the same for the same counts.
func (r *remains) String() string {
	counts := func(of map[string]int, format string) string {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(of)) {
			parts = append(parts, fmt.Sprintf(format, name, of[name]))
		}
		return strings.Join(parts, ", ")
	}
	text := "Some resources are remaining: " + counts(r.resources, "%s has %d resource instances")
	if len(r.finalizers) > 0 {
		text += "; Some content in the logical cluster has finalizers remaining: " + counts(r.finalizers, "%s in %d resource instances")
	}
	return text
}

// delete deletes all objects of the resources and returns what did not go at once. Every deletion is tried even if one
// fails; the first error is returned.
func (c *content) delete(ctx context.Context, resources []*storage.Resource, resourceVersion string) (*remains, error) {
	left := newRemains()
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, resource := range resources {
		group.Go(func() error { return c.deleteAll(ctx, resource, resourceVersion, left) })
	}
	return left, group.Wait()
}

func (c *content) deleteAll(ctx context.Context, resource *storage.Resource, resourceVersion string, left *remains) error {
	list, err := resource.Store.List(ctx, &internalversion.ListOptions{ResourceVersion: resourceVersion})
	if err != nil {
		return fmt.Errorf("listing %s: %w", resource.GVR.GroupResource(), err)
	}
	if meta.LenList(list) == 0 {
		return nil
	}
	var group errgroup.Group
	group.SetLimit(parallel)
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		object, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		group.Go(func() error {
			gone, err := c.deleteOne(ctx, resource, object)
			if !gone {
				left.add(resource.GVR.GroupResource().String(), object.GetFinalizers())
			}
			return err
		})
		return nil
	})
	if waited := group.Wait(); err == nil {
		err = waited
	}
	return err
}

// deleteOne deletes one object unless that is under way. It tells whether the object is gone, rather than held by
// finalizers or by what it contains.
func (c *content) deleteOne(ctx context.Context, resource *storage.Resource, object metav1.Object) (gone bool, err error) {
	held := len(object.GetFinalizers()) > 0 || resource.GVR.GroupResource() == namespaces
	if object.GetDeletionTimestamp() != nil {
		return false, nil
	}
	background, uid := metav1.DeletePropagationBackground, object.GetUID()
	err = c.metadata.Resource(resource.GVR).Namespace(object.GetNamespace()).Delete(ctx, object.GetName(), metav1.DeleteOptions{
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
