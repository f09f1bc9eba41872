// Package watchterminator ends long-running requests, watches above all, when their logical cluster is deleted, becomes
// inactive or leaves the virtual workspace that serves the request. Authorization decides once, when a request starts;
// without this package a watch would outlive a change of that decision.
//
// It tracks open requests by logical cluster and keeps nothing for logical clusters without any. Whether a request may
// start is decided by package authorization.
package watchterminator

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// wildcardCooldown is the minimum time between two terminations of requests over all logical clusters. Any workspace
	// administrator can make a workspace inactive at any rate, and each time all wildcard watches of the shard restart.
	wildcardCooldown = 10 * time.Second
	// timestampPrecision is the precision of deletion timestamps.
	timestampPrecision = time.Second
	// retryAfter is the delay before a broken watch of logical clusters is restarted.
	retryAfter = time.Second
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
	isLongRunning    request.LongRunningRequestCheck
	visibility       VisibilityFunc
	wildcardCooldown time.Duration
	// cooldownUntil is when wildcard requests may be terminated again. Only Run accesses it.
	cooldownUntil time.Time

	mu   sync.Mutex
	open map[logicalcluster.Name]map[*openRequest]struct{}
}

// New returns a Terminator that tracks the requests for which isLongRunning returns true.
func New(isLongRunning request.LongRunningRequestCheck, visibility VisibilityFunc) *Terminator {
	return &Terminator{
		isLongRunning: isLongRunning, visibility: visibility, wildcardCooldown: wildcardCooldown,
		open: map[logicalcluster.Name]map[*openRequest]struct{}{},
	}
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
			if current, err := clusters.Get(ctx, "", corev1alpha1.LogicalClusterName); err == nil && !tracked.allowed(current) {
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

// Run watches the logical clusters of the shard until the context ends. Every replica of a shard runs its own.
func (t *Terminator) Run(ctx context.Context, registry *storage.Registry) {
	for resumed := false; ctx.Err() == nil; {
		synced, err := t.watch(ctx, registry, resumed)
		resumed = resumed || synced
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Watch of logical clusters for request termination ended", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

// watch runs one watch until it ends, and returns whether the initial list was received. If resumed is set, changes
// between the previous watch and this one were missed, so all wildcard requests are terminated.
func (t *Terminator) watch(ctx context.Context, registry *storage.Registry, resumed bool) (synced bool, err error) {
	resource, err := registry.Get(logicalClusters)
	if err != nil {
		return false, err
	}
	watcher, err := storage.WatchAll(ctx, resource)
	if err != nil {
		return false, fmt.Errorf("watching logical clusters: %w", err)
	}
	defer watcher.Stop()
	var wildcardDue <-chan time.Time // fires when wildcard requests must be terminated; nil if none must be
	if resumed {
		wildcardDue = time.After(time.Until(t.cooldownUntil))
	}
	for {
		select {
		case <-wildcardDue:
			wildcardDue, t.cooldownUntil = nil, time.Now().Add(t.wildcardCooldown)
			t.terminate(logicalcluster.Wildcard, all)
		case event, ok := <-watcher.ResultChan():
			switch {
			case !ok:
				return synced, nil
			case event.Type == watch.Error:
				return synced, apierrors.FromObject(event.Object)
			case event.Type == watch.Bookmark:
				synced = true
			}
			if t.handle(event) && wildcardDue == nil {
				wildcardDue = time.After(time.Until(t.cooldownUntil))
			}
		}
	}
}

// handle terminates the requests that an event affects. It returns whether wildcard requests must be terminated, too.
func (t *Terminator) handle(event watch.Event) (wildcard bool) {
	cluster, ok := event.Object.(*corev1alpha1.LogicalCluster)
	if !ok {
		return false
	}
	name := logicalcluster.Of(cluster)
	t.terminate(name, func(r *openRequest) bool { return !r.allowedWhileInactive && !r.canSee(cluster) })
	switch {
	case event.Type == watch.Deleted:
		t.terminate(name, all)
	case cluster.DeletionTimestamp != nil:
		// Requests that start later are kept: controllers that remove finalizers need them.
		t.terminate(name, func(r *openRequest) bool {
			return r.started.Before(cluster.DeletionTimestamp.Add(timestampPrecision))
		})
	case !authorization.IsInactive(cluster):
	case cluster.Status.Phase == corev1alpha1.LogicalClusterPhaseReady:
		t.terminate(name, all) // it has just become inactive: the phase is updated after the annotation
		return true
	default:
		// Requests that started before this process received the event.
		t.terminate(name, func(r *openRequest) bool { return !r.allowedWhileInactive })
	}
	return false
}
