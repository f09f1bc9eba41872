// Package core contains the plug-ins for writes of logical clusters, their migrations, and shards.
package core

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacelimits"
)

// inactiveAnnotations mark a logical cluster inactive with the value "true".
var inactiveAnnotations = []string{corev1alpha1.InactiveAnnotationKey, corev1alpha1.LegacyInactiveAnnotationKey}

// logicalCluster protects the LogicalCluster object: its creation and deletion, and the order of its phases until
// Ready.
type logicalCluster struct{ *admission.Handler }

// NewLogicalCluster returns the plug-in core.kcp.io/LogicalCluster.
func NewLogicalCluster(rules.Config) admission.Interface {
	return &logicalCluster{admission.NewHandler(admission.Create, admission.Update, admission.Delete)}
}

// Admit sets the initializers and terminators from the spec when initialization starts, for every user, and keeps the
// server's own annotations unchanged.
func (*logicalCluster) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != rules.LogicalClusters || a.GetOperation() != admission.Update {
		return nil
	}
	obj, old, err := rules.ObjectsOf[*corev1alpha1.LogicalCluster](a)
	if err != nil {
		return err
	}
	if startsInitializing(old, obj) {
		obj.Status.Initializers = slices.Clone(old.Spec.Initializers) // status updates do not change the spec, so the stored one counts
		obj.Status.Terminators = slices.Clone(old.Spec.Terminators)
	}
	if !rules.InAnyGroup(a.GetUserInfo(), rules.LogicalClusterManagers...) {
		restoreProtectedAnnotations(old, obj)
	}
	return nil
}

// protectedAnnotations describe the location of a logical cluster: its shard, which is copied to the owning Workspace,
// where the tenant of this logical cluster may not write; the shard of that Workspace, which alone may delete the
// logical cluster; the states of a move to another shard, by which front proxies follow it; the keys of its service
// accounts' tokens; and its path, by which references to its objects are resolved. The last one is its type: the server
// creates the bindings of the type regardless of the user's permissions, so it must be the type that was authorized.
var protectedAnnotations = []string{
	corev1alpha1.ShardAnnotationKey, corev1alpha1.OwnerShardAnnotationKey,
	corev1alpha1.MigratingAnnotationKey, corev1alpha1.EpochAnnotationKey, corev1alpha1.WritesPausedAnnotationKey, corev1alpha1.MovedToAnnotationKey, corev1alpha1.ArrivingAnnotationKey,
	corev1alpha1.PauseAfterAnnotationKey, corev1alpha1.TokenKeysAnnotationKey, corev1alpha1.HandedOverStoragesAnnotationKey, corev1alpha1.ReceiptsAnnotationKey, corev1alpha1.OutdatedAnnotationKey,
	logicalcluster.PathAnnotationKey, corev1alpha1.LogicalClusterTypeAnnotationKey,
}

// restoreProtectedAnnotations restores the annotations of the location and the type. A tenant who could write them
// would receive references and bindings that belong to others.
func restoreProtectedAnnotations(old, obj *corev1alpha1.LogicalCluster) {
	for _, key := range protectedAnnotations {
		oldValue, hadValue := old.Annotations[key]
		if value, hasValue := obj.Annotations[key]; value == oldValue && hasValue == hadValue {
			continue
		}
		annotations := maps.Clone(obj.Annotations)
		if annotations == nil {
			annotations = map[string]string{}
		}
		delete(annotations, key)
		if hadValue {
			annotations[key] = oldValue
		}
		obj.Annotations = annotations
	}
}

// Validate enforces the rules for all users but the managing groups.
func (*logicalCluster) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != rules.LogicalClusters {
		return nil
	}
	if err := validateWorkspaceLimits(a); err != nil || rules.InAnyGroup(a.GetUserInfo(), rules.LogicalClusterManagers...) {
		return err
	}
	switch a.GetOperation() {
	case admission.Create:
		return rules.Forbid(a, "LogicalCluster cannot be created")
	case admission.Delete:
		return validateClusterDeletion(a)
	}
	obj, old, err := rules.ObjectsOf[*corev1alpha1.LogicalCluster](a)
	if err != nil {
		return err
	}
	for _, key := range protectedAnnotations {
		// Admit has restored them; webhooks and policies of the tenant run after it.
		if value, has := obj.Annotations[key]; value != old.Annotations[key] || has != hasKey(old.Annotations, key) {
			return rules.Forbid(a, "annotation %s cannot be changed by webhooks and policies", key)
		}
	}
	for _, limit := range limitAnnotations {
		if !rules.InAnyGroup(a.GetUserInfo(), rules.GroupAdmin) && valueOf(old, limit) != valueOf(obj, limit) {
			return rules.Forbid(a, "annotation %s cannot be changed by tenants", limit)
		}
	}
	for _, rule := range logicalClusterRules {
		if violated := rule(old, obj); violated != "" {
			return rules.Forbid(a, "%s", violated)
		}
	}
	return nil
}

func hasKey(annotations map[string]string, key string) bool {
	_, has := annotations[key]
	return has
}

// limitAnnotations are the limits that administrators of the shard set.
var limitAnnotations = append([]string{corev1alpha1.MaxTotalObjectsAnnotationKey, corev1alpha1.MaxTotalBytesAnnotationKey}, workspacelimits.Annotations...)

// valueOf returns the limit that is set on the logical cluster itself.
func valueOf(cluster *corev1alpha1.LogicalCluster, annotation string) string {
	limit, ok := cluster.Annotations[annotation]
	if !ok {
		return "by default"
	}
	return limit
}

// validateWorkspaceLimits refuses new values of the limits of Workspaces that are no numbers, from every user.
func validateWorkspaceLimits(a admission.Attributes) error {
	if a.GetOperation() == admission.Delete {
		return nil
	}
	obj, err := rules.ObjectOf[*corev1alpha1.LogicalCluster](a.GetObject())
	if err != nil {
		return err
	}
	old := &corev1alpha1.LogicalCluster{}
	if a.GetOperation() == admission.Update {
		if old, err = rules.ObjectOf[*corev1alpha1.LogicalCluster](a.GetOldObject()); err != nil {
			return err
		}
	}
	var invalid field.ErrorList
	for _, key := range workspacelimits.Annotations {
		value, has := obj.Annotations[key]
		if _, err := workspacelimits.Parse(value); has && err != nil && valueOf(old, key) != valueOf(obj, key) {
			invalid = append(invalid, field.Invalid(field.NewPath("metadata", "annotations").Key(key), value, "must be an integer from 0 to 2147483647"))
		}
	}
	if len(invalid) > 0 {
		return apierrors.NewInvalid(corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster").GroupKind(), obj.Name, invalid)
	}
	return nil
}

func validateClusterDeletion(a admission.Attributes) error {
	if a.GetOldObject() == nil { // a collection is deleted object by object, and each is validated with its object
		return rules.Forbid(a, "LogicalCluster cannot be deleted")
	}
	old, err := rules.ObjectOf[*corev1alpha1.LogicalCluster](a.GetOldObject())
	if err != nil {
		return err
	}
	if !old.Spec.DirectlyDeletable {
		return rules.Forbid(a, "LogicalCluster cannot be deleted")
	}
	return nil
}

// logicalClusterRules validate updates by tenants. Each returns the violation, or an empty string.
var logicalClusterRules = []func(old, obj *corev1alpha1.LogicalCluster) string{
	validateCreatorImmutable,
	validateOwnerImmutable,
	validateSpecInitializersImmutable,
	validateStatusInitializers,
	validateInitializationComplete,
	validatePhaseOrder,
	validateInactive,
}

func validateCreatorImmutable(old, obj *corev1alpha1.LogicalCluster) string {
	if !equality.Semantic.DeepEqual(old.Spec.CreatedBy, obj.Spec.CreatedBy) {
		return "spec.createdBy is immutable"
	}
	return ""
}

// validateOwnerImmutable keeps the owner reference to the Workspace: with another owner the logical cluster would
// outlive it.
func validateOwnerImmutable(old, obj *corev1alpha1.LogicalCluster) string {
	if !equality.Semantic.DeepEqual(old.Spec.Owner, obj.Spec.Owner) {
		return "spec.owner is immutable"
	}
	return ""
}

func validateSpecInitializersImmutable(old, obj *corev1alpha1.LogicalCluster) string {
	if !sets.New(old.Spec.Initializers...).Equal(sets.New(obj.Spec.Initializers...)) {
		return "spec.initializers is immutable"
	}
	return ""
}

func validateStatusInitializers(old, obj *corev1alpha1.LogicalCluster) string {
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

func validateInitializationComplete(old, obj *corev1alpha1.LogicalCluster) string {
	initializing := corev1alpha1.LogicalClusterPhaseInitializing
	if old.Status.Phase == initializing && obj.Status.Phase != initializing && len(obj.Status.Initializers) > 0 {
		return "status.initializers must be empty before the phase leaves Initializing"
	}
	return ""
}

func validatePhaseOrder(old, obj *corev1alpha1.LogicalCluster) string {
	if phaseOrder(obj.Status.Phase) < phaseOrder(old.Status.Phase) {
		return "status.phase cannot go back from " + string(old.Status.Phase) + " to \"" + string(obj.Status.Phase) + "\""
	}
	return ""
}

func validateInactive(old, obj *corev1alpha1.LogicalCluster) string {
	for _, key := range inactiveAnnotations {
		if obj.Annotations[key] == "true" && old.Annotations[key] != "true" && old.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
			return "annotation " + key + " can only be set in phase Ready"
		}
	}
	return ""
}

// startsInitializing reports whether an update ends scheduling. No other phase is followed by Initializing.
func startsInitializing(old, obj *corev1alpha1.LogicalCluster) bool {
	scheduling := old.Status.Phase == "" || old.Status.Phase == corev1alpha1.LogicalClusterPhaseScheduling
	return scheduling && obj.Status.Phase == corev1alpha1.LogicalClusterPhaseInitializing
}

// phaseOrder orders the phases up to Ready. Other phases count as lowest.
func phaseOrder(phase corev1alpha1.LogicalClusterPhaseType) int {
	return 1 + slices.Index([]corev1alpha1.LogicalClusterPhaseType{
		"",
		corev1alpha1.LogicalClusterPhaseScheduling,
		corev1alpha1.LogicalClusterPhaseInitializing,
		corev1alpha1.LogicalClusterPhaseReady,
	}, phase)
}

// NewLogicalClusterFinalizer returns the plug-in tenancy.kcp.io/LogicalClusterDeletionFinalizer.
func NewLogicalClusterFinalizer(rules.Config) admission.Interface {
	return rules.NewFinalizerGuard(rules.LogicalClusters, corev1alpha1.LogicalClusterDeletionFinalizer)
}
