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

// The watch cache ends watches whose readers are too slow, and at the beginning of a watch it copies every object. With
// many large objects a new watch with initial events would be too slow again. Therefore existing objects are listed,
// which copies nothing, and a watch that ended is resumed at its last resource version.

// resumeAfter is the delay before a watch without events is resumed.
const resumeAfter = 50 * time.Millisecond

// resumed is a watch with initial events that is resumed when the underlying watch ends.
type resumed struct {
	*stream
	store Store
	// list has the existing objects until they were sent.
	list runtime.Object
	// version is the resource version of the last event that was sent.
	version string
	// convert converts events of the watch cache to events of the reader.
	convert func(watch.Event) watch.Event
}

// watchAll lists the objects of a store in all logical clusters and watches from the resource version of the list.
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

// run sends all events until the context ends or the watch cannot be resumed.
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

// errNobody is the error of sending to a stopped watch.
var errNobody = errors.New("the watch was stopped")

// begin sends the existing objects and the bookmark after them. The objects are shared with the watch cache.
func (r *resumed) begin(ctx context.Context) error {
	// EachListItemWithAlloc copies the outermost struct of each object: otherwise one object that a reader retains
	// would retain the whole list.
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

// follow sends changes until the watch cache ends the watch. It returns an error if resuming cannot succeed, for
// example because changes since the version are not available.
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

// fail sends the error that ends the watch, unless the reader stopped it.
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
