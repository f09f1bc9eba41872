package shards

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/index"
)

// A store here is a reflector's store that stores nothing: it translates objects and hands them to the index.

// phaseScheduling and the empty phase are those of workspaces that do not lead anywhere yet.
const (
	phaseScheduling  = "Scheduling"
	phaseUnavailable = "Unavailable"
)

type workspaceStore struct {
	shard  string
	index  *index.Index
	health *health
}

var _ cache.ReflectorStore = workspaceStore{}

// translate returns what routing needs of the object. It fails for an object without a usable logical cluster.
func translate(o *workspaceObject) (index.Workspace, error) {
	parent, err := logicalcluster.ParseName(logicalcluster.Of(o).String())
	if err != nil {
		return index.Workspace{}, fmt.Errorf("workspace %q: annotation %s: %w", o.Name, logicalcluster.AnnotationKey, err)
	}
	w := index.Workspace{Parent: parent, Name: o.Name}
	if o.Status.Phase == "" || o.Status.Phase == phaseScheduling {
		return w, nil // known, but it leads nowhere
	}
	w.Unavailable = o.Status.Phase == phaseUnavailable
	switch {
	case o.Spec.Cluster != "":
		if w.Cluster, err = logicalcluster.ParseName(o.Spec.Cluster); err != nil {
			return index.Workspace{}, fmt.Errorf("workspace %q in %s: spec.cluster: %w", o.Name, parent, err)
		}
	case o.Spec.Mount != nil:
		w.Mount = o.Spec.URL
	}
	return w, nil
}

func (s workspaceStore) put(obj any) error {
	o, ok := obj.(*workspaceObject)
	if !ok {
		return fmt.Errorf("got %T, expected a Workspace", obj)
	}
	w, err := translate(o)
	if err != nil {
		return err
	}
	s.index.PutWorkspace(s.shard, w)
	return nil
}

func (s workspaceStore) Add(obj any) error    { return s.put(obj) }
func (s workspaceStore) Update(obj any) error { return s.put(obj) }

func (s workspaceStore) Delete(obj any) error {
	o, ok := obj.(*workspaceObject)
	if !ok {
		return fmt.Errorf("got %T, expected a Workspace", obj)
	}
	s.index.DeleteWorkspace(s.shard, logicalcluster.Of(o), o.Name)
	return nil
}

func (s workspaceStore) Replace(objs []any, _ string) error {
	workspaces := make([]index.Workspace, 0, len(objs))
	for _, obj := range objs {
		o, ok := obj.(*workspaceObject)
		if !ok {
			return fmt.Errorf("got %T, expected a Workspace", obj)
		}
		w, err := translate(o)
		if err != nil {
			// One odd object must not hide all others of its shard.
			klog.ErrorS(err, "Ignoring a workspace", "shard", s.shard)
			continue
		}
		workspaces = append(workspaces, w)
	}
	s.index.ReplaceWorkspaces(s.shard, workspaces)
	s.health.set(true, nil)
	return nil
}

func (s workspaceStore) Resync() error { return nil }

type clusterStore struct {
	shard  string
	index  *index.Index
	health *health
}

var _ cache.ReflectorStore = clusterStore{}

func clusterOf(obj any) (index.Cluster, error) {
	o, ok := obj.(*clusterObject)
	if !ok {
		return index.Cluster{}, fmt.Errorf("got %T, expected a LogicalCluster", obj)
	}
	name, err := logicalcluster.ParseName(logicalcluster.Of(o).String())
	if err != nil {
		return index.Cluster{}, fmt.Errorf("logical cluster: annotation %s: %w", logicalcluster.AnnotationKey, err)
	}
	return index.Cluster{Name: name, Type: o.Annotations[corev1alpha1.LogicalClusterTypeAnnotationKey]}, nil
}

func (s clusterStore) put(obj any) error {
	cluster, err := clusterOf(obj)
	if err != nil {
		return err
	}
	s.index.PutCluster(s.shard, cluster)
	return nil
}

func (s clusterStore) Add(obj any) error    { return s.put(obj) }
func (s clusterStore) Update(obj any) error { return s.put(obj) }

func (s clusterStore) Delete(obj any) error {
	cluster, err := clusterOf(obj)
	if err != nil {
		return err
	}
	s.index.DeleteCluster(s.shard, cluster.Name)
	return nil
}

func (s clusterStore) Replace(objs []any, _ string) error {
	clusters := make([]index.Cluster, 0, len(objs))
	for _, obj := range objs {
		cluster, err := clusterOf(obj)
		if err != nil {
			klog.ErrorS(err, "Ignoring a logical cluster", "shard", s.shard)
			continue
		}
		clusters = append(clusters, cluster)
	}
	s.index.ReplaceClusters(s.shard, clusters)
	s.health.set(true, nil)
	return nil
}

func (s clusterStore) Resync() error { return nil }

// readAnnotations returns the annotations that are read.
func readAnnotations(annotations map[string]string) map[string]string {
	var kept map[string]string
	for _, key := range []string{logicalcluster.AnnotationKey, corev1alpha1.LogicalClusterTypeAnnotationKey} {
		if value, ok := annotations[key]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}
