// Package shards follows the Shard objects of an installation and, on each shard, the Workspaces and LogicalClusters
// of all its logical clusters, and keeps package index in step with them.
//
// It keeps no copy of what it watches: the stores of its reflectors forward to the index. It runs a few goroutine
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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
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
	src, err := newSource(w.root, logicalcluster.Root.String(), coreVersion, "shards", &shardObject{}, func() runtime.Object { return &shardObjectList{} })
	if err != nil {
		return fmt.Errorf("watching shards: %w", err)
	}
	src.shard = "root"
	if w.identity, err = newIdentity(w.root); err != nil {
		return err
	}
	w.identity.wait(ctx, &w.rootHealth)

	w.mu.Lock()
	w.ctx = ctx
	w.mu.Unlock()

	follow(ctx, src, shardStore{w}, &w.rootHealth)

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
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) { return w.Ready() == nil, nil })
	if err != nil {
		return fmt.Errorf("waiting for the shards: %w", errors.Join(err, w.Ready()))
	}
	return nil
}

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
		return errors.New("there is no Shard object yet: a root shard that starts registers itself")
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

// set starts to follow a shard, or follows it to its new base URL.
func (w *Watcher) set(name, baseURL string) {
	shard := index.Shard{Name: name}
	if baseURL != "" {
		shard.BaseURL, shard.Err = parseBaseURL(baseURL)
	}
	w.index.SetShard(shard)

	w.mu.Lock()
	defer w.mu.Unlock()
	existing := w.followers[name]
	if existing != nil {
		if existing.baseURL == baseURL {
			return
		}
		delete(w.followers, name)
		existing.stop()
	}
	if shard.BaseURL == nil || w.ctx == nil {
		return
	}
	f, err := w.start(name, baseURL)
	if err != nil {
		klog.FromContext(w.ctx).Error(err, "Cannot follow a shard", "shard", name)
		return
	}
	w.followers[name] = f
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
	wildcard := logicalcluster.Wildcard.String()
	workspaces, err := newSource(config, wildcard, tenancyVersion, "workspaces", &workspaceObject{}, func() runtime.Object { return &workspaceObjectList{} })
	if err != nil {
		return nil, err
	}
	clusters, err := newSource(config, wildcard, coreVersion, "logicalclusters", &clusterObject{}, func() runtime.Object { return &clusterObjectList{} })
	if err != nil {
		return nil, err
	}
	workspaces.shard, clusters.shard = name, name
	workspaces.identity, workspaces.forget = w.identity.get, w.identity.forget

	ctx, cancel := context.WithCancel(w.ctx)
	f := &follower{baseURL: baseURL, cancel: cancel, done: make(chan struct{})}
	var running sync.WaitGroup
	running.Go(func() { follow(ctx, workspaces, workspaceStore{name, w.index, &f.workspaces}, &f.workspaces) })
	running.Go(func() { follow(ctx, clusters, clusterStore{name, w.index, &f.cluster}, &f.cluster) })
	if w.types != nil {
		types, configurations, err := typeSources(config)
		if err != nil {
			cancel()
			running.Wait()
			return nil, err
		}
		types.shard, configurations.shard = name, name
		types.identity, configurations.identity = w.identity.get, w.identity.get
		running.Go(func() { follow(ctx, types, newTypeStore(name, w.types, &f.types), &f.types) })
		running.Go(func() {
			follow(ctx, configurations, newConfigurationStore(name, w.types, &f.configurations), &f.configurations)
		})
	}
	go func() {
		running.Wait()
		close(f.done)
	}()
	return f, nil
}

// typeSources are where types and configurations of all logical clusters of a shard come from.
func typeSources(config *rest.Config) (types, configurations source, err error) {
	wildcard := logicalcluster.Wildcard.String()
	types, err = newSource(config, wildcard, tenancyVersion, "workspacetypes", &typeObject{}, func() runtime.Object { return &typeObjectList{} })
	if err != nil {
		return types, configurations, err
	}
	configurations, err = newSource(config, wildcard, tenancyVersion, "workspaceauthenticationconfigurations",
		&tenancyv1alpha1.WorkspaceAuthenticationConfiguration{},
		func() runtime.Object { return &tenancyv1alpha1.WorkspaceAuthenticationConfigurationList{} })
	return types, configurations, err
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

// shardStore forwards Shard objects to the watcher.
type shardStore struct{ w *Watcher }

var _ cache.ReflectorStore = shardStore{}

func (s shardStore) Add(obj any) error {
	o, ok := obj.(*shardObject)
	if !ok {
		return fmt.Errorf("got %T, expected a Shard", obj)
	}
	s.w.set(o.Name, o.Spec.BaseURL)
	return nil
}

func (s shardStore) Update(obj any) error { return s.Add(obj) }

func (s shardStore) Delete(obj any) error {
	o, ok := obj.(*shardObject)
	if !ok {
		return fmt.Errorf("got %T, expected a Shard", obj)
	}
	s.w.remove(o.Name)
	return nil
}

func (s shardStore) Replace(objs []any, _ string) error {
	names := make(map[string]bool, len(objs))
	for _, obj := range objs {
		if err := s.Add(obj); err != nil {
			return err
		}
		names[obj.(*shardObject).Name] = true
	}
	s.w.keep(names)
	s.w.rootHealth.set(true, nil)
	return nil
}

func (s shardStore) Resync() error { return nil }
