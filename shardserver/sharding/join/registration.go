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

// checkInterval is the interval at which the registration is verified.
const checkInterval = time.Minute

// Registration creates and updates the Shard object of this shard in root.
type Registration struct {
	// Root is the root shard.
	Root *Root
	// Stored are the identities under which this shard stores objects. It does not register with a root with others.
	Stored Identities
	// Required makes the shard unhealthy until it has been registered.
	Required bool
	// Register updates the Shard object, and creates it only if create is set: an administrator may delete it while the
	// shard runs, to stop requests to the shard.
	Register func(ctx context.Context, c client.Client, create bool) error

	mu           sync.Mutex
	registered   bool
	lastErr      error
	publishedErr error
}

// Run registers the shard and keeps its registration up to date until the context ends. It retries with backoff and
// logs when the error changes.
func (r *Registration) Run(ctx context.Context) {
	retry := r.backoff()
	for ctx.Err() == nil {
		err := r.registerOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		r.setResult(err)
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

func (r *Registration) registerOnce(ctx context.Context) error {
	remote, err := r.Root.Identities(ctx)
	if err != nil {
		return err
	}
	if _, err := Merge(r.Stored, remote); err != nil {
		return err
	}
	return r.Register(ctx, r.Root.Client, !r.isRegistered())
}

func (r *Registration) setResult(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil && (!r.registered || r.lastErr != nil):
		klog.InfoS("The shard is registered in root")
	case err != nil && (r.lastErr == nil || r.lastErr.Error() != err.Error()):
		klog.ErrorS(err, "Failed to register the shard in root")
	}
	r.registered, r.lastErr = r.registered || err == nil, err
}

// SetPublishedError sets the error of the identities that the root shard has published; nil if there is none.
func (r *Registration) SetPublishedError(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && (r.publishedErr == nil || r.publishedErr.Error() != err.Error()) {
		klog.ErrorS(err, "The identities that the root shard has published conflict with those of this shard")
	}
	r.publishedErr = err
}

func (r *Registration) isRegistered() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.registered
}

// ForeignRootError returns an error if root is known to belong to another installation. Nothing may be published to
// such a root or its cache servers, and nothing that is read from them may be used.
func (r *Registration) ForeignRootError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.foreignRootError()
}

func (r *Registration) foreignRootError() error {
	var conflict *ConflictError
	if errors.As(r.lastErr, &conflict) {
		return conflict
	}
	return r.publishedErr
}

// Healthy returns an error if the shard should get no traffic: root belongs to another installation, or the shard is
// new and not registered yet. An unavailable root shard is not an error.
func (r *Registration) Healthy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch foreign := r.foreignRootError(); {
	case foreign != nil:
		return foreign
	case r.Required && !r.registered && r.lastErr != nil:
		return r.lastErr
	case r.Required && !r.registered:
		return errors.New("the shard is not registered in root yet")
	}
	return nil
}
