package topology

import (
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

// Limits of selectors in partition sets.
const (
	maxRequirements = 10
	maxKeyLength    = 317
	maxValueLength  = 63
)

var (
	labelKeyPattern   = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	labelValuePattern = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	operators         = []metav1.LabelSelectorOperator{
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
	}
)

var partitionSets = &registry.Kind[*topologyv1alpha1.PartitionSet]{
	Resource: topologyv1alpha1.SchemeGroupVersion.WithResource("partitionsets"),
	Singular: "partitionset",

	New:        func() *topologyv1alpha1.PartitionSet { return &topologyv1alpha1.PartitionSet{} },
	NewList:    func() runtime.Object { return &topologyv1alpha1.PartitionSetList{} },
	CopySpec:   func(to, from *topologyv1alpha1.PartitionSet) { to.Spec = from.Spec },
	CopyStatus: func(to, from *topologyv1alpha1.PartitionSet) { to.Status = from.Status },
	SameSpec: func(a, b *topologyv1alpha1.PartitionSet) bool {
		return equality.Semantic.DeepEqual(a.Spec, b.Spec)
	},
	SameStatus: func(a, b *topologyv1alpha1.PartitionSet) bool {
		return equality.Semantic.DeepEqual(a.Status, b.Status)
	},

	ValidateName: validateName,
	ValidateSpec: func(set *topologyv1alpha1.PartitionSet) field.ErrorList {
		return validateShardSelector(set.Spec.ShardSelector, field.NewPath("spec", "shardSelector"))
	},
	ValidateStatus: func(set *topologyv1alpha1.PartitionSet) field.ErrorList {
		return registry.ValidateConditions(set.Status.Conditions, field.NewPath("status", "conditions"))
	},

	Columns: registry.Columns{registry.Column("Count", ".status.count"), registry.Age},
}

// validateShardSelector is stricter than Kubernetes' validation of selectors: the set copies the selector into its
// partitions and their names, so it must be unambiguous.
func validateShardSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if selector == nil {
		return nil
	}
	var errs field.ErrorList
	labels := path.Child("matchLabels")
	if len(selector.MatchLabels) > maxRequirements {
		errs = append(errs, field.TooMany(labels, len(selector.MatchLabels), maxRequirements))
	}
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		errs = append(errs, validateKey(key, labels)...)
		errs = append(errs, validateValue(selector.MatchLabels[key], labels.Key(key))...)
	}
	expressions := path.Child("matchExpressions")
	if len(selector.MatchExpressions) > maxRequirements {
		errs = append(errs, field.TooMany(expressions, len(selector.MatchExpressions), maxRequirements))
	}
	for i, expression := range selector.MatchExpressions {
		errs = append(errs, validateExpression(expression, expressions.Index(i))...)
	}
	return errs
}

func validateExpression(expression metav1.LabelSelectorRequirement, path *field.Path) field.ErrorList {
	errs := validateKey(expression.Key, path.Child("key"))
	errs = append(errs, registry.ValidateRequired(string(expression.Operator), path.Child("operator"))...)
	errs = append(errs, registry.ValidateOneOf(expression.Operator, operators, path.Child("operator"))...)
	values := path.Child("values")
	for i, value := range expression.Values {
		errs = append(errs, validateValue(value, values.Index(i))...)
	}
	switch expression.Operator {
	case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
		if len(expression.Values) == 0 {
			errs = append(errs, field.Required(values, "In and NotIn need values"))
		}
	case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
		if len(expression.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "Exists and DoesNotExist take no values"))
		}
	}
	return errs
}

func validateKey(key string, path *field.Path) field.ErrorList {
	errs := registry.ValidateRequired(key, path)
	errs = append(errs, registry.ValidateMaxLength(key, maxKeyLength, path)...)
	return append(errs, registry.ValidatePattern(key, labelKeyPattern, path)...)
}

func validateValue(value string, path *field.Path) field.ErrorList {
	errs := registry.ValidateRequired(value, path)
	errs = append(errs, registry.ValidateMaxLength(value, maxValueLength, path)...)
	return append(errs, registry.ValidatePattern(value, labelValuePattern, path)...)
}
