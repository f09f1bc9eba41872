package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// source is the one watch of a resource that the controllers of a process share.
type source struct {
	registry *storage.Registry
	resource schema.GroupResource
	// followers are the controllers that have the resource among their inputs.
	followers []*running
}

// run follows the resource until the context ends.
func (s *source) run(ctx context.Context) {
	newBackoff := func() wait.Backoff {
		return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 20, Cap: 10 * time.Second}
	}
	backoff := newBackoff()
	for again := false; ctx.Err() == nil; again = true {
		synced, err := s.follow(ctx, again)
		if ctx.Err() != nil {
			return
		}
		if synced {
			backoff = newBackoff()
		}
		watchRestarts.WithLabelValues(s.resource.String()).Inc()
		delay := backoff.Step()
		klog.FromContext(ctx).V(2).Info("The controllers' watch ended, starting it again", "resource", s.resource, "delay", delay, "reason", err)
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// follow starts one watch and hands its events on until it ends. It tells whether the watch delivered all that
// exists.
func (s *source) follow(ctx context.Context, again bool) (synced bool, err error) {
	resource, err := s.registry.Get(s.resource)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := storage.WatchAll(ctx, resource)
	if err != nil {
		return false, fmt.Errorf("watching %s: %w", s.resource, err)
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		switch event.Type {
		case watch.Added, watch.Modified, watch.Deleted:
			for _, follower := range s.followers {
				follower.enqueue(s.resource, event)
			}
		case watch.Bookmark:
			if synced {
				continue
			}
			synced = true
			if again {
				s.replayOthers(ctx)
			}
		case watch.Error:
			return synced, fmt.Errorf("watching %s: %w", s.resource, apierrors.FromObject(event.Object))
		}
	}
	return synced, nil
}

// replayOthers makes the followers look at everything again, because deletions of this resource that happened between
// two watches were seen by nobody.
func (s *source) replayOthers(ctx context.Context) {
	ctx = logicalcluster.With(ctx, logicalcluster.Wildcard)
	for _, follower := range s.followers {
		for _, input := range follower.Inputs {
			if input.Resource == s.resource {
				continue
			}
			resource, err := s.registry.Get(input.Resource)
			if err != nil {
				continue // not installed: it has no objects, and its own source reports the error
			}
			list, err := resource.Store.List(ctx, &internalversion.ListOptions{ResourceVersion: "0"})
			if err != nil {
				klog.FromContext(ctx).Error(err, "Replaying a resource to a controller failed", "controller", follower.Name, "resource", input.Resource)
				continue
			}
			_ = meta.EachListItem(list, func(obj runtime.Object) error {
				follower.enqueue(input.Resource, watch.Event{Type: watch.Added, Object: obj})
				return nil
			})
		}
	}
}
