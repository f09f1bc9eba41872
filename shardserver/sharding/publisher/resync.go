package publisher

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// resyncBudget bounds the time of a resync between two heartbeats: refilling a cache may take longer than other shards
// wait for a heartbeat.
const resyncBudget = 2 * time.Second

// resync publishes every object of this shard once, in the state that its source desires at that moment. An object that
// changes again counts all the same: it causes writes, but does not block the resync. The package comment defines what
// the end of a resync means to readers.
type resync struct {
	// incarnation is the incarnation of the cache. Writes to another one are lost.
	incarnation string
	// nextSource is the index of the source to list next. Sources are listed when they are reached: an object that is
	// desired when the resync begins, but not when its source is listed, need not be there.
	nextSource int
	// source is the source before next, remaining are its keys that are not published yet.
	source    Source
	remaining []controller.Request
	// failed are the objects that could not be written. They are retried after all sources.
	failed []resyncItem
}

// resyncItem is an object that could not be published.
type resyncItem struct {
	source Source
	key    controller.Request
}

// result classifies an attempt to publish one object.
type result int

const (
	// succeeded: the object in the cache is in a state that was desired since the resync began.
	succeeded result = iota
	// failedObject: it could not be written; other objects may be.
	failedObject
	// refusedObject: the cache refuses the object in its current state. It stays in an earlier one, or absent, which the
	// condition of the shard reports; retrying would block all other objects.
	refusedObject
	// unavailable: the cache is unavailable.
	unavailable
)

// resultOf classifies an attempt by its error.
func resultOf(err error) result {
	switch status := apierrors.APIStatus(nil); {
	case err == nil:
		return succeeded
	case errors.Is(err, errSource):
		return failedObject
	case client.IsRefused(err):
		return refusedObject
	case errors.As(err, &status):
		return failedObject
	}
	return unavailable
}

// errBudgetExceeded is returned by a resync that must continue, errCacheReplaced by one that must start from the beginning.
var (
	errBudgetExceeded = errors.New("the resync is not done")
	errCacheReplaced  = errors.New("the cache was replaced during the resync")
)

// continueResync starts or continues the resync within its budget. It returns nil at the end of the resync, otherwise
// what is missing. The write in progress when the budget is exceeded is completed, so that a slow cache makes progress.
func (p *Publisher) continueResync(ctx context.Context) error {
	incarnation, err := p.commonIncarnation()
	if err != nil {
		return err
	}
	if p.resync == nil || p.resync.incarnation != incarnation {
		p.resync = &resync{incarnation: incarnation}
		p.refills.Store(true)
	}
	until := time.Now().Add(resyncBudget)
	if err := p.resyncSources(ctx, until); err != nil {
		return err
	}
	if err := p.retryFailed(ctx, until); err != nil {
		return err
	}
	p.resync = nil
	if now, err := p.commonIncarnation(); err != nil || now != incarnation {
		return errCacheReplaced
	}
	return nil
}

// commonIncarnation returns the incarnation of the cache that all resources were listed from.
func (p *Publisher) commonIncarnation() (string, error) {
	incarnation, known := p.cfg.Informer.PublishedIncarnation(shardReports)
	if !known {
		return "", errCacheUnavailable
	}
	for _, source := range p.cfg.Sources {
		if at, known := p.cfg.Informer.PublishedIncarnation(source.Resource); !known || at != incarnation {
			return "", fmt.Errorf("%s are not read from the cache yet", source.Resource)
		}
	}
	return incarnation, nil
}

// resyncSources publishes the objects of all sources.
func (p *Publisher) resyncSources(ctx context.Context, until time.Time) error {
	for {
		for len(p.resync.remaining) > 0 {
			if time.Now().After(until) {
				return errBudgetExceeded
			}
			key := p.resync.remaining[0]
			switch err := p.resyncObject(ctx, p.resync.source, key); resultOf(err) {
			case failedObject:
				p.resync.failed = append(p.resync.failed, resyncItem{p.resync.source, key})
			case unavailable:
				return err
			}
			p.resync.remaining = p.resync.remaining[1:]
		}
		if p.resync.nextSource == len(p.cfg.Sources) {
			return nil
		}
		source := p.cfg.Sources[p.resync.nextSource]
		keys, err := p.allKeys(ctx, source)
		if err != nil {
			return fmt.Errorf("listing %s: %w", source.Resource, err)
		}
		p.resync.source, p.resync.remaining = source, keys
		p.resync.nextSource++
	}
}

// retryFailed retries every failed object once, and returns the error of one that failed again.
func (p *Publisher) retryFailed(ctx context.Context, until time.Time) error {
	var reason error
	for range len(p.resync.failed) {
		if time.Now().After(until) {
			return errBudgetExceeded
		}
		failed := p.resync.failed[0]
		switch err := p.resyncObject(ctx, failed.source, failed.key); resultOf(err) {
		case failedObject:
			p.resync.failed = append(p.resync.failed, failed)
			reason = err
		case unavailable:
			return err
		}
		p.resync.failed = p.resync.failed[1:]
	}
	return reason
}

// resyncObject publishes one object.
func (p *Publisher) resyncObject(ctx context.Context, source Source, key controller.Request) error {
	if key.Name == "" || !p.isPublished(source.Resource, key) {
		return nil
	}
	err := p.sync(logicalcluster.With(ctx, key.ClusterName), source, key)
	p.recordResult(ctx, item{source.Resource, key}, err)
	if errors.Is(err, ErrAwaitsOthers) {
		return nil // the controller of the source retries it
	}
	if err != nil {
		return fmt.Errorf("%s %s is not published: %w", source.Resource, key, err)
	}
	return nil
}

// allKeys returns all keys that may be desired or published. Keys may be duplicated.
func (p *Publisher) allKeys(ctx context.Context, source Source) ([]controller.Request, error) {
	var keys []controller.Request
	if source.List != nil {
		var err error
		if keys, err = source.List(logicalcluster.With(ctx, logicalcluster.Wildcard)); err != nil {
			return nil, err
		}
	} else {
		for _, input := range source.Inputs {
			if err := input.ForEachRequest(ctx, p.cfg.Registry, func(key controller.Request) { keys = append(keys, key) }); err != nil {
				return nil, err
			}
		}
	}
	for _, at := range p.cfg.Informer.PublishedKeys(source.Resource) {
		keys = append(keys, controller.Request{ClusterName: at.Cluster, Namespace: at.Namespace, Name: at.Name})
	}
	return keys, nil
}
