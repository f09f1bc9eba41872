// Package shards follows the Shard objects of an installation and, on each shard, the Workspaces and LogicalClusters
// of all its logical clusters, and keeps package index in step with them.
//
// It keeps no copy of what it watches: the sinks of its streams forward to the index. It runs a few goroutine
// families per shard and none per workspace. Routing, HTTP and identities live elsewhere.
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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/index"
	"github.com/atoll-dev/atoll/proxy/workspacetypes"
)

// Watcher fills an index. Create it with New, run it with Run.
type Watcher struct {
	root   *rest.Config
	shards *rest.Config
	index  *index.Index
	types  *workspacetypes.Catalog // nil where workspaces bring no issuers

	subset   Subset
	identity *identity // of the export that workspaces come from; set by Run

	rootHealth health

	mu        sync.Mutex
	ctx       context.Context // of Run; nil before and after
	followers map[string]*follower
	ready     bool
}

// follower watches one shard at one base URL.
type follower struct {
	baseURL             string
	cancel              context.CancelFunc
	done                chan struct{}
	workspaces, cluster health
	// types and configurations are followed where there is a catalog for them.
	types, configurations health
}

// Choose makes the watcher follow a subset of the shards. Call it before Run.
func (w *Watcher) Choose(subset Subset) { w.subset = subset }

// FollowTypes makes the watcher fill a catalog of workspace types, too. Call it before Run.
func (w *Watcher) FollowTypes(types *workspacetypes.Catalog) { w.types = types }

// New returns a watcher that reads Shard objects in the cluster "root" of the server of root, and the contents of
// each shard at its base URL with the credentials of shards, whose own server is ignored.
func New(root, shards *rest.Config, idx *index.Index) *Watcher {
	root = rest.CopyConfig(root)
	root.Host = ServerOf(root.Host)
	return &Watcher{root: root, shards: rest.CopyConfig(shards), index: idx, followers: map[string]*follower{}}
}

// ServerOf returns the URL of a server without the logical cluster that kubeconfigs often end in.
func ServerOf(host string) string {
	if at := strings.Index(host, "/clusters/"); at >= 0 {
		return host[:at]
	}
	return strings.TrimSuffix(host, "/")
}

// Run watches until the context ends. It returns when all that it started has ended.
func (w *Watcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	src, err := newSource(w.root, logicalcluster.Root.String(), coreVersion, "shards")
	if err != nil {
		return fmt.Errorf("watching shards: %w", err)
	}
	if w.identity, err = newIdentity(w.root); err != nil {
		return err
	}
	w.identity.wait(ctx, &w.rootHealth)

	w.mu.Lock()
	w.ctx = ctx
	w.mu.Unlock()

	objects := &stream{source: src, to: newShardStore(w), shard: RootShard, health: &w.rootHealth}
	objects.follow(ctx)

	w.mu.Lock()
	w.ctx = nil
	followers := w.followers
	w.followers = map[string]*follower{}
	w.mu.Unlock()
	for _, f := range followers {
		f.stop()
	}
	return nil
}

// WaitForShards blocks until there is a Shard object, and each shard's contents were either listed once or could not
// be: a shard that is down must not keep the proxy of all others from starting.
func (w *Watcher) WaitForShards(ctx context.Context) error {
	return waitFor(ctx, w.Ready)
}

// startPoll is how often a start looks whether it can go on.
const startPoll = 50 * time.Millisecond

// Ready returns nil once the index was as good as it can be, else what is missing. It does not change back: a shard
// that joins or moves later is no reason to stop serving the others.
func (w *Watcher) Ready() error {
	if synced, failure := w.rootHealth.get(); !synced {
		return fmt.Errorf("the Shard objects of the root shard were not read yet (last failure: %v)", failure)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ready {
		return nil
	}
	if len(w.index.Load().ShardNames()) == 0 {
		return errors.New("there is no Shard object yet that this proxy is for: a shard that starts registers itself")
	}
	var missing []string
	for name, f := range w.followers {
		for _, h := range f.streams(w.types != nil) {
			if synced, failure := h.get(); !synced && failure == nil {
				missing = append(missing, name)
				break
			}
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("shards not read yet: %s", strings.Join(missing, ", "))
	}
	w.ready = true
	return nil
}

// Sources are where the index comes from, shards by their names, and whether it follows what happens there. "shards" are
// the Shard objects themselves.
func (w *Watcher) Sources() map[string]bool {
	current := func(h *health) bool {
		synced, failure := h.get()
		return synced && failure == nil
	}
	sources := map[string]bool{"shards": current(&w.rootHealth)}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, f := range w.followers {
		all := true
		for _, h := range f.streams(w.types != nil) {
			all = all && current(h)
		}
		sources["shard "+name] = all
	}
	return sources
}

// set starts to follow a shard, or follows it to its new base URL.
func (w *Watcher) set(o *shardObject) {
	led, followed := w.subset.choose(o.Name, o.Labels)
	if !followed {
		w.remove(o.Name)
		return
	}
	shard := index.Shard{Name: o.Name, Elsewhere: !led}
	if baseURL := o.Spec.BaseURL; baseURL != "" {
		shard.BaseURL, shard.Err = parseBaseURL(baseURL)
	}
	w.index.SetShard(shard)

	w.mu.Lock()
	defer w.mu.Unlock()
	existing := w.followers[o.Name]
	if existing != nil {
		if existing.baseURL == o.Spec.BaseURL {
			return
		}
		delete(w.followers, o.Name)
		existing.stop()
	}
	if shard.BaseURL == nil || w.ctx == nil {
		return
	}
	f, err := w.start(o.Name, o.Spec.BaseURL)
	if err != nil {
		klog.FromContext(w.ctx).Error(err, "Cannot follow a shard", "shard", o.Name)
		return
	}
	w.followers[o.Name] = f
}

// remove forgets a shard and all that came from it.
func (w *Watcher) remove(name string) {
	w.mu.Lock()
	f := w.followers[name]
	delete(w.followers, name)
	w.mu.Unlock()
	if f != nil {
		f.stop() // before the index forgets, so that nothing is added afterwards
	}
	w.index.RemoveShard(name)
	if w.types != nil {
		w.types.RemoveShard(name)
	}
}

// keep removes all shards but those named.
func (w *Watcher) keep(names map[string]bool) {
	for _, name := range w.index.Load().ShardNames() {
		if !names[name] {
			w.remove(name)
		}
	}
}

func (w *Watcher) start(name, baseURL string) (*follower, error) {
	config := rest.CopyConfig(w.shards)
	config.Host = baseURL
	f := &follower{baseURL: baseURL, done: make(chan struct{})}
	wanted := []struct {
		gv       schema.GroupVersion
		resource string
		exported bool
		sink     sink
		health   *health
	}{
		{tenancyVersion, "workspaces", true, newWorkspaceStore(name, w.index), &f.workspaces},
		{coreVersion, "logicalclusters", false, newClusterStore(name, w.index), &f.cluster},
	}
	if w.types != nil {
		wanted = append(wanted, wanted[0], wanted[0])
		types, configurations := &wanted[2], &wanted[3]
		types.resource, types.sink, types.health = "workspacetypes", newTypeStore(name, w.types), &f.types
		configurations.resource, configurations.sink, configurations.health = "workspaceauthenticationconfigurations", newConfigurationStore(name, w.types), &f.configurations
	}
	var streams []*stream
	for _, one := range wanted {
		src, err := newSource(config, logicalcluster.Wildcard.String(), one.gv, one.resource)
		if err != nil {
			return nil, err
		}
		if one.exported {
			src.identity = w.identity
		} else {
			src.metadata = true // LogicalClusters: their annotations say all
		}
		streams = append(streams, &stream{source: src, to: one.sink, shard: name, health: one.health})
	}
	ctx, cancel := context.WithCancel(w.ctx)
	f.cancel = cancel
	var running sync.WaitGroup
	for _, s := range streams {
		running.Go(func() { s.follow(ctx) })
	}
	go func() {
		running.Wait()
		close(f.done)
	}()
	return f, nil
}

// streams are those that the follower has.
func (f *follower) streams(types bool) []*health {
	streams := []*health{&f.workspaces, &f.cluster}
	if types {
		streams = append(streams, &f.types, &f.configurations)
	}
	return streams
}

func (f *follower) stop() {
	f.cancel()
	<-f.done
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

// newShardStore hands Shard objects to the watcher.
func newShardStore(w *Watcher) sink {
	return &store[*shardObject]{
		read: func(object runtime.Object) (*shardObject, error) {
			o, ok := object.(*shardObject)
			if !ok {
				return nil, fmt.Errorf("got %T, expected a Shard", object)
			}
			return o, nil
		},
		putOne: w.set,
		drop:   func(o *shardObject) { w.remove(o.Name) },
		replace: func(all []*shardObject) {
			names := make(map[string]bool, len(all))
			for _, o := range all {
				w.set(o)
				names[o.Name] = true
			}
			w.keep(names)
		},
	}
}
