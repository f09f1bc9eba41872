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
	// pageSize is how many objects are looked at in one read.
	pageSize = 500
	// retryInterval is how long to wait for a server that is busy.
	retryInterval = 100 * time.Millisecond
)

// errUnfinished says that there is more to do, in another turn.
var errUnfinished = errors.New("more objects are to be labelled")

// relabel brings all objects of some resources of the context's logical cluster in line with its claims.
func (l *labeler) relabel(ctx context.Context, resources []schema.GroupResource) error {
	deleting, err := l.isClusterDeleting(ctx)
	if deleting || err != nil {
		return err
	}
	until := time.Now().Add(maxRunTime)
	var errs []error
	for _, gr := range resources {
		resource, err := l.cfg.Registry.For(ctx, gr)
		if err != nil {
			return err
		}
		if resource == nil {
			continue // reviews are never stored; and what is not served here has no objects
		}
		pass := &relabeler{labeler: l, resource: resource, until: until}
		if err := pass.run(ctx); err != nil {
			if errors.Is(err, errUnfinished) {
				return err
			}
			errs = append(errs, fmt.Errorf("%s: %w", gr, err))
		}
	}
	return errors.Join(errs...)
}

// relabeler is one look at all objects of a resource.
type relabeler struct {
	*labeler
	resource *storage.Resource
	until    time.Time

	mu     sync.Mutex
	failed map[target]error
}

// run returns errUnfinished when time is up, or what kept objects from being labelled.
func (p *relabeler) run(ctx context.Context) error {
	next := ""
	for {
		if time.Now().After(p.until) {
			return errUnfinished
		}
		page, rest, err := p.listOutdated(ctx, next)
		switch {
		case apierrors.IsResourceExpired(err):
			return errUnfinished // the list took too long to be one; what was done stays done
		case err != nil:
			return fmt.Errorf("listing: %w", err)
		}
		if err := p.touchAll(ctx, page); err != nil {
			return err
		}
		if next = rest; next == "" {
			break
		}
	}
	return p.summary()
}

// summary speaks of one object only, the same one each time, since a condition shows it.
func (p *relabeler) summary() error {
	if len(p.failed) == 0 {
		return nil
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(p.failed)), func(a, b target) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return fmt.Errorf("%d objects failed, such as %s: %w", len(p.failed), types.NamespacedName{Namespace: first.namespace, Name: first.name}, p.failed[first])
}

// listOutdated returns some objects whose labels are not right, and where to go on.
func (p *relabeler) listOutdated(ctx context.Context, from string) (outdated []target, next string, err error) {
	gr := p.resource.GVR.GroupResource()
	scoped := request.WithNamespace(request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: gr.Group, Resource: gr.Resource}), "")
	list, err := p.resource.Store.List(scoped, &internalversion.ListOptions{Limit: pageSize, Continue: from})
	if err != nil {
		return nil, "", err
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		object, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		isOutdated, err := p.labelsOutdated(ctx, gr, object)
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

// target is an object to touch.
type target struct{ namespace, name string }

// touchAll touches objects, some at a time.
func (p *relabeler) touchAll(ctx context.Context, targets []target) error {
	work := make(chan target)
	var workers sync.WaitGroup
	for range min(touchConcurrency, len(targets)) {
		workers.Go(func() {
			for one := range work {
				if err := p.touch(ctx, one); err != nil {
					p.recordFailure(one, err)
				}
			}
		})
	}
	finish := func() {
		close(work)
		workers.Wait()
	}
	defer finish()
	for _, one := range targets {
		if time.Now().After(p.until) {
			return errUnfinished
		}
		select {
		case work <- one:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// touch touches one object, again while the server is busy: webhooks of the workspace let in few of the shard's own
// requests at a time.
func (p *relabeler) touch(ctx context.Context, one target) error {
	for {
		err := touch(ctx, p.cfg.Objects, p.resource.GVR, one)
		busy := apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err)
		if !busy || time.Now().After(p.until) {
			return err
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *relabeler) recordFailure(one target, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = map[target]error{}
	}
	p.failed[one] = err
}

// touch sends an object through admission without asking for any change. One that has gone needs no labels.
func touch(ctx context.Context, objects metadata.Interface, resource schema.GroupVersionResource, one target) error {
	_, err := objects.Resource(resource).Namespace(one.namespace).Patch(ctx, one.name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
