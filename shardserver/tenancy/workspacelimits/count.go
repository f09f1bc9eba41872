package workspacelimits

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// replaceWorkspaces counts all Workspaces of this shard for all entries.
func (t *Tracker) replaceWorkspaces(ctx context.Context, all []*tenancyv1alpha1.Workspace, _ string) error {
	paths := map[logicalcluster.Name]logicalcluster.Path{}
	if t.hasEntries() {
		for _, workspace := range all {
			cluster := logicalcluster.Of(workspace)
			if _, known := paths[cluster]; !known {
				paths[cluster], _ = t.readPath(ctx, cluster)
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
// cache than that of the event: then all Workspaces are counted again.
func (t *Tracker) count(ctx context.Context, workspace *tenancyv1alpha1.Workspace, number int64) {
	cluster := logicalcluster.Of(workspace)
	var path logicalcluster.Path
	found := false
	if t.hasEntries() {
		path, found = t.readPath(ctx, cluster)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.reserved, workspaceKey{cluster, workspace.Name})
	if !found {
		t.recount = t.recount || len(t.entries) > 0
		return
	}
	for _, e := range t.above(path) {
		e.stored += number
		t.changed[e.cluster] = struct{}{}
	}
}

func (t *Tracker) hasEntries() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries) > 0
}

// readPath returns the path of a logical cluster of this shard; false if the logical cluster is not here, or is moving.
func (t *Tracker) readPath(ctx context.Context, name logicalcluster.Name) (logicalcluster.Path, bool) {
	ctx = logicalcluster.With(ctx, name)
	cluster, err := t.local.Get(ctx, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		cluster, err = t.local.GetLatest(ctx, "", corev1alpha1.LogicalClusterName)
	}
	if err != nil {
		return logicalcluster.Path{}, false
	}
	path, err := pathOf(cluster)
	return path, err == nil
}
