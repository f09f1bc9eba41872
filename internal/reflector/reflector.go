package reflector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/atoll-dev/atoll/internal/background"
)

const (
	// minWatch is how long a watch without events must last to count as progress.
	minWatch = time.Second
	// minDelay is the delay between attempts that make progress: a server may end every watch after one event.
	minDelay = 100 * time.Millisecond
)

// Handler processes the events of a Reflector. Its methods are called sequentially, from one goroutine.
type Handler interface {
	// OnListStart is called before the first page of a list. A list that fails is not completed: the next one starts
	// with OnListStart again.
	OnListStart()
	// OnListPage is called with the objects of one page.
	OnListPage(objects []runtime.Object)
	// OnListDone is called after the last page: objects that no page contained are not on the server.
	OnListDone(resourceVersion string)
	// OnEvent is called for each watch.Added, watch.Modified, watch.Deleted and watch.Bookmark.
	OnEvent(event watch.Event, resourceVersion string)
	// OnConnect is called whenever a watch is open.
	OnConnect()
	// OnDisconnect is called whenever a list or a watch fails, unless the reason is an expired resource version.
	OnDisconnect(err error)
}

// Config configures a Reflector.
type Config struct {
	// ListerWatcher lists and watches the resource.
	ListerWatcher cache.ListerWatcherWithContext
	// Handler receives the objects.
	Handler Handler
	// ResourceVersion is the start of the first watch; empty: start with a list.
	ResourceVersion string
	// PageSize bounds the objects of one page of a list; 0: one page.
	PageSize int64
	// WatchTimeout is the minimum of the watch timeout that is sent to the server, the maximum is twice as long; 0: the
	// server decides.
	WatchTimeout time.Duration
	// Backoff is the delay between attempts without progress. Progress resets it.
	Backoff wait.Backoff
}

// Reflector passes the current objects and changes of one resource of one server to a handler.
type Reflector struct {
	config Config

	mu sync.Mutex
	// resourceVersion is the start of the next watch; empty: start with a list.
	resourceVersion string
	// cancel ends the current attempt and the delay after it.
	cancel context.CancelFunc
	// disconnected is set from a failed attempt until the next success or RetryNow.
	disconnected bool
	// relist makes the next attempt start with a list.
	relist bool
}

// New returns a reflector that does nothing before Run.
func New(config Config) *Reflector {
	return &Reflector{config: config, resourceVersion: config.ResourceVersion, cancel: func() {}}
}

// Run lists and watches until the context ends. After a disconnect it resumes where it was, and lists again only if the
// server cannot resume there.
func (r *Reflector) Run(ctx context.Context) {
	backoff := r.config.Backoff
	for ctx.Err() == nil {
		attempt, cancel := r.newAttempt(ctx)
		progressed, err := r.listAndWatch(attempt)
		if attempt.Err() == nil && err != nil {
			r.handleError(err)
		}
		var delay time.Duration
		if progressed {
			backoff = r.config.Backoff
			delay = wait.Jitter(minDelay, 1)
		} else {
			delay = backoff.Step()
		}
		if !background.Sleep(attempt, delay) {
			backoff = r.config.Backoff
		}
		cancel()
	}
}

// RetryNow ends the backoff of a reflector that is disconnected, and its current attempt to connect. An attempt that
// started through RetryNow is not ended by another call.
func (r *Reflector) RetryNow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.disconnected {
		r.disconnected = false
		r.cancel()
	}
}

// Relist ends the current watch or backoff, and starts a new list.
func (r *Reflector) Relist() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.relist = true
	r.cancel()
}

// newAttempt returns the context of one attempt, which RetryNow and Relist cancel.
func (r *Reflector) newAttempt(ctx context.Context) (context.Context, context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.relist {
		r.relist, r.resourceVersion = false, ""
	}
	ctx, r.cancel = context.WithCancel(ctx)
	return ctx, r.cancel
}

// handleError reports a failed attempt, and makes the next one start with a list where resuming cannot succeed.
func (r *Reflector) handleError(err error) {
	expired := isExpired(err)
	r.mu.Lock()
	if expired || apierrors.IsNotFound(err) || errors.Is(err, errUnexpectedObject) {
		r.resourceVersion = ""
	}
	r.disconnected = !expired
	r.mu.Unlock()
	if !expired {
		r.config.Handler.OnDisconnect(err)
	}
}

// isExpired reports whether the server cannot resume at a resource version: it was compacted, or the server has not
// reached it, because its storage was restored from a backup.
func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

var (
	// errUnexpectedObject is the error of an event without object metadata.
	errUnexpectedObject = errors.New("unexpected object")
	// errVeryShortWatch is the error of a watch that ends without events before minWatch.
	errVeryShortWatch = errors.New("the server ended the watch at once")
)

func (r *Reflector) listAndWatch(ctx context.Context) (progressed bool, err error) {
	if r.lastResourceVersion() == "" {
		if err := r.list(ctx); err != nil {
			return false, err
		}
		progressed = true
	}
	received, err := r.watch(ctx)
	return progressed || received || isExpired(err), err
}

func (r *Reflector) list(ctx context.Context) error {
	r.config.Handler.OnListStart()
	options := metav1.ListOptions{Limit: r.config.PageSize}
	for {
		list, err := r.config.ListerWatcher.ListWithContext(ctx, options)
		if err != nil {
			return err
		}
		metadata, err := meta.ListAccessor(list)
		if err != nil {
			return err
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			return err
		}
		r.config.Handler.OnListPage(objects)
		if options.Continue = metadata.GetContinue(); options.Continue == "" {
			r.mu.Lock()
			r.resourceVersion, r.disconnected = metadata.GetResourceVersion(), false
			r.mu.Unlock()
			r.config.Handler.OnListDone(metadata.GetResourceVersion())
			return nil
		}
	}
}

// watch returns nil when the server ends the watch normally.
func (r *Reflector) watch(ctx context.Context) (progressed bool, err error) {
	options := metav1.ListOptions{ResourceVersion: r.lastResourceVersion(), AllowWatchBookmarks: true}
	if minSeconds := int64(r.config.WatchTimeout / time.Second); minSeconds > 0 {
		seconds := minSeconds + rand.Int64N(minSeconds)
		options.TimeoutSeconds = &seconds
	}
	events, err := r.config.ListerWatcher.WatchWithContext(ctx, options)
	if err != nil {
		return false, err
	}
	defer events.Stop()
	started := time.Now()
	r.connected()
	for {
		event, open := watch.Event{}, false
		select {
		case <-ctx.Done():
			return true, nil
		case event, open = <-events.ResultChan():
		}
		if !open {
			break
		}
		if err := r.handleEvent(event); err != nil {
			return progressed, err
		}
		progressed = true
	}
	if !progressed && time.Since(started) < minWatch {
		return false, errVeryShortWatch
	}
	return true, nil
}

func (r *Reflector) handleEvent(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	metadata, err := meta.Accessor(event.Object)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnexpectedObject, err)
	}
	r.setResourceVersion(metadata.GetResourceVersion())
	r.config.Handler.OnEvent(event, metadata.GetResourceVersion())
	return nil
}

func (r *Reflector) connected() {
	r.mu.Lock()
	r.disconnected = false
	r.mu.Unlock()
	r.config.Handler.OnConnect()
}

func (r *Reflector) lastResourceVersion() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resourceVersion
}

func (r *Reflector) setResourceVersion(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resourceVersion = version
}
