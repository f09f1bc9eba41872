// Package watchterminator ends long-running requests, watches above all, when their logical cluster is deleted, becomes
// inactive or leaves the virtual workspace that serves the request. Authorization decides once, when a request starts;
// without this package a watch would outlive a change of that decision.
//
// It tracks open requests by logical cluster and keeps nothing for logical clusters without any. Whether a request may
// start is decided by package authorization.
package watchterminator

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// wildcardCooldown is the minimum time between two terminations of requests over all logical clusters. Any workspace
	// administrator can make a workspace inactive at any rate, and each time all wildcard watches of the shard restart.
	wildcardCooldown = 10 * time.Second
	// timestampPrecision is the precision of deletion timestamps.
	timestampPrecision = time.Second
)

var logicalClusters = corev1alpha1.Resource("logicalclusters")

// VisibilityFunc returns a predicate for the request of a context: whether a logical cluster is visible in the virtual
// workspace that serves the request. It returns nil for requests to no virtual workspace.
type VisibilityFunc func(ctx context.Context) func(*corev1alpha1.LogicalCluster) bool

// openRequest is a long-running request that is being served.
type openRequest struct {
	cancel  context.CancelFunc
	started time.Time
	// allowedWhileInactive is set for requests that are authorized in inactive logical clusters, too.
	allowedWhileInactive bool
	// isVisible is nil for requests to no virtual workspace.
	isVisible func(*corev1alpha1.LogicalCluster) bool
}

func (r *openRequest) canSee(cluster *corev1alpha1.LogicalCluster) bool {
	return r.isVisible == nil || r.isVisible(cluster)
}

// Terminator tracks the long-running requests of a process and cancels them.
type Terminator struct {
	isLongRunning request.LongRunningRequestCheck
	visibility    VisibilityFunc
	// isClosed reports whether no request to a logical cluster is served; nil for none.
	isClosed func(*corev1alpha1.LogicalCluster) bool
	// wildcardDue has an element while requests over all logical clusters must be terminated.
	wildcardDue chan struct{}

	mu   sync.Mutex
	open map[logicalcluster.Name]map[*openRequest]struct{}
}

// New returns a Terminator that tracks the requests for which isLongRunning returns true.
func New(isLongRunning request.LongRunningRequestCheck, visibility VisibilityFunc) *Terminator {
	return &Terminator{
		isLongRunning: isLongRunning, visibility: visibility, wildcardDue: make(chan struct{}, 1),
		open: map[logicalcluster.Name]map[*openRequest]struct{}{},
	}
}

// SetClosed sets the function that reports whether all requests to a logical cluster are to be terminated, whatever their
// path. It must be called before the first request.
func (t *Terminator) SetClosed(isClosed func(*corev1alpha1.LogicalCluster) bool) {
	t.isClosed = isClosed
}

// WithTermination tracks the long-running requests to handler. It belongs below authorization. A logical cluster may
// become inactive between the authorization of a request and its tracking, so its state is checked again after that.
func (t *Terminator) WithTermination(handler http.Handler, registry *storage.Registry) http.Handler {
	clusters := storage.NewReader[*corev1alpha1.LogicalCluster](registry, logicalClusters)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		cluster, hasCluster := logicalcluster.From(req.Context())
		info, hasInfo := request.RequestInfoFrom(req.Context())
		if !hasCluster || !hasInfo || !t.isLongRunning(req, info) {
			handler.ServeHTTP(w, req)
			return
		}
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		tracked := &openRequest{
			cancel: cancel, started: time.Now(),
			allowedWhileInactive: authorization.AllowedWhileInactive(req.URL.Path), isVisible: t.visibility(ctx),
		}
		defer t.track(cluster, tracked)()
		if !cluster.IsWildcard() && !cluster.IsSystem() {
			if current, err := clusters.Get(ctx, "", corev1alpha1.LogicalClusterName); err == nil && (t.closes(current) || !tracked.allowed(current)) {
				cancel()
			}
		}
		handler.ServeHTTP(w, req.WithContext(ctx))
	})
}

// allowed reports whether the request may start in the current state of its logical cluster.
func (r *openRequest) allowed(cluster *corev1alpha1.LogicalCluster) bool {
	return r.allowedWhileInactive || (!authorization.IsInactive(cluster) && r.canSee(cluster))
}

// track adds a request and returns a function that removes it.
func (t *Terminator) track(cluster logicalcluster.Name, r *openRequest) (untrack func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[cluster] == nil {
		t.open[cluster] = map[*openRequest]struct{}{}
	}
	t.open[cluster][r] = struct{}{}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.open[cluster], r)
		if len(t.open[cluster]) == 0 {
			delete(t.open, cluster)
		}
	}
}

// terminate cancels the requests to a logical cluster that match.
func (t *Terminator) terminate(cluster logicalcluster.Name, matches func(*openRequest) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for r := range t.open[cluster] {
		if matches(r) {
			r.cancel()
		}
	}
}

func all(*openRequest) bool { return true }

func (t *Terminator) closes(cluster *corev1alpha1.LogicalCluster) bool {
	return t.isClosed != nil && t.isClosed(cluster)
}

// Run watches the logical clusters of the shard until the context ends. Every replica of a shard runs its own.
func (t *Terminator) Run(ctx context.Context, registry *storage.Registry) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { t.terminateWildcard(ctx) })
	t.newInformer(registry).Run(ctx)
}

func (t *Terminator) newInformer(registry *storage.Registry) *informer.Informer[*corev1alpha1.LogicalCluster] {
	listed := false
	reader := storage.NewReader[*corev1alpha1.LogicalCluster](registry, logicalClusters)
	return informer.NewWithHandler(logicalClusters, reader.WatchAll, informer.EventHandler[*corev1alpha1.LogicalCluster]{
		OnReplace: func(ctx context.Context, clusters []*corev1alpha1.LogicalCluster, _ string) error {
			for _, cluster := range clusters {
				_ = t.onUpdate(ctx, cluster)
			}
			if listed { // a cluster may have become inactive, and active again, when events were missed
				t.enqueueWildcard()
			}
			listed = true
			return nil
		},
		OnAdd:    t.onUpdate,
		OnUpdate: t.onUpdate,
		OnDelete: t.onDelete,
	})
}

func (t *Terminator) onDelete(_ context.Context, cluster *corev1alpha1.LogicalCluster) error {
	t.terminate(logicalcluster.Of(cluster), all)
	return nil
}

// enqueueWildcard makes terminateWildcard terminate the requests over all logical clusters.
func (t *Terminator) enqueueWildcard() {
	select {
	case t.wildcardDue <- struct{}{}:
	default: // already enqueued
	}
}

// terminateWildcard terminates requests over all logical clusters when that is enqueued, at most once per cooldown.
func (t *Terminator) terminateWildcard(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wildcardDue:
		}
		t.terminate(logicalcluster.Wildcard, all)
		background.Sleep(ctx, wildcardCooldown)
	}
}

// onUpdate terminates the requests that the new state of a logical cluster affects.
func (t *Terminator) onUpdate(_ context.Context, cluster *corev1alpha1.LogicalCluster) error {
	name := logicalcluster.Of(cluster)
	t.terminate(name, func(r *openRequest) bool { return !r.allowedWhileInactive && !r.canSee(cluster) })
	switch {
	case t.closes(cluster):
		t.terminate(name, all)
	case cluster.DeletionTimestamp != nil:
		// Requests that start later are kept: controllers that remove finalizers need them.
		t.terminate(name, func(r *openRequest) bool {
			return r.started.Before(cluster.DeletionTimestamp.Add(timestampPrecision))
		})
	case !authorization.IsInactive(cluster):
	case cluster.Status.Phase == corev1alpha1.LogicalClusterPhaseReady:
		t.terminate(name, all) // it has just become inactive: the phase is updated after the annotation
		t.enqueueWildcard()
	default:
		// Requests that started before this process received the event.
		t.terminate(name, func(r *openRequest) bool { return !r.allowedWhileInactive })
	}
	return nil
}
