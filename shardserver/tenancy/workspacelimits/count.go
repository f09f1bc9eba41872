package workspacelimits

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// replaceWorkspaces counts all Workspaces of this shard for all entries. If a path cannot be read, the counts stay and the
// informer lists again: a count without the Workspaces of one logical cluster would let its tree exceed the limit.
func (t *Tracker) replaceWorkspaces(ctx context.Context, all []*tenancyv1alpha1.Workspace, _ string) error {
	paths := map[logicalcluster.Name]logicalcluster.Path{}
	if t.hasEntries() {
		for _, workspace := range all {
			cluster := logicalcluster.Of(workspace)
			if _, known := paths[cluster]; !known {
				path, _, err := t.readPath(ctx, cluster)
				if err != nil {
					return err
				}
				paths[cluster] = path
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before := map[logicalcluster.Name]int64{}
	for name, e := range t.entries {
		before[name], e.stored = e.stored, 0
	}
	for _, workspace := range all {
		cluster := logicalcluster.Of(workspace)
		delete(t.reserved, workspaceKey{cluster, workspace.Name})
		path, known := paths[cluster]
		if !known || path.Empty() {
			continue
		}
		for _, e := range t.above(path) {
			e.stored++
		}
	}
	if len(paths) == 0 && len(all) > 0 && len(t.entries) > 0 {
		t.restartWatch() // the first limit was set since
		return nil
	}
	for name, e := range t.entries {
		if !e.isCounted() {
			close(e.counted)
			t.changed[name] = struct{}{}
		}
		if e.stored != before[name] {
			t.changed[name] = struct{}{}
		}
	}
	return nil
}

func (t *Tracker) addWorkspace(ctx context.Context, workspace *tenancyv1alpha1.Workspace) error {
	t.count(ctx, workspace, 1)
	return nil
}

func (t *Tracker) deleteWorkspace(ctx context.Context, workspace *tenancyv1alpha1.Workspace) error {
	t.count(ctx, workspace, -1)
	return nil
}

// count adds to the counts of all entries above a Workspace. The LogicalCluster that contains it may be gone in another
// cache than that of the event, or the cache may fail: then all Workspaces are counted again.
func (t *Tracker) count(ctx context.Context, workspace *tenancyv1alpha1.Workspace, number int64) {
	cluster := logicalcluster.Of(workspace)
	var path logicalcluster.Path
	found := false
	if t.hasEntries() {
		var err error
		if path, found, err = t.readPath(ctx, cluster); err != nil {
			klog.FromContext(ctx).V(2).Info("Counting all workspaces again", "cluster", cluster, "err", err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if number > 0 { // a deletion is of a Workspace that was stored before the reservation of its name
		delete(t.reserved, workspaceKey{cluster, workspace.Name})
	}
	if !found {
		t.recount = t.recount || len(t.entries) > 0
		return
	}
	t.add(path, number)
}

// add adds to the counts of all entries of a path and above. A count below zero shows that the one before was wrong.
// Callers must hold mu.
func (t *Tracker) add(path logicalcluster.Path, number int64) {
	for _, e := range t.above(path) {
		e.stored += number
		if e.stored < 0 {
			e.stored, t.recount = 0, true
		}
		t.changed[e.cluster] = struct{}{}
	}
}

func (t *Tracker) hasEntries() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries) > 0
}

// readPath returns the path of a logical cluster of this shard; false if the logical cluster is not here, is moving, or has
// no valid path, so that it has no limits.
func (t *Tracker) readPath(ctx context.Context, name logicalcluster.Name) (logicalcluster.Path, bool, error) {
	ctx = logicalcluster.With(ctx, name)
	cluster, err := t.local.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		cluster, err = t.local.GetLatest(ctx, "", corev1alpha1.LogicalClusterName)
	}
	if apierrors.IsNotFound(err) {
		return logicalcluster.Path{}, false, nil
	}
	if err != nil {
		return logicalcluster.Path{}, false, fmt.Errorf("reading the path of logical cluster %s: %w", name, err)
	}
	path, err := pathOf(cluster)
	return path, err == nil, nil
}
