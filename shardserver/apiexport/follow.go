package apiexport

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// followAgain is how long to wait before a watch that ended is started anew.
const followAgain = 100 * time.Millisecond

// following keeps an index in step with all objects of a resource, by one watch.
type following[T client.Object] struct {
	reader *storage.Reader[T]
	// take takes in an object that came, changed, or went (deleted).
	take func(object T, deleted bool)
	// begin says that all objects will be taken in now, sweep that they have been: what was not since begin went while no
	// watch was there to tell.
	begin, sweep func()
	synced       chan struct{}
}

// run follows until the context ends.
func (f *following[T]) run(ctx context.Context) {
	first := true
	for ctx.Err() == nil {
		err := f.once(ctx, func() {
			if first {
				first = false
				close(f.synced)
			}
		})
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).V(2).Info("A watch ended, starting it again", "resource", f.reader.Resource(), "reason", err)
		select {
		case <-ctx.Done():
		case <-time.After(followAgain):
		}
	}
}

// once runs one watch to its end, and calls complete when all that existed has been taken in.
func (f *following[T]) once(ctx context.Context, complete func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.begin()
	stream, err := f.reader.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer stream.Stop()
	swept := false
	for event := range stream.ResultChan() {
		switch event.Type {
		case watch.Error:
			return apierrors.FromObject(event.Object)
		case watch.Bookmark:
			if !swept {
				swept = true
				f.sweep()
				complete()
			}
		default:
			object, ok := event.Object.(T)
			if !ok {
				continue
			}
			f.take(object, event.Type == watch.Deleted)
		}
	}
	return nil
}

// wait returns when everything that existed at the start has been taken in.
func (f *following[T]) wait(ctx context.Context) error {
	select {
	case <-f.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func keyOf(object client.Object) controller.Key {
	return controller.Key{Cluster: logicalcluster.Of(object), Name: object.GetName()}
}
