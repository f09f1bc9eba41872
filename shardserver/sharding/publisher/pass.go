package publisher

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

// passBudget bounds how long a pass works before the next heartbeat: a cache that lost many objects takes longer to fill
// than others wait for a sign of life.
const passBudget = 2 * time.Second

// pass is one look at everything that this shard publishes. Each object is brought there and then to what its source wants
// at that moment, and counts from then on, whatever becomes of it: who changes an object again and again makes work, but
// holds up nothing. What the end of a pass means to readers, the comment of the package says.
type pass struct {
	// store is the incarnation of the cache that the pass is about. What was written into another one is lost.
	store string
	// next is the index of the source to be listed next. Sources are listed as they are reached: what is wanted when the
	// pass begins and not when its source is listed need not be there.
	next int
	// of is the source before that, left what of its keys was not looked at yet.
	of   Source
	left []controller.Key
	// again holds what could not be written, and is tried again when all sources are through.
	again []retry
}

// retry is an object that could not be brought to what its source wants.
type retry struct {
	of  Source
	key controller.Key
}

// outcome is what a pass makes of the attempt to publish one object.
type outcome int

const (
	// counts: it is in the cache as it was wanted at some moment since the pass began, or not wanted and not there.
	counts outcome = iota
	// later: it could not be written; others may be.
	later
	// interrupted: the cache is away.
	interrupted
)

// outcomeOf judges an attempt by its error.
func outcomeOf(err error) outcome {
	switch status := apierrors.APIStatus(nil); {
	case err == nil:
		return counts
	case errors.Is(err, errSource), errors.As(err, &status):
		return later
	}
	return interrupted
}

// errMore is what a pass returns that has to go on, errLost one that was for nothing.
var (
	errMore = errors.New("there is more to look at")
	errLost = errors.New("the cache was lost while everything was published")
)

// proceed goes on with the pass for a moment, or begins one. It returns nil when the pass is through, else what is missing.
// The object being written when the time is up is waited for, so that a slow cache is filled as well.
func (p *Publisher) proceed(ctx context.Context) error {
	store, err := p.oneStore()
	if err != nil {
		return err
	}
	if p.pass == nil || p.pass.store != store {
		p.pass = &pass{store: store}
	}
	until := time.Now().Add(passBudget)
	if err := p.look(ctx, until); err != nil {
		return err
	}
	if err := p.lookAgain(ctx, until); err != nil {
		return err
	}
	p.pass = nil
	if now, err := p.oneStore(); err != nil || now != store {
		return errLost
	}
	return nil
}

// oneStore returns the incarnation of the cache that all resources are known of.
func (p *Publisher) oneStore() (string, error) {
	store, known := p.cfg.Informer.PublishedIncarnation(shardReports)
	if !known {
		return "", errAway
	}
	for _, source := range p.cfg.Sources {
		if at, known := p.cfg.Informer.PublishedIncarnation(source.Resource); !known || at != store {
			return "", fmt.Errorf("%s are not read from the cache yet", source.Resource)
		}
	}
	return store, nil
}

// look goes through all sources.
func (p *Publisher) look(ctx context.Context, until time.Time) error {
	for {
		for len(p.pass.left) > 0 {
			if time.Now().After(until) {
				return errMore
			}
			key := p.pass.left[0]
			switch err := p.settle(ctx, p.pass.of, key); outcomeOf(err) {
			case later:
				p.pass.again = append(p.pass.again, retry{p.pass.of, key})
			case interrupted:
				return err
			}
			p.pass.left = p.pass.left[1:]
		}
		if p.pass.next == len(p.cfg.Sources) {
			return nil
		}
		of := p.cfg.Sources[p.pass.next]
		keys, err := p.keys(ctx, of)
		if err != nil {
			return fmt.Errorf("finding out which %s there are: %w", of.Resource, err)
		}
		p.pass.of, p.pass.left = of, keys
		p.pass.next++
	}
}

// lookAgain looks at what could not be written, each once, and returns the reason for one that still cannot be.
func (p *Publisher) lookAgain(ctx context.Context, until time.Time) error {
	var reason error
	for range len(p.pass.again) {
		if time.Now().After(until) {
			return errMore
		}
		one := p.pass.again[0]
		switch err := p.settle(ctx, one.of, one.key); outcomeOf(err) {
		case later:
			p.pass.again = append(p.pass.again, one)
			reason = err
		case interrupted:
			return err
		}
		p.pass.again = p.pass.again[1:]
	}
	return reason
}

// settle publishes one object for the pass.
func (p *Publisher) settle(ctx context.Context, of Source, key controller.Key) error {
	if key.Name == "" || key.Cluster.IsSystem() {
		return nil
	}
	err := p.bring(logicalcluster.With(ctx, key.Cluster), of, key)
	p.account(ctx, item{of.Resource, key}, err)
	if err != nil {
		return fmt.Errorf("%s %s is not published: %w", of.Resource, key, err)
	}
	return nil
}

// keys returns all keys that there may be objects for, here or in the cache. Some may come twice.
func (p *Publisher) keys(ctx context.Context, source Source) ([]controller.Key, error) {
	var keys []controller.Key
	if source.List != nil {
		var err error
		if keys, err = source.List(logicalcluster.With(ctx, logicalcluster.Wildcard)); err != nil {
			return nil, err
		}
	} else {
		for _, input := range source.Inputs {
			if err := input.EachKey(ctx, p.cfg.Registry, func(key controller.Key) { keys = append(keys, key) }); err != nil {
				return nil, err
			}
		}
	}
	for _, at := range p.cfg.Informer.PublishedKeys(source.Resource) {
		keys = append(keys, controller.Key{Cluster: at.Cluster, Namespace: at.Namespace, Name: at.Name})
	}
	return keys, nil
}
