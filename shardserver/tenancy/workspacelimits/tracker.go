package workspacelimits

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var (
	logicalClusters = corev1alpha1.Resource("logicalclusters")
	workspaces      = tenancyv1alpha1.Resource("workspaces")
	workspaceCounts = shardingv1alpha1.Resource("workspacecounts")
)

// flushInterval is how often changed counts are delivered to watches, so that many creations cause one write.
const flushInterval = time.Second

// Tracker has the limits of all logical clusters that have any, and what this shard stores below each. A logical cluster
// without limits has no entry, and an entry is removed with the last limit of its logical cluster. Every replica of a
// shard needs one.
type Tracker struct {
	registry  *storage.Registry
	clusters  *storage.Reader[*corev1alpha1.LogicalCluster] // with those that other shards publish
	local     *storage.Reader[*corev1alpha1.LogicalCluster]
	children  *storage.Reader[*tenancyv1alpha1.Workspace]
	remote    *storage.Reader[*shardingv1alpha1.WorkspaceCount]
	informers struct {
		clusters   *informer.Informer[*corev1alpha1.LogicalCluster]
		workspaces *informer.Informer[*tenancyv1alpha1.Workspace]
	}

	// checking has an element during a check of the limits, one at a time: each counts what the others have admitted. It is
	// a channel so that requests that end stop waiting.
	checking chan struct{}

	mu sync.Mutex
	// entries are the limited logical clusters, paths the same by path. Logical clusters of different shards may claim one
	// path; the limits of all apply.
	entries map[logicalcluster.Name]*entry
	paths   map[string]map[logicalcluster.Name]*entry
	// reserved are the admitted Workspaces that the watch has not delivered. They are bounded by the requests that are
	// processed, and removed some seconds after these end.
	reserved map[workspaceKey]*reservation
	// recount is set if the counts may be wrong; restart ends the watch of Workspaces, so that all are counted again.
	recount bool
	restart context.CancelFunc
	// changed are the entries whose count or limits have changed since the last flush.
	changed map[logicalcluster.Name]struct{}
	// changes delivers the entries that have changed to controllers.
	changes *controller.Changes
}

// entry is a logical cluster with limits.
type entry struct {
	cluster logicalcluster.Name
	path    logicalcluster.Path
	limits  Limits
	// stored is the number of Workspaces that this shard stores in the logical cluster and below, as far as the watch has
	// delivered. It is valid once counted is closed.
	stored  int64
	counted chan struct{}
}

func (e *entry) isCounted() bool {
	select {
	case <-e.counted:
		return true
	default:
		return false
	}
}

type workspaceKey struct {
	cluster logicalcluster.Name
	name    string
}

type reservation struct{ path logicalcluster.Path }

// NewTracker returns a Tracker of the objects of a registry.
func NewTracker(registry *storage.Registry) *Tracker {
	t := &Tracker{
		registry: registry,
		clusters: storage.NewReader[*corev1alpha1.LogicalCluster](registry, logicalClusters).Global(),
		local:    storage.NewReader[*corev1alpha1.LogicalCluster](registry, logicalClusters),
		children: storage.NewReader[*tenancyv1alpha1.Workspace](registry, workspaces),
		remote:   storage.NewReader[*shardingv1alpha1.WorkspaceCount](registry, workspaceCounts).Global(),
		entries:  map[logicalcluster.Name]*entry{},
		paths:    map[string]map[logicalcluster.Name]*entry{},
		checking: make(chan struct{}, 1),
		reserved: map[workspaceKey]*reservation{},
		changed:  map[logicalcluster.Name]struct{}{},
	}
	t.changes = controller.NewChanges(t.listEntries)
	t.informers.clusters = informer.NewWithHandler(logicalClusters, t.clusters.WatchAll, informer.EventHandler[*corev1alpha1.LogicalCluster]{
		OnReplace: t.replaceClusters, OnAdd: t.updateCluster, OnUpdate: t.updateCluster, OnDelete: t.deleteCluster,
	})
	t.informers.workspaces = informer.NewWithHandler(workspaces, t.watchWorkspaces, informer.EventHandler[*tenancyv1alpha1.Workspace]{
		OnReplace: t.replaceWorkspaces, OnAdd: t.addWorkspace, OnDelete: t.deleteWorkspace,
	})
	return t
}

// Run tracks until the context ends.
func (t *Tracker) Run(ctx context.Context) {
	var group wait.Group
	group.StartWithContext(ctx, t.informers.clusters.Run)
	group.StartWithContext(ctx, t.informers.workspaces.Run)
	wait.UntilWithContext(ctx, t.flush, flushInterval)
	group.Wait()
}

// WaitForSync waits until all limits are known and counted.
func (t *Tracker) WaitForSync(ctx context.Context) error {
	if err := t.informers.clusters.WaitForSync(ctx); err != nil {
		return err
	}
	return t.informers.workspaces.WaitForSync(ctx)
}

func (t *Tracker) replaceClusters(_ context.Context, clusters []*corev1alpha1.LogicalCluster, _ string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	listed := map[logicalcluster.Name]bool{}
	for _, cluster := range clusters {
		listed[logicalcluster.Of(cluster)] = true
		t.set(cluster)
	}
	for name := range t.entries {
		if !listed[name] {
			t.remove(name)
		}
	}
	return nil
}

func (t *Tracker) updateCluster(_ context.Context, cluster *corev1alpha1.LogicalCluster) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(cluster)
	return nil
}

func (t *Tracker) deleteCluster(_ context.Context, cluster *corev1alpha1.LogicalCluster) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(logicalcluster.Of(cluster))
	return nil
}

// set updates the entry of a logical cluster. Workspaces below a new one are counted by a new list. Callers must hold mu.
func (t *Tracker) set(cluster *corev1alpha1.LogicalCluster) {
	name := logicalcluster.Of(cluster)
	limits, limited := Of(cluster.Annotations)
	path, err := pathOf(cluster)
	if !limited || err != nil {
		t.remove(name)
		return
	}
	known := t.entries[name]
	switch {
	case known != nil && known.path == path && known.limits == limits:
		return
	case known != nil && known.path == path:
		known.limits = limits
	default:
		t.remove(name)
		added := &entry{cluster: name, path: path, limits: limits, counted: make(chan struct{})}
		t.entries[name] = added
		if t.paths[path.String()] == nil {
			t.paths[path.String()] = map[logicalcluster.Name]*entry{}
		}
		t.paths[path.String()][name] = added
		t.restartWatch()
	}
	t.changed[name] = struct{}{}
}

// remove removes the entry of a logical cluster. Callers must hold mu.
func (t *Tracker) remove(name logicalcluster.Name) {
	known := t.entries[name]
	if known == nil {
		return
	}
	delete(t.entries, name)
	delete(t.paths[known.path.String()], name)
	if len(t.paths[known.path.String()]) == 0 {
		delete(t.paths, known.path.String())
	}
	t.changed[name] = struct{}{}
}

// restartWatch ends the watch of Workspaces. Callers must hold mu.
func (t *Tracker) restartWatch() {
	if t.restart != nil {
		t.restart()
	}
}

func (t *Tracker) watchWorkspaces(ctx context.Context) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	t.mu.Lock()
	t.restart = cancel
	t.mu.Unlock()
	return t.children.WatchAll(ctx)
}

// above returns the entries of a path and of all paths above it, the nearest first. Callers must hold mu.
func (t *Tracker) above(path logicalcluster.Path) []*entry {
	var found []*entry
	for ok := len(t.entries) > 0; ok; path, ok = path.Parent() {
		for _, e := range t.paths[path.String()] {
			found = append(found, e)
		}
	}
	return found
}

// pathOf returns the path of a logical cluster. One without the annotation has its name as path.
func pathOf(cluster *corev1alpha1.LogicalCluster) (logicalcluster.Path, error) {
	if path := cluster.Annotations[logicalcluster.PathAnnotationKey]; path != "" {
		return logicalcluster.ParsePath(path)
	}
	return logicalcluster.Of(cluster).Path(), nil
}
