package join

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// checkInterval is the time between two looks at the registration of a shard that is registered.
const checkInterval = time.Minute

// Registration keeps the Shard object of a shard in root as it should be.
type Registration struct {
	// Root is the root shard.
	Root *Root
	// Held are the identities that this shard stores objects by. A root shard that has others is not registered with.
	Held Identities
	// Required tells that the shard is not healthy before it was registered once.
	Required bool
	// Register brings the Shard object up to date. It makes one only if create says so: an administrator who deletes it
	// while the shard runs wants nobody to be sent here any more.
	Register func(ctx context.Context, c client.Client, create bool) error

	mu         sync.Mutex
	registered bool
	last       error
	published  error
}

// Run registers the shard and keeps it so until the context ends. A root shard that is away is asked again; the log tells
// when what is wrong changes.
func (r *Registration) Run(ctx context.Context) {
	retry := r.backoff()
	for ctx.Err() == nil {
		err := r.once(ctx)
		if ctx.Err() != nil {
			return
		}
		r.note(err)
		delay := wait.Jitter(checkInterval, 0.2)
		if err != nil {
			delay = retry.Step()
		} else {
			retry = r.backoff()
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

func (r *Registration) backoff() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 10 * time.Second}
}

func (r *Registration) once(ctx context.Context) error {
	heard, err := r.Root.Identities(ctx)
	if err != nil {
		return err
	}
	if _, err := Merge(r.Held, heard); err != nil {
		return err
	}
	return r.Register(ctx, r.Root.Client, !r.done())
}

func (r *Registration) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil && (!r.registered || r.last != nil):
		klog.InfoS("The shard is registered in root")
	case err != nil && (r.last == nil || r.last.Error() != err.Error()):
		klog.ErrorS(err, "The shard cannot be registered in root now")
	}
	r.registered, r.last = r.registered || err == nil, err
}

// Published notes what is wrong with the identities that the root shard has published, nil if nothing is.
func (r *Registration) Published(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && (r.published == nil || r.published.Error() != err.Error()) {
		klog.ErrorS(err, "The root shard has published identities that cannot be those of this shard")
	}
	r.published = err
}

func (r *Registration) done() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.registered
}

// Foreign returns why root is that of another installation, nil if it is not known to be. Nothing may be told to such a root
// or its caches, nor believed of them.
func (r *Registration) Foreign() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.foreign()
}

func (r *Registration) foreign() error {
	var conflict *ConflictError
	if errors.As(r.last, &conflict) {
		return conflict
	}
	return r.published
}

// Healthy returns why the shard should get no traffic: root is that of another installation, or the shard is new and root
// does not know it yet. A root shard that is away is no such reason.
func (r *Registration) Healthy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch foreign := r.foreign(); {
	case foreign != nil:
		return foreign
	case r.Required && !r.registered && r.last != nil:
		return r.last
	case r.Required && !r.registered:
		return errors.New("the shard is not registered in root yet")
	}
	return nil
}
