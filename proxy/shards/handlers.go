package shards

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/index"
)

// handler is an eventHandler without a store: it converts objects to T and passes them on.
type handler[T any] struct {
	convert func(runtime.Object) (T, error)
	put     func(T)
	remove  func(T)
	replace func([]T)

	// listed has the objects of a list that is not complete.
	listed []T
}

var _ eventHandler = &handler[string]{}

func (h *handler[T]) onListStart() { h.listed = nil }

func (h *handler[T]) onListPage(objects []runtime.Object) {
	for _, object := range objects {
		converted, err := h.convert(object)
		if err != nil {
			// One invalid object must not affect the others of its shard.
			klog.ErrorS(err, "Ignoring an invalid object of a list")
			continue
		}
		h.listed = append(h.listed, converted)
	}
}

func (h *handler[T]) onListEnd() {
	h.replace(h.listed)
	h.listed = nil
}

func (h *handler[T]) onPut(object runtime.Object) error {
	converted, err := h.convert(object)
	if err == nil {
		h.put(converted)
	}
	return err
}

func (h *handler[T]) onDelete(object runtime.Object) error {
	converted, err := h.convert(object)
	if err == nil {
		h.remove(converted)
	}
	return err
}

func newWorkspaceHandler(shard string, idx *index.Index) *handler[index.Workspace] {
	return &handler[index.Workspace]{
		convert: toWorkspace,
		put:     func(w index.Workspace) { idx.PutWorkspace(shard, w) },
		remove:  func(w index.Workspace) { idx.DeleteWorkspace(shard, w.Parent, w.Name) },
		replace: func(all []index.Workspace) { idx.ReplaceWorkspaces(shard, all) },
	}
}

func newClusterHandler(shard string, idx *index.Index) *handler[index.Cluster] {
	return &handler[index.Cluster]{
		convert: toCluster,
		put:     func(c index.Cluster) { idx.PutCluster(shard, c) },
		remove:  func(c index.Cluster) { idx.DeleteCluster(shard, c.Name) },
		replace: func(all []index.Cluster) { idx.ReplaceClusters(shard, all) },
	}
}

// toWorkspace returns an error for an object without a valid logical cluster.
func toWorkspace(object runtime.Object) (index.Workspace, error) {
	o, ok := object.(*workspaceObject)
	if !ok {
		return index.Workspace{}, fmt.Errorf("got %T, expected a Workspace", object)
	}
	parent, err := logicalcluster.ParseName(logicalcluster.Of(o).String())
	if err != nil {
		return index.Workspace{}, fmt.Errorf("workspace %q: annotation %s: %w", o.Name, logicalcluster.AnnotationKey, err)
	}
	record, _ := sharedindex.WorkspaceDestination(o.Status.Phase, o.Spec.Cluster, o.Annotations[corev1alpha1.ShardAnnotationKey], o.Spec.URL, o.Spec.Mount != nil)
	return toIndexWorkspace(parent, o.Name, record)
}

// toIndexWorkspace returns the workspace of a record, which is not routable if the record is empty.
func toIndexWorkspace(parent logicalcluster.Name, name string, record sharedindex.Workspace) (index.Workspace, error) {
	w := index.Workspace{Parent: parent, Name: name, Shard: record.Shard, Mount: record.Mount, Unavailable: record.Unavailable}
	if record.Cluster == "" {
		return w, nil
	}
	var err error
	if w.Cluster, err = logicalcluster.ParseName(record.Cluster); err != nil {
		return index.Workspace{}, fmt.Errorf("workspace %q in %s: spec.cluster: %w", name, parent, err)
	}
	return w, nil
}

// toCluster converts a LogicalCluster from its metadata.
func toCluster(object runtime.Object) (index.Cluster, error) {
	o, ok := object.(metav1.Object)
	if !ok {
		return index.Cluster{}, fmt.Errorf("got %T, expected a LogicalCluster", object)
	}
	name, err := logicalcluster.ParseName(logicalcluster.Of(o).String())
	if err != nil {
		return index.Cluster{}, fmt.Errorf("logical cluster: annotation %s: %w", logicalcluster.AnnotationKey, err)
	}
	return index.Cluster{Name: name, Type: o.GetAnnotations()[corev1alpha1.LogicalClusterTypeAnnotationKey]}, nil
}

func toShard(object runtime.Object) (*shardObject, error) {
	o, ok := object.(*shardObject)
	if !ok {
		return nil, fmt.Errorf("got %T, expected a Shard", object)
	}
	return o, nil
}
