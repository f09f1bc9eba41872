package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	// begin lets the followers begin, as far as this source is concerned; begun tells that this has happened.
	begin func()
	begun atomic.Bool

	// replays are those of streams that may be silent for long; replayed are the followers that wait for one.
	replays  sync.WaitGroup
	mu       sync.Mutex
	replayed map[follower]struct{}
}

// startPatience is for how long controllers wait for a source that has nothing to tell at the start.
const startPatience = 10 * time.Second

// sources returns what serves all inputs of all controllers.
func sources(registry *storage.Registry, controllers []*running) []*source {
	byFeed := map[feed]*source{}
	for _, c := range controllers {
		for at := range c.Inputs {
			for _, from := range c.feeds(at) {
				if byFeed[from] == nil {
					byFeed[from] = &source{feed: from, registry: registry, replayed: map[follower]struct{}{}}
				}
				byFeed[from].followers = append(byFeed[from].followers, follower{c, at})
				c.unheard.Add(1)
			}
		}
	}
	all := slices.Collect(maps.Values(byFeed))
	for _, s := range all {
		s.begin = sync.OnceFunc(func() {
			s.begun.Store(true)
			for _, follower := range s.followers {
				follower.unheard.Done()
			}
		})
	}
	return all
}

// run follows the resource until the context ends.
func (s *source) run(ctx context.Context) {
	defer s.replays.Wait()
	defer s.begin()
	patience := time.AfterFunc(startPatience, s.begin)
	defer patience.Stop()
	newBackoff := func() wait.Backoff {
		return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 20, Cap: 10 * time.Second}
	}
	backoff := newBackoff()
	for again := false; ctx.Err() == nil; again = true {
		synced, err := s.follow(ctx, again)
		if ctx.Err() != nil {
			return
		}
		s.begin()
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
			if again || s.begun.Load() {
				s.replayOthers(ctx)
			}
			s.begin()
		case watch.Error:
			return synced, fmt.Errorf("watching %s: %w", s.resource, apierrors.FromObject(event.Object))
		}
	}
	return synced, nil
}

// replayOthers makes the followers look at everything again, because deletions of this resource that happened between
// two watches, or after a follower began without this source, were seen by nobody.
func (s *source) replayOthers(ctx context.Context) {
	for _, of := range s.followers {
		for at := range of.Inputs {
			other := follower{of.running, at}
			for _, from := range of.feeds(at) {
				switch {
				case from == s.feed:
				case from.of != nil:
					s.replayLater(ctx, from, other)
				default:
					s.replay(ctx, from, other)
				}
			}
		}
	}
}

// replayLater replays a stream of the follower's own, which may be silent for as long as it likes. One replay that has not
// ended stands for all that are asked for meanwhile.
func (s *source) replayLater(ctx context.Context, from feed, to follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, pending := s.replayed[to]; pending {
		return
	}
	s.replayed[to] = struct{}{}
	s.replays.Go(func() {
		s.replay(ctx, from, to)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.replayed, to)
	})
}

func (s *source) replay(ctx context.Context, from feed, to follower) {
	err := from.list(ctx, s.registry, func(obj runtime.Object) error {
		to.enqueue(watch.Event{Type: watch.Added, Object: obj})
		return nil
	})
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Replaying a resource to a controller failed", "controller", to.Name, "resource", from.resource)
	}
}
