package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/metadata"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// pageSize is the limit of list requests.
	pageSize = 500
	// retryInterval is the interval between patches of an object while the server is overloaded.
	retryInterval = 100 * time.Millisecond
)

// errUnfinished means that the run time is up and objects are left for the next reconciliation.
var errUnfinished = errors.New("more objects are to be labelled")

// relabel updates the claim labels of all objects of some resources in the context's logical cluster.
func (l *labeler) relabel(ctx context.Context, resources []schema.GroupResource) error {
	deleting, err := l.isClusterDeleting(ctx)
	if deleting || err != nil {
		return err
	}
	deadline := time.Now().Add(maxRunTime)
	var errs []error
	for _, gr := range resources {
		resource, err := l.cfg.Registry.Resolve(ctx, gr)
		if err != nil {
			return err
		}
		if resource == nil {
			continue // not stored (reviews) or not served: no objects
		}
		r := &relabeler{labeler: l, resource: resource, deadline: deadline}
		if err := r.run(ctx); err != nil {
			if errors.Is(err, errUnfinished) {
				return err
			}
			errs = append(errs, fmt.Errorf("%s: %w", gr, err))
		}
	}
	return errors.Join(errs...)
}

// relabeler updates the claim labels of all objects of one resource.
type relabeler struct {
	*labeler
	resource *storage.Resource
	deadline time.Time

	mu     sync.Mutex
	failed map[target]error
}

// run returns errUnfinished after the deadline, or why objects could not be labelled.
func (r *relabeler) run(ctx context.Context) error {
	next := ""
	for {
		if time.Now().After(r.deadline) {
			return errUnfinished
		}
		page, rest, err := r.listOutdated(ctx, next)
		switch {
		case apierrors.IsResourceExpired(err):
			return errUnfinished // the continue token expired
		case err != nil:
			return fmt.Errorf("listing: %w", err)
		}
		if err := r.touchAll(ctx, page); err != nil {
			return err
		}
		if next = rest; next == "" {
			break
		}
	}
	return r.failureSummary()
}

// failureSummary returns an error with the number of failures and the first failed object by name. It is stable, because it is
// shown in a condition.
func (r *relabeler) failureSummary() error {
	if len(r.failed) == 0 {
		return nil
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(r.failed)), func(a, b target) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return fmt.Errorf("%d objects failed, such as %s: %w", len(r.failed), types.NamespacedName{Namespace: first.namespace, Name: first.name}, r.failed[first])
}

// listOutdated lists one page and returns its objects with outdated labels and the continue token.
func (r *relabeler) listOutdated(ctx context.Context, from string) (outdated []target, next string, err error) {
	gr := r.resource.GVR.GroupResource()
	scoped := request.WithNamespace(request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: gr.Group, Resource: gr.Resource}), "")
	list, err := r.resource.Store.List(scoped, &internalversion.ListOptions{Limit: pageSize, Continue: from})
	if err != nil {
		return nil, "", err
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		object, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		isOutdated, err := r.areLabelsOutdated(ctx, gr, object)
		if isOutdated {
			outdated = append(outdated, target{object.GetNamespace(), object.GetName()})
		}
		return err
	})
	if err != nil {
		return nil, "", err
	}
	position, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", err
	}
	return outdated, position.GetContinue(), nil
}

// target identifies an object.
type target struct{ namespace, name string }

// touchAll touches objects with limited concurrency.
func (r *relabeler) touchAll(ctx context.Context, targets []target) error {
	queue := make(chan target)
	var workers sync.WaitGroup
	for range min(touchConcurrency, len(targets)) {
		workers.Go(func() {
			for item := range queue {
				if err := r.touch(ctx, item); err != nil {
					r.recordFailure(item, err)
				}
			}
		})
	}
	finish := func() {
		close(queue)
		workers.Wait()
	}
	defer finish()
	for _, item := range targets {
		if time.Now().After(r.deadline) {
			return errUnfinished
		}
		select {
		case queue <- item:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// touch touches one object and retries while the server is overloaded, because few internal requests at a time may call
// the webhooks of a workspace.
func (r *relabeler) touch(ctx context.Context, item target) error {
	for {
		err := touch(ctx, r.cfg.Objects, r.resource.GVR, item)
		retryable := apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err)
		if !retryable || time.Now().After(r.deadline) {
			return err
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *relabeler) recordFailure(item target, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = map[target]error{}
	}
	r.failed[item] = err
}

// touch sends an empty patch, so that admission sets the labels of an object. A missing object is no error.
func touch(ctx context.Context, objects metadata.Interface, resource schema.GroupVersionResource, item target) error {
	_, err := objects.Resource(resource).Namespace(item.namespace).Patch(ctx, item.name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
