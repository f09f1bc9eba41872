package placement

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Responder is the state of a shard that another shard may have requested a logical cluster from.
type Responder struct {
	// ShardName is the name of this shard.
	ShardName string
	// Parent and Workspace identify the workspace on another shard, Cluster the logical cluster.
	Parent    logicalcluster.Name
	Workspace string
	Cluster   logicalcluster.Name
	// Request is the published request of that name, for any shard; nil if there is none.
	Request *shardingv1alpha1.LogicalClusterRequest
	// LogicalCluster is the stored object; nil if a consistent read has found none.
	LogicalCluster *corev1alpha1.LogicalCluster
	// Full is the reason why this shard accepts no new logical clusters, or "".
	Full string
}

// Step is the next action of the requested shard.
type Step string

// Steps.
const (
	Nothing Step = ""
	Create  Step = "Create"
	Delete  Step = "Delete"
)

// Step returns the next action.
func (r Responder) Step() Step {
	request := r.request()
	switch {
	case request == nil:
		return Nothing
	case r.movedTo() != "", r.arrives():
		return Nothing
	case request.Spec.Delete && r.owned() && r.LogicalCluster.DeletionTimestamp == nil:
		return Delete
	case !request.Spec.Delete && request.Spec.Template != nil && r.refusal() == nil && r.LogicalCluster == nil:
		return Create
	}
	return Nothing
}

// Report returns the report to publish, or nil.
func (r Responder) Report() *shardingv1alpha1.LogicalClusterReport {
	request := r.request()
	switch {
	case r.arrives():
		return nil // the origin answers until it has handed over
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
	return nil // Step is Create
}

// Confirmed reports whether the shard of the workspace has confirmed the logical cluster. It becomes Ready only then.
func (r Responder) Confirmed() bool {
	return r.owned() && r.request().Spec.Confirmed == r.LogicalCluster.UID
}

// Released reports whether the shard of the workspace has requested the deletion.
func (r Responder) Released() bool { return r.owned() && r.request().Spec.Delete }

// Refused reports whether there is a request for a new logical cluster that is refused.
func (r Responder) Refused() bool {
	request := r.request()
	return request != nil && !request.Spec.Delete && request.Spec.Template != nil && r.refusal() != nil
}

// New returns the requested LogicalCluster.
func (r Responder) New() *corev1alpha1.LogicalCluster {
	request := r.request()
	cluster := &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: corev1alpha1.LogicalClusterName,
			Annotations: map[string]string{
				corev1alpha1.ShardAnnotationKey:      r.ShardName,
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

// requestedAnnotations are the annotations that are copied from a request.
var requestedAnnotations = []string{
	corev1alpha1.LogicalClusterPathAnnotationKey,
	corev1alpha1.LogicalClusterTypeAnnotationKey,
	corev1alpha1.RequiredGroupsAnnotationKey,
	tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey,
}

// request returns the request if it is for this shard and its spec matches its name; else nil.
func (r Responder) request() *shardingv1alpha1.LogicalClusterRequest {
	request := r.Request
	if request == nil || request.Spec.Shard != r.ShardName || request.Spec.Cluster != r.Cluster.String() ||
		request.Spec.Owner.Cluster != r.Parent.String() || request.Spec.Owner.Name != r.Workspace || request.Annotations[publisherAnnotation] == "" {
		return nil
	}
	return request
}

// owned reports whether the logical cluster belongs to the workspace of the request, and was requested by the same
// shard.
func (r Responder) owned() bool {
	request := r.request()
	if request == nil || r.LogicalCluster == nil {
		return false
	}
	shard, ok := Remote(r.LogicalCluster)
	return ok && shard == request.Annotations[publisherAnnotation] && OwnedBy(r.LogicalCluster, request.Spec.Owner)
}

// reported reports whether the logical cluster belongs to a workspace of that name on another shard.
func (r Responder) reported() bool {
	if r.LogicalCluster == nil {
		return false
	}
	_, ok := Remote(r.LogicalCluster)
	owner := r.LogicalCluster.Spec.Owner
	return ok && owner.Cluster == r.Parent.String() && owner.Name == r.Workspace
}

// movedTo returns the shard to which this one has handed over the logical cluster, or "".
func (r Responder) movedTo() string {
	if r.LogicalCluster == nil {
		return ""
	}
	return r.LogicalCluster.Annotations[corev1alpha1.MovedToAnnotationKey]
}

// arrives reports whether the logical cluster is copied to this shard, and not complete.
func (r Responder) arrives() bool {
	return r.LogicalCluster != nil && movestate.Of(r.LogicalCluster.Annotations) == movestate.Arriving
}

// refusal returns the reason why the logical cluster is not created, or nil.
func (r Responder) refusal() *shardingv1alpha1.LogicalClusterReportSpec {
	refuse := func(reason, message string) *shardingv1alpha1.LogicalClusterReportSpec {
		return &shardingv1alpha1.LogicalClusterReportSpec{State: shardingv1alpha1.LogicalClusterRefused, Reason: reason, Message: message}
	}
	switch {
	case r.Cluster == logicalcluster.Root || r.Cluster.IsSystem():
		return refuse(shardingv1alpha1.ReasonNameTaken, fmt.Sprintf("the name %q is reserved", r.Cluster))
	case r.LogicalCluster != nil && !r.owned():
		return refuse(shardingv1alpha1.ReasonNameTaken, fmt.Sprintf("the name %q is already used", r.Cluster))
	case r.LogicalCluster == nil && r.Full != "":
		return refuse(shardingv1alpha1.ReasonShardFull, r.Full)
	}
	return nil
}

// existingReport returns the report on the existing logical cluster.
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
		MovedTo:      r.movedTo(),
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

// mirroredConditions are the conditions of a logical cluster that are copied to its workspace.
var mirroredConditions = []conditionsv1alpha1.Type{corev1alpha1.APIBindingsInitialized, corev1alpha1.WorkspaceContentDeleted}

// reply returns a report on the request.
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

// LogicalClusterFromReport returns the LogicalCluster of a report, with the fields that the workspace controller reads.
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
