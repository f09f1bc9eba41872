package placement

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Inquiry is what a shard knows of a logical cluster that another shard may have asked it for.
type Inquiry struct {
	// Own is the name of this shard.
	Own string
	// Parent and Workspace say for which workspace of another shard, Cluster is the logical cluster.
	Parent    logicalcluster.Name
	Workspace string
	Cluster   logicalcluster.Name
	// Request is what stands under the name for these, whoever is asked; nil if nothing does.
	Request *shardingv1alpha1.LogicalClusterRequest
	// LogicalCluster is as it is stored, consistently where it is missing; nil if there is none.
	LogicalCluster *corev1alpha1.LogicalCluster
	// Full says why this shard takes no new logical clusters; empty if it does.
	Full string
}

// Step is what a shard does about an inquiry.
type Step string

// Steps.
const (
	Nothing Step = ""
	Create  Step = "Create"
	Delete  Step = "Delete"
)

// Step returns what to do now.
func (i Inquiry) Step() Step {
	request := i.request()
	switch {
	case request == nil:
		return Nothing
	case request.Spec.Delete && i.owned() && i.LogicalCluster.DeletionTimestamp == nil:
		return Delete
	case !request.Spec.Delete && request.Spec.Template != nil && i.refusal() == nil && i.LogicalCluster == nil:
		return Create
	}
	return Nothing
}

// Report returns what to publish, or nil where there is nothing to tell.
func (i Inquiry) Report() *shardingv1alpha1.LogicalClusterReport {
	request := i.request()
	switch {
	case i.reported() && (i.owned() || hasNews(i.exists())):
		return i.exists()
	case request == nil:
		return nil
	case request.Spec.Delete || request.Spec.Template == nil:
		return i.answer(shardingv1alpha1.LogicalClusterReportSpec{State: shardingv1alpha1.LogicalClusterGone})
	}
	if refusal := i.refusal(); refusal != nil {
		return i.answer(*refusal)
	}
	return nil // it is about to be made
}

// Confirmed tells whether the workspace leads to the logical cluster. It is ready only then.
func (i Inquiry) Confirmed() bool {
	return i.owned() && i.request().Spec.Confirmed == i.LogicalCluster.UID
}

// Released tells whether the shard of the workspace knows of the end of the logical cluster.
func (i Inquiry) Released() bool { return i.owned() && i.request().Spec.Delete }

// Refused tells whether there is a request for a new logical cluster that is refused now.
func (i Inquiry) Refused() bool {
	request := i.request()
	return request != nil && !request.Spec.Delete && request.Spec.Template != nil && i.refusal() != nil
}

// New returns the LogicalCluster that is asked for.
func (i Inquiry) New() *corev1alpha1.LogicalCluster {
	request := i.request()
	cluster := &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: corev1alpha1.LogicalClusterName,
			Annotations: map[string]string{
				corev1alpha1.ShardAnnotationKey:      i.Own,
				corev1alpha1.OwnerShardAnnotationKey: request.Annotations[publisherAnnotation],
			},
			Finalizers: []string{corev1alpha1.LogicalClusterDeletionFinalizer},
		},
		Spec: *request.Spec.Template.DeepCopy(),
	}
	cluster.Spec.Owner = request.Spec.Owner.DeepCopy()
	for _, key := range requested {
		if value, ok := request.Spec.Annotations[key]; ok {
			cluster.Annotations[key] = value
		}
	}
	return cluster
}

// requested are the annotations that the shard of a workspace decides about.
var requested = []string{
	corev1alpha1.LogicalClusterPathAnnotationKey,
	corev1alpha1.LogicalClusterTypeAnnotationKey,
	corev1alpha1.RequiredGroupsAnnotationKey,
	tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey,
}

// request returns the request if it was made to this shard and says of itself what its place says; else nil.
func (i Inquiry) request() *shardingv1alpha1.LogicalClusterRequest {
	request := i.Request
	if request == nil || request.Spec.Shard != i.Own || request.Spec.Cluster != i.Cluster.String() ||
		request.Spec.Owner.Cluster != i.Parent.String() || request.Spec.Owner.Name != i.Workspace || request.Annotations[publisherAnnotation] == "" {
		return nil
	}
	return request
}

// owned tells whether the logical cluster was made for the workspace that the request is for, and asked for by the same
// shard.
func (i Inquiry) owned() bool {
	request := i.request()
	if request == nil || i.LogicalCluster == nil {
		return false
	}
	shard, ok := Remote(i.LogicalCluster)
	return ok && shard == request.Annotations[publisherAnnotation] && OwnedBy(i.LogicalCluster, request.Spec.Owner)
}

// reported tells whether there is a logical cluster that was made for a workspace of that name on another shard.
func (i Inquiry) reported() bool {
	if i.LogicalCluster == nil {
		return false
	}
	_, ok := Remote(i.LogicalCluster)
	owner := i.LogicalCluster.Spec.Owner
	return ok && owner.Cluster == i.Parent.String() && owner.Name == i.Workspace
}

// refusal says why a new logical cluster is not made; nil if nothing speaks against it.
func (i Inquiry) refusal() *shardingv1alpha1.LogicalClusterReportSpec {
	refuse := func(reason, message string) *shardingv1alpha1.LogicalClusterReportSpec {
		return &shardingv1alpha1.LogicalClusterReportSpec{State: shardingv1alpha1.LogicalClusterRefused, Reason: reason, Message: message}
	}
	switch {
	case i.Cluster == logicalcluster.Root || i.Cluster.IsSystem():
		return refuse(shardingv1alpha1.ReasonNameTaken, fmt.Sprintf("the name %q is reserved", i.Cluster))
	case i.LogicalCluster != nil && !i.owned():
		return refuse(shardingv1alpha1.ReasonNameTaken, fmt.Sprintf("the name %q is taken", i.Cluster))
	case i.LogicalCluster == nil && i.Full != "":
		return refuse(shardingv1alpha1.ReasonShardFull, i.Full)
	}
	return nil
}

// exists describes the logical cluster.
func (i Inquiry) exists() *shardingv1alpha1.LogicalClusterReport {
	cluster := i.LogicalCluster
	shard, _ := Remote(cluster)
	report := newReport(i.Parent, *cluster.Spec.Owner)
	report.Spec = shardingv1alpha1.LogicalClusterReportSpec{
		Owner:        *cluster.Spec.Owner,
		Shard:        shard,
		State:        shardingv1alpha1.LogicalClusterExists,
		UID:          cluster.UID,
		Deleting:     cluster.DeletionTimestamp != nil,
		Phase:        cluster.Status.Phase,
		Initializers: slices.Clone(cluster.Status.Initializers),
		Terminators:  slices.Clone(cluster.Status.Terminators),
	}
	for _, condition := range mirrored {
		if found := conditionsv1alpha1.Get(cluster, condition); found != nil {
			report.Spec.Conditions = append(report.Spec.Conditions, *found.DeepCopy())
		}
	}
	return report
}

// mirrored are the conditions of a logical cluster that its workspace shows, or is shown by.
var mirrored = []conditionsv1alpha1.Type{corev1alpha1.APIBindingsInitialized, corev1alpha1.WorkspaceContentDeleted}

// answer completes an answer to the request.
func (i Inquiry) answer(spec shardingv1alpha1.LogicalClusterReportSpec) *shardingv1alpha1.LogicalClusterReport {
	request := i.request()
	report := newReport(i.Parent, request.Spec.Owner)
	spec.Owner, spec.Shard = request.Spec.Owner, request.Annotations[publisherAnnotation]
	report.Spec = spec
	return report
}

func newReport(parent logicalcluster.Name, owner corev1alpha1.LogicalClusterOwner) *shardingv1alpha1.LogicalClusterReport {
	return &shardingv1alpha1.LogicalClusterReport{ObjectMeta: metav1.ObjectMeta{Name: ReportName(parent, owner.Name)}}
}

// Describe returns the LogicalCluster of a report, as far as its workspace has to know it.
func Describe(report *shardingv1alpha1.LogicalClusterReport, workspace *tenancyv1alpha1.Workspace) *corev1alpha1.LogicalCluster {
	cluster := &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, UID: report.Spec.UID, CreationTimestamp: workspace.CreationTimestamp},
		Status: corev1alpha1.LogicalClusterStatus{
			Phase:        report.Spec.Phase,
			Initializers: report.Spec.Initializers,
			Terminators:  report.Spec.Terminators,
			Conditions:   report.Spec.Conditions,
		},
	}
	return cluster
}
