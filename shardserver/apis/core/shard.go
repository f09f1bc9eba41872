package core

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var shards = &registry.Kind[*corev1alpha1.Shard]{
	Resource: corev1alpha1.SchemeGroupVersion.WithResource("shards"),
	Singular: "shard",

	New:        func() *corev1alpha1.Shard { return &corev1alpha1.Shard{} },
	NewList:    func() runtime.Object { return &corev1alpha1.ShardList{} },
	CopySpec:   func(to, from *corev1alpha1.Shard) { to.Spec = from.Spec },
	CopyStatus: func(to, from *corev1alpha1.Shard) { to.Status = from.Status },
	SameSpec:   func(a, b *corev1alpha1.Shard) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) },
	SameStatus: func(a, b *corev1alpha1.Shard) bool { return equality.Semantic.DeepEqual(a.Status, b.Status) },

	Initialize: initializeShardStatus,

	ValidateName:   validateShardName,
	ValidateSpec:   validateShardSpec,
	ValidateStatus: validateShardStatus,

	Columns: registry.Columns{
		registry.LabelColumn("Region", corev1alpha1.RegionLabelKey),
		registry.Column("URL", ".spec.baseURL"),
		registry.Column("External URL", ".spec.externalURL"),
		registry.Column("Schedulable", `.status.conditions[?(@.type=="Schedulable")].status`),
		registry.Column("Ready", `.status.conditions[?(@.type=="Ready")].status`),
		registry.Column("Logical Clusters", ".status.load.logicalclusters"),
		registry.Age,
	},
}

// NoReportAdvice is the end of the messages about a shard that does not report.
const NoReportAdvice = "see whether it runs, whether its etcd answers, and whether it and the root shard reach the cache server"

// initializeShardStatus sets the conditions that a controller would set right after the creation. Its write would be a conflict for a
// creator who updates the Shard.
func initializeShardStatus(shard *corev1alpha1.Shard) {
	MarkNeverReported(shard)
	MarkLimits(shard)
	MarkCordoned(shard)
}

// MarkNeverReported sets the Ready condition of a shard that has never reported.
func MarkNeverReported(shard *corev1alpha1.Shard) {
	conditionsv1alpha1.MarkUnknown(shard, conditionsv1alpha1.Ready, corev1alpha1.ReasonShardNotReporting, "The shard has never reported; "+NoReportAdvice)
}

func validateShardName(name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, message := range validation.NameIsDNSSubdomain(name, false) {
		errs = append(errs, field.Invalid(path, name, message))
	}
	return errs
}

func validateShardSpec(shard *corev1alpha1.Shard) field.ErrorList {
	path := field.NewPath("spec")
	errs := registry.ValidateRequired(shard.Spec.BaseURL, path.Child("baseURL"))
	errs = append(errs, registry.ValidateURI(shard.Spec.BaseURL, path.Child("baseURL"))...)
	errs = append(errs, registry.ValidateURI(shard.Spec.ExternalURL, path.Child("externalURL"))...)
	return append(errs, registry.ValidateURI(shard.Spec.VirtualWorkspaceURL, path.Child("virtualWorkspaceURL"))...)
}

func validateShardStatus(shard *corev1alpha1.Shard) field.ErrorList {
	return registry.ValidateConditions(shard.Status.Conditions, field.NewPath("status", "conditions"))
}
