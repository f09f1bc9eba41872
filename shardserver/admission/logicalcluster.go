package admission

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// logicalClusterManagers are the groups that may drive logical clusters through their phases.
var logicalClusterManagers = []string{
	user.SystemPrivilegedGroup,
	groupLogicalClusterAdmin,
	groupExternalLogicalClusterAdmin,
	groupWorkspaceBootstrapper,
}

// inactiveAnnotations take a logical cluster out of service with the value "true".
var inactiveAnnotations = []string{corev1alpha1.InactiveAnnotationKey, corev1alpha1.LegacyInactiveAnnotationKey}

// logicalCluster protects the object that makes a logical cluster exist: its creation and deletion, and the order
// in which it becomes ready.
type logicalCluster struct{ *admission.Handler }

func newLogicalCluster(Config) admission.Interface {
	return &logicalCluster{admission.NewHandler(admission.Create, admission.Update, admission.Delete)}
}

// Admit starts initialization with exactly what the spec asks for, whoever starts it, and keeps the server's own
// annotation as it was.
func (*logicalCluster) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != logicalClusters || a.GetOperation() != admission.Update {
		return nil
	}
	obj, old, err := updated[*corev1alpha1.LogicalCluster](a)
	if err != nil {
		return err
	}
	if startsInitializing(old, obj) {
		obj.Status.Initializers = slices.Clone(old.Spec.Initializers) // what the request says of the spec is dropped later
		obj.Status.Terminators = slices.Clone(old.Spec.Terminators)
	}
	if !inAnyGroup(a.GetUserInfo(), logicalClusterManagers...) {
		keepPlace(old, obj)
	}
	return nil
}

// placeAnnotations say where a logical cluster is: on which shard, which is copied to the owning Workspace, where the
// tenant of this logical cluster has nothing to write; on which shard that Workspace is, which alone may ask for the end
// of it; and at which path, by which others find what is in it. Beside these stands of which type it is: the server binds
// what the type binds, whoever may bind it, so it is the type that somebody was allowed to use.
var placeAnnotations = []string{
	corev1alpha1.ShardAnnotationKey, corev1alpha1.OwnerShardAnnotationKey, logicalcluster.PathAnnotationKey, corev1alpha1.LogicalClusterTypeAnnotationKey,
}

// keepPlace keeps the annotations that say where a logical cluster is, and what. A tenant who could write them would be
// found wherever it says, and get what others have.
func keepPlace(old, obj *corev1alpha1.LogicalCluster) {
	for _, key := range placeAnnotations {
		was, placed := old.Annotations[key]
		if is, says := obj.Annotations[key]; is == was && says == placed {
			continue
		}
		annotations := maps.Clone(obj.Annotations)
		if annotations == nil {
			annotations = map[string]string{}
		}
		delete(annotations, key)
		if placed {
			annotations[key] = was
		}
		obj.Annotations = annotations
	}
}

// Validate holds everybody but the managing groups to the rules.
func (*logicalCluster) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != logicalClusters || inAnyGroup(a.GetUserInfo(), logicalClusterManagers...) {
		return nil
	}
	switch a.GetOperation() {
	case admission.Create:
		return forbid(a, "LogicalCluster cannot be created")
	case admission.Delete:
		return validateClusterDeletion(a)
	}
	obj, old, err := updated[*corev1alpha1.LogicalCluster](a)
	if err != nil {
		return err
	}
	if !inAnyGroup(a.GetUserInfo(), groupAdmin) && limitOf(old) != limitOf(obj) {
		return forbid(a, "annotation %s is not the tenant's to change", corev1alpha1.MaxTotalObjectsAnnotationKey)
	}
	for _, rule := range logicalClusterRules {
		if violated := rule(old, obj); violated != "" {
			return forbid(a, "%s", violated)
		}
	}
	return nil
}

// limitOf returns how many objects a logical cluster may hold, as said for it alone.
func limitOf(cluster *corev1alpha1.LogicalCluster) string {
	limit, said := cluster.Annotations[corev1alpha1.MaxTotalObjectsAnnotationKey]
	if !said {
		return "by default"
	}
	return limit
}

func validateClusterDeletion(a admission.Attributes) error {
	if a.GetOldObject() == nil { // a collection is deleted object by object; each comes with its object
		return forbid(a, "LogicalCluster cannot be deleted")
	}
	old, err := objectOf[*corev1alpha1.LogicalCluster](a.GetOldObject())
	if err != nil {
		return err
	}
	if !old.Spec.DirectlyDeletable {
		return forbid(a, "LogicalCluster cannot be deleted")
	}
	return nil
}

// logicalClusterRules are what an update by a tenant must keep. Each returns what it found violated, or nothing.
var logicalClusterRules = []func(old, obj *corev1alpha1.LogicalCluster) string{
	creatorStays,
	ownerStays,
	specInitializersStay,
	statusInitializersOnlyShrink,
	initializingEndsEmpty,
	phaseGoesForward,
	onlyReadyTurnsInactive,
}

func creatorStays(old, obj *corev1alpha1.LogicalCluster) string {
	if !equality.Semantic.DeepEqual(old.Spec.CreatedBy, obj.Spec.CreatedBy) {
		return "spec.createdBy is immutable"
	}
	return ""
}

// ownerStays keeps a logical cluster tied to its Workspace: with another owner it would outlive it.
func ownerStays(old, obj *corev1alpha1.LogicalCluster) string {
	if !equality.Semantic.DeepEqual(old.Spec.Owner, obj.Spec.Owner) {
		return "spec.owner is immutable"
	}
	return ""
}

func specInitializersStay(old, obj *corev1alpha1.LogicalCluster) string {
	if !sets.New(old.Spec.Initializers...).Equal(sets.New(obj.Spec.Initializers...)) {
		return "spec.initializers is immutable"
	}
	return ""
}

func statusInitializersOnlyShrink(old, obj *corev1alpha1.LogicalCluster) string {
	before, after := sets.New(old.Status.Initializers...), sets.New(obj.Status.Initializers...)
	switch {
	case startsInitializing(old, obj):
		if !after.Equal(sets.New(obj.Spec.Initializers...)) {
			return "status.initializers must equal spec.initializers when initialization starts"
		}
	case old.Status.Phase == corev1alpha1.LogicalClusterPhaseInitializing:
		if !before.IsSuperset(after) {
			return "status.initializers must not grow"
		}
	case old.Status.Phase != "" && old.Status.Phase != corev1alpha1.LogicalClusterPhaseScheduling:
		if !before.Equal(after) {
			return "status.initializers is immutable after initialization"
		}
	}
	return ""
}

func initializingEndsEmpty(old, obj *corev1alpha1.LogicalCluster) string {
	initializing := corev1alpha1.LogicalClusterPhaseInitializing
	if old.Status.Phase == initializing && obj.Status.Phase != initializing && len(obj.Status.Initializers) > 0 {
		return "status.initializers must be empty before the phase leaves Initializing"
	}
	return ""
}

func phaseGoesForward(old, obj *corev1alpha1.LogicalCluster) string {
	if reached(obj.Status.Phase) < reached(old.Status.Phase) {
		return "status.phase cannot go back from " + string(old.Status.Phase) + " to \"" + string(obj.Status.Phase) + "\""
	}
	return ""
}

func onlyReadyTurnsInactive(old, obj *corev1alpha1.LogicalCluster) string {
	for _, key := range inactiveAnnotations {
		if obj.Annotations[key] == "true" && old.Annotations[key] != "true" && old.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
			return "annotation " + key + " can only be set in phase Ready"
		}
	}
	return ""
}

// startsInitializing tells whether an update ends scheduling. No other phase leads into Initializing.
func startsInitializing(old, obj *corev1alpha1.LogicalCluster) bool {
	scheduling := old.Status.Phase == "" || old.Status.Phase == corev1alpha1.LogicalClusterPhaseScheduling
	return scheduling && obj.Status.Phase == corev1alpha1.LogicalClusterPhaseInitializing
}

// reached orders the phases on the way to Ready. Phases off that way count as lowest.
func reached(phase corev1alpha1.LogicalClusterPhaseType) int {
	return 1 + slices.Index([]corev1alpha1.LogicalClusterPhaseType{
		"",
		corev1alpha1.LogicalClusterPhaseScheduling,
		corev1alpha1.LogicalClusterPhaseInitializing,
		corev1alpha1.LogicalClusterPhaseReady,
	}, phase)
}
