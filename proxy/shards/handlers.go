package shards

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/reflector"
	"github.com/atoll-dev/atoll/internal/sharedindex"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/index"
)

// handler is a reflector.Handler without a store: it converts objects to T and passes them on.
type handler[T any] struct {
	*resourceStatus
	convert func(runtime.Object) (T, error)
	put     func(T)
	remove  func(T)
	replace func([]T)

	// listed has the objects of a list that is not complete.
	listed []T
}

var _ reflector.Handler = &handler[string]{}

// OnListStart implements reflector.Handler.
func (h *handler[T]) OnListStart() { h.listed = nil }

// OnListPage implements reflector.Handler. An invalid object is logged and skipped, so that it does not affect others.
func (h *handler[T]) OnListPage(objects []runtime.Object) {
	for _, object := range objects {
		converted, err := h.convert(object)
		if err != nil {
			h.logInvalid(err)
			continue
		}
		h.listed = append(h.listed, converted)
	}
}

// OnListDone implements reflector.Handler.
func (h *handler[T]) OnListDone(string) {
	h.replace(h.listed)
	h.listed = nil
	h.OnConnect()
}

// OnEvent implements reflector.Handler. An invalid object is logged and skipped, so that it does not affect others.
func (h *handler[T]) OnEvent(event watch.Event, _ string) {
	apply := h.put
	switch event.Type {
	case watch.Added, watch.Modified:
	case watch.Deleted:
		apply = h.remove
	default:
		return
	}
	converted, err := h.convert(event.Object)
	if err != nil {
		h.logInvalid(err)
		return
	}
	apply(converted)
}

func (h *handler[T]) logInvalid(err error) {
	klog.ErrorS(err, "Ignoring an invalid object", "shard", h.shard, "resource", h.resource)
}

func newWorkspaceHandler(status *resourceStatus, idx *index.Index) *handler[index.Workspace] {
	return &handler[index.Workspace]{
		resourceStatus: status,
		convert:        toWorkspace,
		put:            func(w index.Workspace) { idx.PutWorkspace(status.shard, w) },
		remove:         func(w index.Workspace) { idx.DeleteWorkspace(status.shard, w.Parent, w.Name) },
		replace:        func(all []index.Workspace) { idx.ReplaceWorkspaces(status.shard, all) },
	}
}

func newClusterHandler(status *resourceStatus, idx *index.Index) *handler[index.Cluster] {
	return &handler[index.Cluster]{
		resourceStatus: status,
		convert:        toCluster,
		put:            func(c index.Cluster) { idx.PutCluster(status.shard, c) },
		remove:         func(c index.Cluster) { idx.DeleteCluster(status.shard, c.Name) },
		replace:        func(all []index.Cluster) { idx.ReplaceClusters(status.shard, all) },
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

// toIndexCluster returns the logical cluster of a record.
func toIndexCluster(name logicalcluster.Name, record sharedindex.Cluster) index.Cluster {
	return index.Cluster{Name: name, Type: record.Type, MovedTo: record.MovedTo}
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
	record, ok := sharedindex.LogicalCluster(o.GetAnnotations())
	c := toIndexCluster(name, record)
	c.Arriving = !ok
	return c, nil
}

func toShard(object runtime.Object) (*shardObject, error) {
	o, ok := object.(*shardObject)
	if !ok {
		return nil, fmt.Errorf("got %T, expected a Shard", object)
	}
	return o, nil
}
