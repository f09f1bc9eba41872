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

// resumeDelay is the delay before a watch without events is resumed.
const resumeDelay = 50 * time.Millisecond

// resumingWatch is a watch with initial events that is resumed when the underlying watch ends.
type resumingWatch struct {
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
	ctx = withRequestInfo(logicalcluster.With(ctx, logicalcluster.Wildcard), resource.GVR.GroupResource(), "")
	list, err := resource.Store.List(ctx, &internalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", resource.Prefix, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &resumingWatch{
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
func (r *resumingWatch) run(ctx context.Context) {
	if err := r.sendInitialEvents(ctx); err != nil {
		r.sendError(ctx, err)
		return
	}
	for ctx.Err() == nil {
		lastVersion := r.version
		if err := r.sendChanges(ctx); err != nil {
			r.sendError(ctx, err)
			return
		}
		if r.version != lastVersion {
			continue
		}
		select {
		case <-time.After(resumeDelay):
		case <-ctx.Done():
		}
	}
}

// errWatchStopped is the error of sending to a stopped watch.
var errWatchStopped = errors.New("the watch was stopped")

// sendInitialEvents sends the existing objects and the bookmark after them. The objects are shared with the watch cache.
func (r *resumingWatch) sendInitialEvents(ctx context.Context) error {
	// EachListItemWithAlloc copies the outermost struct of each object: otherwise one object that a reader retains
	// would retain the whole list.
	err := meta.EachListItemWithAlloc(r.list, func(obj runtime.Object) error {
		if !r.send(ctx, watch.Event{Type: watch.Added, Object: obj}) {
			return errWatchStopped
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.list = nil
	bookmark := initialEventsEnd()
	bookmark.Object.(metav1.Object).SetResourceVersion(r.version)
	if !r.send(ctx, bookmark) {
		return errWatchStopped
	}
	return nil
}

// sendChanges sends changes until the watch cache ends the watch. It returns an error if resuming cannot succeed, for
// example because changes since the version are not available.
func (r *resumingWatch) sendChanges(ctx context.Context) error {
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
			return fmt.Errorf("the watch returned %T: %w", event.Object, err)
		}
		version := object.GetResourceVersion()
		if !r.send(ctx, r.convert(event)) {
			return errWatchStopped
		}
		r.version = version
	}
	return nil
}

// sendError sends the error that ends the watch, unless the reader stopped it.
func (r *resumingWatch) sendError(ctx context.Context, err error) {
	if errors.Is(err, errWatchStopped) || ctx.Err() != nil {
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	statusObject := status.Status()
	r.send(ctx, watch.Event{Type: watch.Error, Object: &statusObject})
}
