// Package shards keeps package index in sync with an installation: with the Shard objects and, on each shard, with the
// Workspaces and LogicalClusters of all its logical clusters; or with the shared index that shards write.
//
// It does not store the objects: event handlers pass them to the index. It has a few goroutines per shard and none per
// workspace. Routing, HTTP handlers and authentication do not belong here.
package shards

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/internal/reflector"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/index"
	"github.com/atoll-dev/atoll/proxy/workspacetypes"
)

// Config configures a Watcher.
type Config struct {
	// Root is a client configuration for the root shard. Without peers, Shard objects are read in its logical cluster "root".
	Root *rest.Config
	// Peers are the servers of the Shard objects; nil for the root shard.
	Peers *Peers
	// Shards has the credentials for all shards. Its host is ignored: the base URL of each shard is used.
	Shards *rest.Config
	Subset Subset
	Index  *index.Index
	// Types is kept in sync, too; nil if workspace types do not name issuers.
	Types *workspacetypes.Registry
}

// Watcher keeps an index in sync by watching the shards.
type Watcher struct {
	Config
	identity   *exportIdentity // of the export of workspaces; set by Run
	rootStatus *resourceStatus // of the Shard objects

	mu     sync.Mutex
	ctx    context.Context // of Run; nil before and after
	shards map[string]*shardWatch
	ready  bool
}

// shardWatch watches one shard at one base URL.
type shardWatch struct {
	baseURL  string
	cancel   context.CancelFunc
	done     chan struct{}
	statuses []*resourceStatus // one for each resource
}

// NewWatcher returns a watcher that Run starts.
func NewWatcher(config Config) *Watcher {
	config.Root = rest.CopyConfig(config.Root)
	config.Root.Host = TrimClusterPath(config.Root.Host)
	return &Watcher{Config: config, rootStatus: &resourceStatus{shard: RootShard, resource: "shards"}, shards: map[string]*shardWatch{}}
}

// TrimClusterPath returns the URL of a server without the logical cluster in which kubeconfigs often end.
func TrimClusterPath(host string) string {
	if at := strings.Index(host, "/clusters/"); at >= 0 {
		return host[:at]
	}
	return strings.TrimSuffix(host, "/")
}

// Run watches until the context ends. All its goroutines have ended when it returns.
func (w *Watcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, cluster, peers := w.Root, logicalcluster.Root.String(), (*peerTransport)(nil)
	if w.Peers != nil {
		server, peers = newPeerConfig(w.Peers)
		cluster = logicalcluster.Wildcard.String()
	}
	client, err := newResourceClient(server, cluster, coreVersion, w.rootStatus.resource)
	if err != nil {
		return fmt.Errorf("watching shards: %w", err)
	}
	if w.identity, err = newExportIdentity(w.Root); err != nil {
		return err
	}
	w.identity.wait(ctx, w.rootStatus)

	w.mu.Lock()
	w.ctx = ctx
	w.mu.Unlock()

	newReflector(client, w.newShardHandler(peers)).Run(ctx)

	w.mu.Lock()
	w.ctx = nil
	watches := w.shards
	w.shards = map[string]*shardWatch{}
	w.mu.Unlock()
	for _, watch := range watches {
		watch.stop()
	}
	return nil
}

// WaitForSync blocks until Ready returns nil.
func (w *Watcher) WaitForSync(ctx context.Context) error { return waitFor(ctx, w.Ready) }

// readyPollInterval is the interval in which WaitForSync checks Ready.
const readyPollInterval = 50 * time.Millisecond

// waitFor blocks until ready returns nil, or the context ends.
func waitFor(ctx context.Context, ready func() error) error {
	err := wait.PollUntilContextCancel(ctx, readyPollInterval, true, func(context.Context) (bool, error) { return ready() == nil, nil })
	if err != nil {
		return fmt.Errorf("waiting for the shards: %w", errors.Join(err, ready()))
	}
	return nil
}

// Ready returns nil once there is a Shard object, and each shard was listed or could not be: a shard that is down
// must not prevent the proxy from serving the others. It does not become unready again when a shard is added or
// moves.
func (w *Watcher) Ready() error {
	if synced, failure := w.rootStatus.get(); !synced {
		return fmt.Errorf("the Shard objects are not synced (last failure: %v)", failure)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ready {
		return nil
	}
	if len(w.Index.Load().ShardNames()) == 0 {
		return errors.New("there is no Shard object for this proxy yet: shards register themselves when they start")
	}
	var missing []string
	for name, watch := range w.shards {
		if slices.ContainsFunc(watch.statuses, (*resourceStatus).pending) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("shards are not synced: %s", strings.Join(missing, ", "))
	}
	w.ready = true
	return nil
}

// Sources returns the sources of the index, true for those that are synced and connected: "shards" are the Shard
// objects, "shard <name>" is the content of a shard.
func (w *Watcher) Sources() map[string]bool {
	sources := map[string]bool{"shards": w.rootStatus.connected()}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, watch := range w.shards {
		disconnected := func(s *resourceStatus) bool { return !s.connected() }
		sources["shard "+name] = !slices.ContainsFunc(watch.statuses, disconnected)
	}
	return sources
}

// newShardHandler returns the handler of the Shard objects, which it also passes to the peers, unless they are nil.
func (w *Watcher) newShardHandler(peers *peerTransport) reflector.Handler {
	both := w.newIndexHandler()
	if peers == nil {
		return both
	}
	indexed := *both
	both.put = func(o *shardObject) {
		peers.putShard(o)
		indexed.put(o)
	}
	both.remove = func(o *shardObject) {
		peers.removeShard(o.Name)
		indexed.remove(o)
	}
	both.replace = func(all []*shardObject) {
		peers.replaceShards(all)
		indexed.replace(all)
	}
	return both
}

func (w *Watcher) newIndexHandler() *handler[*shardObject] {
	return &handler[*shardObject]{
		resourceStatus: w.rootStatus,
		convert:        toShard,
		put:            w.putShard,
		remove:         func(o *shardObject) { w.removeShard(o.Name) },
		replace: func(all []*shardObject) {
			names := make(map[string]bool, len(all))
			for _, o := range all {
				w.putShard(o)
				names[o.Name] = true
			}
			for _, name := range w.Index.Load().ShardNames() {
				if !names[name] {
					w.removeShard(name)
				}
			}
		},
	}
}

// putShard watches a shard, at its new base URL if that has changed. Of the shards that are not served only the root
// shard is watched, because paths start there.
func (w *Watcher) putShard(o *shardObject) {
	served := w.Subset.Has(o.Name, o.Labels)
	if !served && o.Name != RootShard {
		w.removeShard(o.Name)
		return
	}
	shard := index.Shard{Name: o.Name, NotServed: !served}
	if baseURL := o.Spec.BaseURL; baseURL != "" {
		shard.BaseURL, shard.Err = parseBaseURL(baseURL)
	}
	w.Index.SetShard(shard)

	w.mu.Lock()
	defer w.mu.Unlock()
	if existing := w.shards[o.Name]; existing != nil {
		if existing.baseURL == o.Spec.BaseURL {
			return
		}
		delete(w.shards, o.Name)
		existing.stop()
	}
	if shard.BaseURL == nil || w.ctx == nil {
		return
	}
	watch, err := w.startWatch(o.Name, o.Spec.BaseURL)
	if err != nil {
		klog.FromContext(w.ctx).Error(err, "Failed to watch a shard", "shard", o.Name)
		return
	}
	w.shards[o.Name] = watch
}

// removeShard removes a shard and everything that it reported.
func (w *Watcher) removeShard(name string) {
	w.mu.Lock()
	watch := w.shards[name]
	delete(w.shards, name)
	w.mu.Unlock()
	if watch != nil {
		watch.stop() // before the removal from the index, so that nothing is added afterwards
	}
	w.Index.RemoveShard(name)
	if w.Types != nil {
		w.Types.RemoveShard(name)
	}
}

// watchedResource is a resource that is watched on each shard.
type watchedResource struct {
	gv         schema.GroupVersion
	resource   string
	exported   bool // by tenancyExport
	newHandler func(*resourceStatus) reflector.Handler
}

func (w *Watcher) watchedResources() []watchedResource {
	resources := []watchedResource{
		{tenancyVersion, "workspaces", true, func(s *resourceStatus) reflector.Handler { return newWorkspaceHandler(s, w.Index) }},
		{coreVersion, "logicalclusters", false, func(s *resourceStatus) reflector.Handler { return newClusterHandler(s, w.Index) }},
	}
	if w.Types == nil {
		return resources
	}
	return append(resources,
		watchedResource{tenancyVersion, "workspacetypes", true, func(s *resourceStatus) reflector.Handler { return newTypeHandler(s, w.Types) }},
		watchedResource{tenancyVersion, "workspaceauthenticationconfigurations", true, func(s *resourceStatus) reflector.Handler {
			return newConfigurationHandler(s, w.Types)
		}})
}

// startWatch watches a shard until it is stopped. Callers must hold mu.
func (w *Watcher) startWatch(name, baseURL string) (*shardWatch, error) {
	config := rest.CopyConfig(w.Config.Shards)
	config.Host = baseURL
	watch := &shardWatch{baseURL: baseURL, done: make(chan struct{})}
	var reflectors []*reflector.Reflector
	for _, resource := range w.watchedResources() {
		client, err := newResourceClient(config, logicalcluster.Wildcard.String(), resource.gv, resource.resource)
		if err != nil {
			return nil, err
		}
		status := &resourceStatus{shard: name, resource: resource.resource}
		if resource.exported {
			client.identity, status.identity = w.identity, w.identity
		} else {
			client.metadataOnly = true // the annotations of LogicalClusters are sufficient
		}
		watch.statuses = append(watch.statuses, status)
		reflectors = append(reflectors, newReflector(client, resource.newHandler(status)))
	}
	ctx, cancel := context.WithCancel(w.ctx)
	watch.cancel = cancel
	var running sync.WaitGroup
	for _, r := range reflectors {
		running.Go(func() { r.Run(ctx) })
	}
	go func() {
		running.Wait()
		close(watch.done)
	}()
	return watch, nil
}

const (
	// pageSize is the number of objects in a page of a list.
	pageSize = 500
	// watchTimeout is the minimum duration of a watch.
	watchTimeout = 5 * time.Minute
	// minBackoff and maxBackoff bound the delay until a shard that is up again is watched. Until then, workspaces that it creates are
	// unknown to the proxy, which refuses requests for them.
	minBackoff, maxBackoff = 100 * time.Millisecond, time.Second
)

func newReflector(client resourceClient, handler reflector.Handler) *reflector.Reflector {
	return reflector.New(reflector.Config{
		ListerWatcher: client, Handler: handler, PageSize: pageSize, WatchTimeout: watchTimeout,
		Backoff: wait.Backoff{Duration: minBackoff, Factor: 2, Jitter: 0.3, Steps: 20, Cap: maxBackoff},
	})
}

func (w *shardWatch) stop() {
	w.cancel()
	<-w.done
}

func parseBaseURL(baseURL string) (*url.URL, error) {
	u, err := url.Parse(baseURL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("spec.baseURL: %w", err)
	case u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("spec.baseURL: got %q, expected https://<host>[:<port>][/<path>]", baseURL)
	}
	return u, nil
}
