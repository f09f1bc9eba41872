package template

import (
	"cmp"
	"context"
	"errors"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
)

// step is one step of a reconciliation. It returns a *problem where the user has to do something or something is waited for, and other
// errors where it shall be called again.
type step func(context.Context, *scope) error

// scope is one Template during one reconciliation.
type scope struct {
	template   *infrastructurev1alpha1.Template
	others     []infrastructurev1alpha1.Template
	definition *apiextensionsv1.CustomResourceDefinition // nil if there is none
	former     []string                                  // names of other definitions that are of a Template of this name
	served     *apisv1alpha1.APIResourceSchema           // what the export has; nil if it has none
	base       *apiextensionsv1.CustomResourceDefinition // definition with all versions that are served; nil if there is neither

	backend backend.Backend
	wanted  *apiextensionsv1.CustomResourceDefinition // what the definition shall be
	schema  *apisv1alpha1.APIResourceSchema           // of it

	problem  *problem // what stopped the reconciliation
	exported bool
	bindable []string // exports that are not being deleted, during a removal
	recheck  bool     // a kind that is not offered any more still has instances
}

// problem is why a Template is not ready.
type problem struct {
	condition, reason, message string
	// wait means that an event will come. Otherwise the reconciliation is repeated after a time, by default retryInterval.
	wait  bool
	after time.Duration
	// cause is an error to be retried with a growing delay.
	cause error
}

func (p *problem) Error() string { return p.message }

// outcome keeps what stopped a reconciliation, and says when to try again.
func outcome(s *scope, err error) (ctrl.Result, error) {
	if err == nil && s.recheck {
		return ctrl.Result{RequeueAfter: retryInterval}, nil
	}
	if err == nil {
		return ctrl.Result{}, nil
	}
	if errors.As(err, &s.problem) {
		s.problem.message = truncateTo(maxCondition, s.problem.message)
		if s.problem.cause != nil || s.problem.wait {
			return ctrl.Result{}, s.problem.cause
		}
		return ctrl.Result{RequeueAfter: cmp.Or(s.problem.after, retryInterval)}, nil
	}
	s.problem = &problem{condition: infrastructurev1alpha1.ConditionReady, reason: infrastructurev1alpha1.ReasonReconciling, message: truncateTo(maxCondition, err.Error())}
	return ctrl.Result{}, err
}

// conditions are those that make Ready, in the order of the steps that set them.
var conditions = []string{
	infrastructurev1alpha1.ConditionSchemaCompatible,
	infrastructurev1alpha1.ConditionCRDEstablished,
	infrastructurev1alpha1.ConditionBackendReady,
	infrastructurev1alpha1.ConditionSchemaInAPIExport,
}

// setStatus computes the status. Conditions of steps that were not reached keep what they said, because nothing was found out about
// them: a kind whose edit is refused is still served as before.
func (s *scope) setStatus() {
	status, generation := &s.template.Status, s.template.Generation
	if s.problem == nil {
		status.ObservedGeneration = generation
	}
	stopped := len(conditions)
	for i, condition := range conditions {
		if s.problem != nil && s.problem.condition == condition {
			stopped = i
		}
	}
	if s.problem != nil && stopped == len(conditions) {
		stopped = 0
	}
	for _, condition := range conditions[:stopped] {
		set(status, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: infrastructurev1alpha1.ReasonReady, ObservedGeneration: generation})
	}
	ready := metav1.Condition{Type: infrastructurev1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: infrastructurev1alpha1.ReasonReady, ObservedGeneration: generation}
	if s.problem != nil {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, s.problem.reason, s.problem.message
		if s.problem.condition != ready.Type {
			set(status, metav1.Condition{Type: s.problem.condition, Status: metav1.ConditionFalse, Reason: s.problem.reason, Message: s.problem.message, ObservedGeneration: generation})
		}
	}
	set(status, ready)
	status.Registered.CRDEstablished = IsEstablished(s.definition)
	if s.exported {
		status.Registered.SchemaName = s.schema.Name
		status.Registered.Versions = servedVersions(s.wanted)
	}
}

func set(status *infrastructurev1alpha1.TemplateStatus, condition metav1.Condition) {
	meta.SetStatusCondition(&status.Conditions, condition)
}

func isReady(t *infrastructurev1alpha1.Template) bool {
	return meta.IsStatusConditionTrue(t.Status.Conditions, infrastructurev1alpha1.ConditionReady)
}

// IsEstablished reports whether a definition is served; false for nil.
func IsEstablished(definition *apiextensionsv1.CustomResourceDefinition) bool {
	if definition == nil {
		return false
	}
	for _, condition := range definition.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

func servedVersions(definition *apiextensionsv1.CustomResourceDefinition) []string {
	if definition == nil {
		return nil
	}
	var names []string
	for _, version := range definition.Spec.Versions {
		if version.Served {
			names = append(names, version.Name)
		}
	}
	return names
}
