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

// store is a sink that stores nothing: it reads of an object what matters, T, and hands that on.
type store[T any] struct {
	read    func(runtime.Object) (T, error)
	putOne  func(T)
	drop    func(T)
	replace func([]T)

	// listed are the pages of a list until it is done.
	listed []T
}

var _ sink = &store[string]{}

func (s *store[T]) begin() { s.listed = nil }

func (s *store[T]) page(objects []runtime.Object) {
	for _, object := range objects {
		read, err := s.read(object)
		if err != nil {
			// One odd object must not hide all others of its shard.
			klog.ErrorS(err, "Ignoring an object of a list")
			continue
		}
		s.listed = append(s.listed, read)
	}
}

func (s *store[T]) done() {
	s.replace(s.listed)
	s.listed = nil
}

func (s *store[T]) put(object runtime.Object) error {
	read, err := s.read(object)
	if err == nil {
		s.putOne(read)
	}
	return err
}

func (s *store[T]) remove(object runtime.Object) error {
	read, err := s.read(object)
	if err == nil {
		s.drop(read)
	}
	return err
}

func newWorkspaceStore(shard string, idx *index.Index) *store[index.Workspace] {
	return &store[index.Workspace]{
		read:    workspaceOf,
		putOne:  func(w index.Workspace) { idx.PutWorkspace(shard, w) },
		drop:    func(w index.Workspace) { idx.DeleteWorkspace(shard, w.Parent, w.Name) },
		replace: func(all []index.Workspace) { idx.ReplaceWorkspaces(shard, all) },
	}
}

func newClusterStore(shard string, idx *index.Index) *store[index.Cluster] {
	return &store[index.Cluster]{
		read:    clusterOf,
		putOne:  func(c index.Cluster) { idx.PutCluster(shard, c) },
		drop:    func(c index.Cluster) { idx.DeleteCluster(shard, c.Name) },
		replace: func(all []index.Cluster) { idx.ReplaceClusters(shard, all) },
	}
}

// workspaceOf returns what routing needs of the object. It fails for an object without a usable logical cluster.
func workspaceOf(object runtime.Object) (index.Workspace, error) {
	o, ok := object.(*workspaceObject)
	if !ok {
		return index.Workspace{}, fmt.Errorf("got %T, expected a Workspace", object)
	}
	parent, err := logicalcluster.ParseName(logicalcluster.Of(o).String())
	if err != nil {
		return index.Workspace{}, fmt.Errorf("workspace %q: annotation %s: %w", o.Name, logicalcluster.AnnotationKey, err)
	}
	lead, _ := sharedindex.Lead(o.Status.Phase, o.Spec.Cluster, o.Annotations[corev1alpha1.ShardAnnotationKey], o.Spec.URL, o.Spec.Mount != nil)
	return leading(parent, o.Name, lead)
}

// leading returns what the index says of a workspace that leads somewhere, or nowhere.
func leading(parent logicalcluster.Name, name string, lead sharedindex.Workspace) (index.Workspace, error) {
	w := index.Workspace{Parent: parent, Name: name, Shard: lead.Shard, Mount: lead.Mount, Unavailable: lead.Unavailable}
	if lead.Cluster == "" {
		return w, nil
	}
	var err error
	if w.Cluster, err = logicalcluster.ParseName(lead.Cluster); err != nil {
		return index.Workspace{}, fmt.Errorf("workspace %q in %s: spec.cluster: %w", name, parent, err)
	}
	return w, nil
}

// clusterOf reads a LogicalCluster, of which the metadata is enough.
func clusterOf(object runtime.Object) (index.Cluster, error) {
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
