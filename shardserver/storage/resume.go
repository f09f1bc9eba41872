package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// The watch cache ends the watch of whoever does not read fast enough, and at the beginning of a watch it copies every
// object. On a busy shard with many large objects one leads to the other: the watch that begins anew is too slow again.
// So what exists is listed, which copies nothing, and a watch that was ended goes on where it was.

// resumeAfter is how long to wait before a watch that brought nothing is resumed.
const resumeAfter = 50 * time.Millisecond

// resumed is a watch of everything that survives the end of those it is made of.
type resumed struct {
	*stream
	store Store
	// list is what exists, until it was handed on.
	list runtime.Object
	// version is what was handed on so far.
	version string
	// convert makes of what the watch cache sends what readers get.
	convert func(watch.Event) watch.Event
}

// watchAll lists what a store has in all logical clusters and follows it from there.
func watchAll(ctx context.Context, resource *Resource, convert func(watch.Event) watch.Event) (watch.Interface, error) {
	ctx = scoped(logicalcluster.With(ctx, logicalcluster.Wildcard), resource.GVR.GroupResource(), "")
	list, err := resource.Store.List(ctx, &internalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", resource.Prefix, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &resumed{
		stream:  &stream{events: make(chan watch.Event), cancel: cancel},
		store:   resource.Store,
		list:    list,
		version: accessor.GetResourceVersion(),
		convert: convert,
	}
	go func() {
		defer close(r.events)
		defer cancel()
		r.run(ctx)
	}()
	return r, nil
}

// run hands on everything until the context ends or a watch cannot go on.
func (r *resumed) run(ctx context.Context) {
	if err := r.begin(ctx); err != nil {
		r.fail(ctx, err)
		return
	}
	for ctx.Err() == nil {
		before := r.version
		if err := r.follow(ctx); err != nil {
			r.fail(ctx, err)
			return
		}
		if r.version != before {
			continue
		}
		select {
		case <-time.After(resumeAfter):
		case <-ctx.Done():
		}
	}
}

// errNobody says that nobody reads any more.
var errNobody = errors.New("the watch was stopped")

// begin hands on what exists, and the bookmark after it. The objects are shared with the watch cache.
func (r *resumed) begin(ctx context.Context) error {
	// Copies of the outermost level: else one object that a reader keeps would keep all others.
	err := meta.EachListItemWithAlloc(r.list, func(obj runtime.Object) error {
		if !r.send(ctx, watch.Event{Type: watch.Added, Object: obj}) {
			return errNobody
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.list = nil
	end := initialEventsEnd()
	end.Object.(metav1.Object).SetResourceVersion(r.version)
	if !r.send(ctx, end) {
		return errNobody
	}
	return nil
}

// follow hands on changes until the watch cache ends the watch. An error is what going on would not mend, for example
// that changes since the version are no longer known.
func (r *resumed) follow(ctx context.Context) error {
	changes, err := r.store.Watch(ctx, &internalversion.ListOptions{ResourceVersion: r.version, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer changes.Stop()
	for event := range changes.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		object, err := meta.Accessor(event.Object)
		if err != nil {
			return fmt.Errorf("a watch brought %T: %w", event.Object, err)
		}
		version := object.GetResourceVersion()
		if !r.send(ctx, r.convert(event)) {
			return errNobody
		}
		r.version = version
	}
	return nil
}

// fail tells readers why the watch ends, unless they ended it.
func (r *resumed) fail(ctx context.Context, err error) {
	if errors.Is(err, errNobody) || ctx.Err() != nil {
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	tell := status.Status()
	r.send(ctx, watch.Event{Type: watch.Error, Object: &tell})
}
