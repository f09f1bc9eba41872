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

// Responder is what a shard knows of a logical cluster that another shard may have asked it for.
type Responder struct {
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
func (r Responder) Step() Step {
	request := r.request()
	switch {
	case request == nil:
		return Nothing
	case request.Spec.Delete && r.owned() && r.LogicalCluster.DeletionTimestamp == nil:
		return Delete
	case !request.Spec.Delete && request.Spec.Template != nil && r.refusal() == nil && r.LogicalCluster == nil:
		return Create
	}
	return Nothing
}

// Report returns what to publish, or nil where there is nothing to tell.
func (r Responder) Report() *shardingv1alpha1.LogicalClusterReport {
	request := r.request()
	switch {
	case r.reported() && (r.owned() || mustBeReported(r.existingReport())):
		return r.existingReport()
	case request == nil:
		return nil
	case request.Spec.Delete || request.Spec.Template == nil:
		return r.reply(shardingv1alpha1.LogicalClusterReportSpec{State: shardingv1alpha1.LogicalClusterGone})
	}
	if refusal := r.refusal(); refusal != nil {
		return r.reply(*refusal)
	}
	return nil // it is about to be made
}

// Confirmed tells whether the workspace leads to the logical cluster. It is ready only then.
func (r Responder) Confirmed() bool {
	return r.owned() && r.request().Spec.Confirmed == r.LogicalCluster.UID
}

// Released tells whether the shard of the workspace knows of the end of the logical cluster.
func (r Responder) Released() bool { return r.owned() && r.request().Spec.Delete }

// Refused tells whether there is a request for a new logical cluster that is refused now.
func (r Responder) Refused() bool {
	request := r.request()
	return request != nil && !request.Spec.Delete && request.Spec.Template != nil && r.refusal() != nil
}

// New returns the LogicalCluster that is asked for.
func (r Responder) New() *corev1alpha1.LogicalCluster {
	request := r.request()
	cluster := &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: corev1alpha1.LogicalClusterName,
			Annotations: map[string]string{
				corev1alpha1.ShardAnnotationKey:      r.Own,
				corev1alpha1.OwnerShardAnnotationKey: request.Annotations[publisherAnnotation],
			},
			Finalizers: []string{corev1alpha1.LogicalClusterDeletionFinalizer},
		},
		Spec: *request.Spec.Template.DeepCopy(),
	}
	cluster.Spec.Owner = request.Spec.Owner.DeepCopy()
	for _, key := range requestedAnnotations {
		if value, ok := request.Spec.Annotations[key]; ok {
			cluster.Annotations[key] = value
		}
	}
	return cluster
}

// requested are the annotations that the shard of a workspace decides about.
var requestedAnnotations = []string{
	corev1alpha1.LogicalClusterPathAnnotationKey,
	corev1alpha1.LogicalClusterTypeAnnotationKey,
	corev1alpha1.RequiredGroupsAnnotationKey,
	tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey,
}

// request returns the request if it was made to this shard and says of itself what its place says; else nil.
func (r Responder) request() *shardingv1alpha1.LogicalClusterRequest {
	request := r.Request
	if request == nil || request.Spec.Shard != r.Own || request.Spec.Cluster != r.Cluster.String() ||
		request.Spec.Owner.Cluster != r.Parent.String() || request.Spec.Owner.Name != r.Workspace || request.Annotations[publisherAnnotation] == "" {
		return nil
	}
	return request
}

// owned tells whether the logical cluster was made for the workspace that the request is for, and asked for by the same
// shard.
func (r Responder) owned() bool {
	request := r.request()
	if request == nil || r.LogicalCluster == nil {
		return false
	}
	shard, ok := Remote(r.LogicalCluster)
	return ok && shard == request.Annotations[publisherAnnotation] && OwnedBy(r.LogicalCluster, request.Spec.Owner)
}

// reported tells whether there is a logical cluster that was made for a workspace of that name on another shard.
func (r Responder) reported() bool {
	if r.LogicalCluster == nil {
		return false
	}
	_, ok := Remote(r.LogicalCluster)
	owner := r.LogicalCluster.Spec.Owner
	return ok && owner.Cluster == r.Parent.String() && owner.Name == r.Workspace
}

// refusal says why a new logical cluster is not made; nil if nothing speaks against it.
func (r Responder) refusal() *shardingv1alpha1.LogicalClusterReportSpec {
	refuse := func(reason, message string) *shardingv1alpha1.LogicalClusterReportSpec {
		return &shardingv1alpha1.LogicalClusterReportSpec{State: shardingv1alpha1.LogicalClusterRefused, Reason: reason, Message: message}
	}
	switch {
	case r.Cluster == logicalcluster.Root || r.Cluster.IsSystem():
		return refuse(shardingv1alpha1.ReasonNameTaken, fmt.Sprintf("the name %q is reserved", r.Cluster))
	case r.LogicalCluster != nil && !r.owned():
		return refuse(shardingv1alpha1.ReasonNameTaken, fmt.Sprintf("the name %q is taken", r.Cluster))
	case r.LogicalCluster == nil && r.Full != "":
		return refuse(shardingv1alpha1.ReasonShardFull, r.Full)
	}
	return nil
}

// exists describes the logical cluster.
func (r Responder) existingReport() *shardingv1alpha1.LogicalClusterReport {
	cluster := r.LogicalCluster
	shard, _ := Remote(cluster)
	report := newReport(r.Parent, *cluster.Spec.Owner)
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
	for _, condition := range mirroredConditions {
		if found := conditionsv1alpha1.Get(cluster, condition); found != nil {
			report.Spec.Conditions = append(report.Spec.Conditions, *found.DeepCopy())
		}
	}
	return report
}

// mirrored are the conditions of a logical cluster that its workspace shows, or is shown by.
var mirroredConditions = []conditionsv1alpha1.Type{corev1alpha1.APIBindingsInitialized, corev1alpha1.WorkspaceContentDeleted}

// answer completes an answer to the request.
func (r Responder) reply(spec shardingv1alpha1.LogicalClusterReportSpec) *shardingv1alpha1.LogicalClusterReport {
	request := r.request()
	report := newReport(r.Parent, request.Spec.Owner)
	spec.Owner, spec.Shard = request.Spec.Owner, request.Annotations[publisherAnnotation]
	report.Spec = spec
	return report
}

func newReport(parent logicalcluster.Name, owner corev1alpha1.LogicalClusterOwner) *shardingv1alpha1.LogicalClusterReport {
	return &shardingv1alpha1.LogicalClusterReport{ObjectMeta: metav1.ObjectMeta{Name: ReportName(parent, owner.Name)}}
}

// LogicalClusterFromReport returns the LogicalCluster of a report, as far as its workspace has to know it.
func LogicalClusterFromReport(report *shardingv1alpha1.LogicalClusterReport, workspace *tenancyv1alpha1.Workspace) *corev1alpha1.LogicalCluster {
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
