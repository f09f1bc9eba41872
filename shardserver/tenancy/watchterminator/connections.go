// Package connections ends long requests, watches above all, to logical clusters that go out of service, or out of the
// view of a virtual workspace: a request is authorized once, when it begins, and would otherwise outlive the decision
// for as long as its client likes.
//
// It keeps what is open, by logical cluster, and nothing about those to which nothing is open. Which requests may begin
// is decided by authorization.
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
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

const (
	// wildcardPause is how long requests over all logical clusters are left alone after they were ended. Every
	// administrator of a workspace can make it inactive, as often as they like, and all clients of the shard that
	// watch everything would have to begin anew each time.
	wildcardPause = 10 * time.Second
	// resolution is that of the time of a deletion, as it is stored.
	resolution = time.Second
	// retryAfter is when a broken watch of logical clusters is begun again.
	retryAfter = time.Second
)

var logicalClusters = corev1alpha1.Resource("logicalclusters")

// connection is one long request that is being served.
type connection struct {
	cancel  context.CancelFunc
	started time.Time
	// looksAtItself tells that an inactive logical cluster may be asked this: what it is.
	looksAtItself bool
	// view is the request as one to a virtual workspace; the zero value if it is none.
	view virtual.Request
}

// Connections are the long requests of a process.
type Connections struct {
	isLong request.LongRunningRequestCheck
	pause  time.Duration
	// paused is until when requests over all logical clusters are not ended again. It is Run's.
	paused time.Time

	mu   sync.Mutex
	open map[logicalcluster.Name]map[*connection]struct{}
}

// New returns an empty set. isLong tells which requests are long.
func New(isLong request.LongRunningRequestCheck) *Connections {
	return &Connections{isLong: isLong, pause: wildcardPause, open: map[logicalcluster.Name]map[*connection]struct{}{}}
}

// With makes long requests end with their logical cluster's service. It belongs below authorization. Between that, or the
// queue before it, and the moment in which a request is noted here, its logical cluster may have turned inactive: it is
// looked at once more.
func (c *Connections) With(handler http.Handler, registry *storage.Registry) http.Handler {
	clusters := storage.NewReader[*corev1alpha1.LogicalCluster](registry, logicalClusters)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		cluster, hasCluster := logicalcluster.From(req.Context())
		info, hasInfo := request.RequestInfoFrom(req.Context())
		if !hasCluster || !hasInfo || !c.isLong(req, info) {
			handler.ServeHTTP(w, req)
			return
		}
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		view, _ := virtual.From(ctx)
		added := &connection{cancel: cancel, started: time.Now(), looksAtItself: authorization.OpenWhileInactive(req.URL.Path), view: view}
		defer c.add(cluster, added)()
		if !cluster.IsWildcard() && !cluster.IsSystem() {
			if now, err := clusters.Get(ctx, "", corev1alpha1.LogicalClusterName); err == nil && added.late(now) {
				cancel()
			}
		}
		handler.ServeHTTP(w, req.WithContext(ctx))
	})
}

// late tells whether a request has begun after its logical cluster went out of service.
func (c *connection) late(cluster *corev1alpha1.LogicalCluster) bool {
	return !c.looksAtItself && (authorization.Inactive(cluster) || !c.view.Open(cluster))
}

// add notes a connection and returns what forgets it.
func (c *Connections) add(cluster logicalcluster.Name, added *connection) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[cluster] == nil {
		c.open[cluster] = map[*connection]struct{}{}
	}
	c.open[cluster][added] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open[cluster], added)
		if len(c.open[cluster]) == 0 {
			delete(c.open, cluster)
		}
	}
}

// end cancels those connections to a logical cluster that match.
func (c *Connections) end(cluster logicalcluster.Name, matches func(*connection) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for open := range c.open[cluster] {
		if matches(open) {
			open.cancel()
		}
	}
}

func all(*connection) bool { return true }

// Run follows the logical clusters of the shard until the context ends. Every replica of a shard runs its own.
func (c *Connections) Run(ctx context.Context, registry *storage.Registry) {
	for again := false; ctx.Err() == nil; {
		complete, err := c.follow(ctx, registry, again)
		again = again || complete
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Watching logical clusters for their connections ended", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

// follow runs one watch to its end, and returns whether it has told what exists. After one that did and ended (again),
// requests over all logical clusters are ended: which of these turned inactive meanwhile, nobody has told.
func (c *Connections) follow(ctx context.Context, registry *storage.Registry, again bool) (complete bool, err error) {
	resource, err := registry.Get(logicalClusters)
	if err != nil {
		return false, err
	}
	stream, err := storage.WatchAll(ctx, resource)
	if err != nil {
		return false, fmt.Errorf("watching logical clusters: %w", err)
	}
	defer stream.Stop()
	var due <-chan time.Time // fires when requests over all logical clusters are to be ended; set while they are to be
	if again {
		due = time.After(time.Until(c.paused))
	}
	for {
		select {
		case <-due:
			due, c.paused = nil, time.Now().Add(c.pause)
			c.end(logicalcluster.Wildcard, all)
		case event, ok := <-stream.ResultChan():
			switch {
			case !ok:
				return complete, nil
			case event.Type == watch.Error:
				return complete, apierrors.FromObject(event.Object)
			case event.Type == watch.Bookmark:
				complete = true
			}
			if c.handle(event) && due == nil {
				due = time.After(time.Until(c.paused))
			}
		}
	}
}

// handle ends what an event puts an end to. It tells whether requests over all logical clusters are to be ended too.
func (c *Connections) handle(event watch.Event) (wildcard bool) {
	cluster, ok := event.Object.(*corev1alpha1.LogicalCluster)
	if !ok {
		return false
	}
	name := logicalcluster.Of(cluster)
	c.end(name, func(open *connection) bool { return !open.looksAtItself && !open.view.Open(cluster) })
	switch {
	case event.Type == watch.Deleted:
		c.end(name, all)
	case cluster.DeletionTimestamp != nil:
		// Requests that begin later are served: who cleans up needs them.
		c.end(name, func(open *connection) bool {
			return open.started.Before(cluster.DeletionTimestamp.Add(resolution))
		})
	case !authorization.Inactive(cluster):
	case cluster.Status.Phase == corev1alpha1.LogicalClusterPhaseReady:
		c.end(name, all) // it was active until now: the phase follows
		return true
	default:
		// What began while the news was on its way to this process.
		c.end(name, func(open *connection) bool { return !open.looksAtItself })
	}
	return false
}
