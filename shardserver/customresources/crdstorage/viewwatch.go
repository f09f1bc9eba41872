package crdstorage

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// Watch implements storage.Interface.
func (v *View) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	stream, err := v.watchObjects(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	failed := false
	return watch.Filter(stream, func(event watch.Event) (watch.Event, bool) {
		if failed { // no event follows an error, as in upstream watches
			return event, false
		}
		decoded, err := v.decodeEvent(event)
		if err != nil {
			if obj, ok := objectOf(event); ok && !initial {
				err = v.explainWatch(obj, err)
			}
			failed = true
			return watch.Event{Type: watch.Error, Object: newErrorStatus(err)}, true
		}
		return decoded, true
	}), nil
}

// watchObjects is Watch without decoding: objects are *Object, or envelopes of the watch cache with one. It ends when the view is
// closed.
func (v *View) watchObjects(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	detach := context.AfterFunc(v.ctx, cancel)
	opts.Predicate = v.adaptPredicate(opts.Predicate)
	stream, err := v.Interface.Watch(ctx, key, opts)
	if err != nil {
		detach()
		cancel()
		return nil, err
	}
	return &cancelingWatch{Interface: stream, cancel: func() { detach(); cancel() }}, nil
}

// cancelingWatch is a watch that cancels its context when it is stopped.
type cancelingWatch struct {
	watch.Interface
	cancel func()
}

// Stop implements watch.Interface.
func (w *cancelingWatch) Stop() {
	w.cancel()
	w.Interface.Stop()
}

// decodeEvent decodes the object of an event of the shared storage.
func (v *View) decodeEvent(event watch.Event) (watch.Event, error) {
	if envelope, ok := event.Object.(runtime.CacheableObject); ok {
		event.Object = envelope.GetObject()
	}
	obj, ok := event.Object.(*Object)
	if !ok { // an error
		return event, nil
	}
	var err error
	if event.Type == watch.Bookmark {
		event.Object, err = v.newBookmark(obj)
		return event, err
	}
	event.Object = v.newFunc()
	return event, v.decodeOnce(obj, event.Object)
}

// newBookmark returns a bookmark with the kind of the view: a resource version and annotations.
func (v *View) newBookmark(obj *Object) (runtime.Object, error) {
	bookmark := v.newFunc()
	if err := v.Versioner().UpdateObject(bookmark, obj.resourceVersion); err != nil {
		return nil, err
	}
	if annotations := obj.GetAnnotations(); len(annotations) > 0 {
		accessor, err := meta.Accessor(bookmark)
		if err != nil {
			return nil, err
		}
		accessor.SetAnnotations(annotations)
	}
	return bookmark, nil
}

// newErrorStatus returns the status that watches of the upstream storage report for an error.
func newErrorStatus(err error) *metav1.Status {
	if status, ok := err.(apierrors.APIStatus); ok { // a wrapped status is not reported as such, as upstream
		s := status.Status()
		return &s
	}
	return &metav1.Status{Status: metav1.StatusFailure, Message: err.Error(), Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError}
}
