package storage

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

// followAgain is how long to wait before a watch that ended is started anew.
const followAgain = 100 * time.Millisecond

// Follower keeps something in step with all objects of a resource. Its methods are called one after the other.
type Follower[T metav1.Object] interface {
	// Begin says that a watch begins: everything that exists will be taken in, whether or not it is known.
	Begin()
	// Take takes in an object that came, changed, or went (deleted). An error ends the watch: it begins anew.
	Take(ctx context.Context, object T, deleted bool) error
	// Complete says that everything that existed at a resource version was taken in since the watch began. What was not
	// went while no watch was there to tell.
	Complete(version string)
	// Saw says up to which resource version a complete watch has come.
	Saw(version string)
	// End says that a watch has ended: from now on until the next is complete, changes are told by nobody.
	End()
}

// Following is the watch by which a Follower follows. Its zero value does not work: NewFollowing makes one.
type Following[T metav1.Object] struct {
	resource schema.GroupResource
	watch    func(context.Context) (watch.Interface, error)
	follower Follower[T]
	once     sync.Once
	synced   chan struct{}
}

// NewFollowing returns what tells a follower of everything that a watch brings (Reader.WatchAll, or one like it).
func NewFollowing[T metav1.Object](resource schema.GroupResource, watch func(context.Context) (watch.Interface, error), follower Follower[T]) *Following[T] {
	return &Following[T]{resource: resource, watch: watch, follower: follower, synced: make(chan struct{})}
}

// Run follows until the context ends. It is called once.
func (f *Following[T]) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).V(2).Info("A watch ended, starting it again", "resource", f.resource, "reason", err)
		select {
		case <-ctx.Done():
		case <-time.After(followAgain):
		}
	}
}

// WaitForSync returns when everything that existed at the start has been taken in.
func (f *Following[T]) WaitForSync(ctx context.Context) error {
	select {
	case <-f.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follow runs one watch to its end.
func (f *Following[T]) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.follower.Begin()
	defer f.follower.End()
	stream, err := f.watch(ctx)
	if err != nil {
		return err
	}
	defer stream.Stop()
	complete := false
	for event := range stream.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		object, ok := event.Object.(metav1.Object)
		if !ok {
			return fmt.Errorf("following %s: a watch brought %T", f.resource, event.Object)
		}
		if event.Type != watch.Bookmark {
			if err := f.take(ctx, event); err != nil {
				return err
			}
		} else if !complete {
			complete = true
			f.follower.Complete(object.GetResourceVersion())
			f.once.Do(func() { close(f.synced) })
		}
		if complete { // what exists comes in the order of keys, not of versions
			f.follower.Saw(object.GetResourceVersion())
		}
	}
	return nil
}

func (f *Following[T]) take(ctx context.Context, event watch.Event) error {
	object, ok := event.Object.(T)
	if !ok {
		return fmt.Errorf("following %s: a watch brought %T", f.resource, event.Object)
	}
	return f.follower.Take(ctx, object, event.Type == watch.Deleted)
}
