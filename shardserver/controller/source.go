package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// follower is one input of a controller, which a source serves.
type follower struct {
	*running
	input int
}

// enqueue adds what an event concerns.
func (f follower) enqueue(event watch.Event) {
	for _, key := range f.Inputs[f.input].Keys(event) {
		f.Add(key)
	}
}

// source is the one watch of a feed that the controllers of a process share.
type source struct {
	feed
	registry  *storage.Registry
	followers []follower
}

// sources returns what serves all inputs of all controllers.
func sources(registry *storage.Registry, controllers []*running) []*source {
	byFeed := map[feed]*source{}
	for _, c := range controllers {
		for at := range c.Inputs {
			for _, from := range c.feeds(at) {
				if byFeed[from] == nil {
					byFeed[from] = &source{feed: from, registry: registry}
				}
				byFeed[from].followers = append(byFeed[from].followers, follower{c, at})
			}
		}
	}
	return slices.Collect(maps.Values(byFeed))
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.watch(ctx, s.registry)
	if err != nil {
		return false, fmt.Errorf("watching %s: %w", s.resource, err)
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		switch event.Type {
		case watch.Added, watch.Modified, watch.Deleted:
			for _, follower := range s.followers {
				follower.enqueue(event)
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
	for _, of := range s.followers {
		for at, input := range of.Inputs {
			other := follower{of.running, at}
			for _, from := range of.feeds(at) {
				if from == s.feed {
					continue
				}
				err := from.list(ctx, s.registry, func(obj runtime.Object) error {
					other.enqueue(watch.Event{Type: watch.Added, Object: obj})
					return nil
				})
				if err != nil {
					klog.FromContext(ctx).Error(err, "Replaying a resource to a controller failed", "controller", of.Name, "resource", input.Resource)
				}
			}
		}
	}
}
