package moves

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/placementrules"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// walkers is the number of workspaces that a walk reads at a time.
const walkers = 8

// Walk finds what is on a shard by reading the tree of workspaces from root, one request for each workspace of the installation: for
// those who reach it through a front proxy only, where no request reads all logical clusters of a shard. It does not find what has no
// path from root: home workspaces, and what is below them. observe is called with the number of workspaces that have been read.
func Walk(ctx context.Context, at ClientFunc, shard string, observe func(read int)) (Inventory, error) {
	w := &walk{at: at, shard: shard}
	level := []node{{cluster: logicalcluster.Root, path: logicalcluster.Root.Path()}}
	for read := 0; len(level) > 0; {
		var next []node
		for batch := range slices.Chunk(level, walkers) {
			next = append(next, w.readAll(ctx, batch)...)
			if err := ctx.Err(); err != nil {
				return Inventory{}, err
			}
			if w.rootErr != nil {
				return Inventory{}, w.rootErr
			}
			read += len(batch)
			observe(read)
		}
		level = next
	}
	return w.found, nil
}

// node is a workspace whose children are to be read.
type node struct {
	cluster logicalcluster.Name
	path    logicalcluster.Path
}

type walk struct {
	at    ClientFunc
	shard string

	mu      sync.Mutex
	found   Inventory
	rootErr error
}

// readAll reads workspaces at the same time, and returns their children.
func (w *walk) readAll(ctx context.Context, batch []node) []node {
	children := make([][]node, len(batch))
	var all sync.WaitGroup
	for i, parent := range batch {
		all.Go(func() { children[i] = w.read(ctx, parent) })
	}
	all.Wait()
	return slices.Concat(children...)
}

// read records the children of a workspace that are on the shard, and returns all.
func (w *walk) read(ctx context.Context, parent node) []node {
	var children []node
	client, err := w.at(parent.cluster.Path())
	if err == nil {
		err = ForEach(ctx, client.Resource(workspacesResource), metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
			workspace := &tenancyv1alpha1.Workspace{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, workspace); err != nil {
				return err
			}
			name, err := logicalcluster.ParseName(workspace.Spec.Cluster)
			if err != nil {
				return nil //nolint:nilerr // it is a mount, or is not scheduled
			}
			child := node{cluster: name, path: parent.path.Join(workspace.Name)}
			children = append(children, child)
			w.record(parent, child, workspace)
			return nil
		})
	}
	switch {
	case err == nil, apierrors.IsNotFound(err): // it is being deleted, or has no API of workspaces
	case parent.cluster == logicalcluster.Root:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.rootErr = fmt.Errorf("reading the workspaces in root: %w", err)
	default:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.found.Unread = append(w.found.Unread, fmt.Sprintf("the workspaces below %s: %v", parent.path, err))
	}
	return children
}

// record adds a workspace to the inventory, with what decides about its shard only.
func (w *walk) record(parent, child node, workspace *tenancyv1alpha1.Workspace) {
	if placementrules.ShardOf(workspace, w.shard) != w.shard {
		return
	}
	small := &tenancyv1alpha1.Workspace{}
	small.Spec.Location = workspace.Spec.Location
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found.LogicalClusters = append(w.found.LogicalClusters, LogicalCluster{
		Name: child.cluster, Objects: UnknownSize, Path: child.path.String(), Phase: workspace.Status.Phase, Deleting: workspace.DeletionTimestamp != nil, Workspace: small,
		Owner: &corev1alpha1.LogicalClusterOwner{Cluster: parent.cluster.String(), Name: workspace.Name, UID: workspace.UID},
	})
}
