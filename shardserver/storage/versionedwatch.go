package storage

import (
	"context"
	"errors"
	"io"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// newFailedWatch returns a watch with an error as its only event.
func newFailedWatch(err error) watch.Interface {
	var reported apierrors.APIStatus
	if !errors.As(err, &reported) {
		reported = apierrors.NewInternalError(err)
	}
	status := reported.Status()
	failed := &stream{events: make(chan watch.Event, 1), cancel: func() {}}
	failed.events <- watch.Event{Type: watch.Error, Object: &status}
	close(failed.events)
	return failed
}

// versionedWatch is a watch of one logical cluster with the versions of its epoch.
type versionedWatch struct {
	*stream
	inner watch.Interface
	epoch epoch
	// isCurrent reports whether the logical cluster still has the epoch.
	isCurrent func() bool
}

func (w *versionedWatch) run(ctx context.Context) {
	defer close(w.events)
	defer w.cancel()
	defer w.inner.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, ok := <-w.inner.ResultChan():
			if !ok {
				return
			}
			if !w.isCurrent() {
				w.send(ctx, watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("the logical cluster has moved to another shard: list again").ErrStatus})
				return
			}
			if !w.send(ctx, w.epoch.versionEvent(event)) {
				return
			}
		}
	}
}

// versionEvent returns an event with the version of the epoch. Objects of the watch cache that share one encoding among watchers
// still do; all others are the watcher's own.
func (e epoch) versionEvent(event watch.Event) watch.Event {
	if e == 0 || event.Type == watch.Error {
		return event
	}
	if shared, ok := event.Object.(sharedObject); ok {
		event.Object = &versionedObject{shared, e}
	} else if own, err := meta.Accessor(event.Object); err == nil {
		e.setOnMeta(own)
	}
	return event
}

// sharedObject is the object of a watch event that caches its encodings.
type sharedObject interface {
	runtime.Object
	metav1.Object
	runtime.CacheableObject
}

// versionedObject is a shared object with the version of an epoch. Its encodings are cached with the shared object.
type versionedObject struct {
	sharedObject
	epoch epoch
}

var _ sharedObject = &versionedObject{}

// CacheEncode implements runtime.CacheableObject.
func (o *versionedObject) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	id += runtime.Identifier(" epoch " + strconv.FormatUint(uint64(o.epoch), 10))
	return o.sharedObject.CacheEncode(id, func(copied runtime.Object, w io.Writer) error {
		if err := o.epoch.setOn(copied); err != nil {
			return err
		}
		return encode(copied, w)
	}, w)
}

// GetObject implements runtime.CacheableObject. The object is a copy.
func (o *versionedObject) GetObject() runtime.Object {
	copied := o.sharedObject.GetObject()
	_ = o.epoch.setOn(copied) // it is a metav1.Object
	return copied
}

// DeepCopyObject implements runtime.Object.
func (o *versionedObject) DeepCopyObject() runtime.Object { return o.GetObject() }

// GetResourceVersion implements metav1.Object.
func (o *versionedObject) GetResourceVersion() string {
	return o.epoch.add(o.sharedObject.GetResourceVersion())
}
