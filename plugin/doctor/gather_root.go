package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// treeReader reads workspaces from root downwards, through the front proxy, with four lists for each: a front proxy sends no request to all
// logical clusters. Their number is limited.
type treeReader struct {
	*gatherer
	next []logicalcluster.Path
}

func (g *gatherer) readFromRoot(ctx context.Context) {
	r := &treeReader{gatherer: g}
	level, read := []logicalcluster.Path{logicalcluster.Root.Path()}, 0
	for len(level) > 0 && read < g.maxWorkspaces && ctx.Err() == nil {
		now := level[:min(len(level), g.maxWorkspaces-read, concurrentServers)]
		level = level[len(now):]
		g.limited(len(now), func(i int) { r.read(ctx, now[i]) })
		read += len(now)
		g.progress("Reading workspaces from root downwards: %d", read)
		if len(level) == 0 {
			slices.SortFunc(r.next, func(a, b logicalcluster.Path) int { return strings.Compare(a.String(), b.String()) })
			level, r.next = r.next, nil
		}
	}
	missing := []Unread{{What: "home workspaces, which cannot be reached from root: --shards-kubeconfig reads all"}}
	if left := len(level) + len(r.next); left > 0 {
		missing = append(missing, Unread{What: fmt.Sprintf("%d workspaces and what is below them, by --max-workspaces=%d and --timeout", left, g.maxWorkspaces)})
	}
	for _, area := range []Area{AreaTree, AreaExports, AreaBindings} {
		g.miss(area, missing...)
	}
}

func (r *treeReader) read(ctx context.Context, path logicalcluster.Path) {
	at := path.String()
	r.list(ctx, path, AreaTree, connection.Workspaces, func(object *unstructured.Unstructured) error {
		workspace, err := workspaceOf(object)
		if err != nil {
			return err
		}
		workspace.Path = at
		r.record(func(f *Facts) {
			f.Workspaces = append(f.Workspaces, workspace)
			if workspace.Phase == string(corev1alpha1.LogicalClusterPhaseReady) && !workspace.IsMount {
				r.next = append(r.next, path.Join(workspace.Name))
			}
		})
		return nil
	})
	r.list(ctx, path, AreaExports, connection.APIExports, func(object *unstructured.Unstructured) error {
		export, err := exportOf(object)
		export.Path = at
		r.record(func(f *Facts) { f.Exports = append(f.Exports, export) })
		return err
	})
	r.list(ctx, path, AreaExports, slicesResource, func(object *unstructured.Unstructured) error {
		slice, err := sliceOf(object, r.facts.Shards)
		slice.Path = at
		r.record(func(f *Facts) { f.Slices = append(f.Slices, slice) })
		return err
	})
	r.list(ctx, path, AreaBindings, connection.APIBindings, func(object *unstructured.Unstructured) error {
		binding, err := bindingOf(object)
		binding.Path = at
		r.record(func(f *Facts) { f.Bindings = append(f.Bindings, binding) })
		return err
	})
}

// list reads a resource of a workspace. One that the workspace does not have, or that is gone meanwhile, has no objects.
func (r *treeReader) list(ctx context.Context, path logicalcluster.Path, area Area, resource schema.GroupVersionResource, do func(*unstructured.Unstructured) error) {
	client, err := r.installation.Resource(path, resource)
	if err == nil {
		err = each(ctx, client, "", do)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		r.miss(area, Unread{What: "the " + resource.Resource + " in " + path.String(), Reason: err.Error()})
	}
}
