package moves

import (
	"cmp"
	"context"
	"fmt"
	"math"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/placementrules"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// LogicalCluster is a logical cluster on a shard.
type LogicalCluster struct {
	Name logicalcluster.Name
	Path string
	// Owner is nil without one.
	Owner    *corev1alpha1.LogicalClusterOwner
	Phase    corev1alpha1.LogicalClusterPhaseType
	Deleting bool
	// Objects is the number of its objects; UnknownSize if they have not been counted.
	Objects int64
	// Workspace is its Workspace, if it has been read.
	Workspace *tenancyv1alpha1.Workspace
}

// UnknownSize is the number of objects of a logical cluster whose objects have not been counted. It is more than any other number.
const UnknownSize = math.MaxInt64

// String returns the path, or the name of a logical cluster without one.
func (l LogicalCluster) String() string { return cmp.Or(l.Path, l.Name.String()) }

// IsSystem reports whether a logical cluster belongs to its shard.
func (l LogicalCluster) IsSystem() bool { return l.Name == logicalcluster.Root || l.Name.IsSystem() }

// Refusal returns why a logical cluster cannot be moved to any shard as it is, or "".
func (l LogicalCluster) Refusal() string {
	switch {
	case l.Deleting:
		return "it is being deleted"
	case l.Owner == nil:
		return "it has no Workspace, so that nobody could find it on another shard: delete it when its content is elsewhere"
	case l.Phase != corev1alpha1.LogicalClusterPhaseReady:
		return fmt.Sprintf("it is in phase %s, not Ready", l.Phase)
	}
	return ""
}

// Inventory is what is on a shard.
type Inventory struct {
	LogicalClusters []LogicalCluster
	// Unread are messages about what could not be read, so that more may be on the shard.
	Unread []string
}

// List reads what is on a shard with a client of all its logical clusters, which needs system:masters of that shard.
func List(ctx context.Context, all dynamic.Interface) (Inventory, error) {
	var found Inventory
	err := ForEach(ctx, all.Resource(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")), metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		cluster := &corev1alpha1.LogicalCluster{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, cluster); err != nil {
			return err
		}
		found.LogicalClusters = append(found.LogicalClusters, LogicalCluster{
			Name: logicalcluster.Of(cluster), Path: cluster.Annotations[corev1alpha1.LogicalClusterPathAnnotationKey],
			Objects: UnknownSize, Owner: cluster.Spec.Owner, Phase: cluster.Status.Phase, Deleting: cluster.DeletionTimestamp != nil,
		})
		return nil
	})
	if err != nil {
		return Inventory{}, fmt.Errorf("reading the logical clusters of the shard: %w", err)
	}
	return found, nil
}

// RefusedError is the error of a logical cluster that cannot be moved.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// maxSingleReads is the number of Workspaces of a parent that are read one by one, before all of it are read.
const maxSingleReads = 20

// Selectors returns the selectors of shards of logical clusters. It reads their Workspaces, and keeps those of a parent that has many: use
// another one for every decision.
type Selectors struct {
	At ClientFunc

	reads  map[string]int
	listed map[string]map[string]*tenancyv1alpha1.Workspace
}

// Of returns the selector of a logical cluster. One whose Workspace does not exist can be on any shard. A *RefusedError is why it cannot move.
func (s *Selectors) Of(ctx context.Context, cluster LogicalCluster) (labels.Selector, error) {
	workspace := cluster.Workspace
	if workspace == nil {
		var err error
		if workspace, err = s.workspaceOf(ctx, cluster); err != nil {
			return nil, err
		}
		if workspace == nil || workspace.Spec.Cluster != cluster.Name.String() {
			return labels.Everything(), nil // nothing selects shards for what it has left, or another one has its name
		}
	}
	selector, err := placementrules.Selector(workspace)
	if err != nil {
		return nil, &RefusedError{err.Error() + ": change it"}
	}
	return selector, nil
}

// workspaceOf returns the Workspace of a logical cluster, nil if it does not exist.
func (s *Selectors) workspaceOf(ctx context.Context, cluster LogicalCluster) (*tenancyv1alpha1.Workspace, error) {
	parent, err := logicalcluster.ParseName(cluster.Owner.Cluster)
	if err != nil {
		return nil, &RefusedError{fmt.Sprintf("its spec.owner.cluster is %q, which is no logical cluster: delete it", cluster.Owner.Cluster)}
	}
	client, err := s.At(parent.Path())
	if err != nil {
		return nil, err
	}
	if s.reads == nil {
		s.reads, s.listed = map[string]int{}, map[string]map[string]*tenancyv1alpha1.Workspace{}
	}
	if s.reads[cluster.Owner.Cluster]++; s.reads[cluster.Owner.Cluster] > maxSingleReads {
		all, err := s.list(ctx, client, cluster.Owner.Cluster)
		return all[cluster.Owner.Name], err
	}
	object, err := client.Resource(workspacesResource).Get(ctx, cluster.Owner.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	workspace := &tenancyv1alpha1.Workspace{}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, workspace)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Workspace of %s: %w", cluster, err)
	}
	return workspace, nil
}

func (s *Selectors) list(ctx context.Context, client dynamic.Interface, parent string) (map[string]*tenancyv1alpha1.Workspace, error) {
	if all := s.listed[parent]; all != nil {
		return all, nil
	}
	all := map[string]*tenancyv1alpha1.Workspace{}
	err := ForEach(ctx, client.Resource(workspacesResource), metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		workspace := &tenancyv1alpha1.Workspace{}
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, workspace)
		all[object.GetName()] = workspace
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the Workspaces in %s: %w", parent, err)
	}
	s.listed[parent] = all
	return all, nil
}
