package template

import (
	"cmp"
	"context"
	"errors"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/shortname"
)

// step is one step of a reconciliation. It returns a *problem if the user must act or the step waits for something, and any other error to
// retry.
type step func(context.Context, *scope) error

// scope is the state of one Template during one reconciliation.
type scope struct {
	template   *infrastructurev1alpha1.Template
	others     []infrastructurev1alpha1.Template
	definition *apiextensionsv1.CustomResourceDefinition // nil if there is none
	previous   []string                                  // names of other CRDs that belong to a Template of this name
	served     *apisv1alpha1.APIResourceSchema           // the exported schema; nil if there is none
	base       *apiextensionsv1.CustomResourceDefinition // definition with all exported versions; nil if there is neither

	backend backend.Backend
	wanted  *apiextensionsv1.CustomResourceDefinition // the desired CRD
	schema  *apisv1alpha1.APIResourceSchema           // the schema of wanted

	problem  *problem // what stopped the reconciliation
	exported bool
	bindable []string // exports that are not being deleted, during a removal
	recheck  bool     // an export that does not offer the kind still has instances
}

// problem is the reason why a Template is not ready.
type problem struct {
	condition, reason, message string
	// wait means that an event will requeue the Template. Otherwise it is requeued after a delay, by default retryInterval.
	wait  bool
	after time.Duration
	// cause is an error to retry with exponential backoff.
	cause error
}

func (p *problem) Error() string { return p.message }

// outcome stores what stopped a reconciliation, and returns when to retry.
func outcome(s *scope, err error) (ctrl.Result, error) {
	if err == nil && s.recheck {
		return ctrl.Result{RequeueAfter: retryInterval}, nil
	}
	if err == nil {
		return ctrl.Result{}, nil
	}
	if errors.As(err, &s.problem) {
		s.problem.message = shortname.Truncate(s.problem.message, maxCondition)
		if s.problem.cause != nil || s.problem.wait {
			return ctrl.Result{}, s.problem.cause
		}
		return ctrl.Result{RequeueAfter: cmp.Or(s.problem.after, retryInterval)}, nil
	}
	s.problem = &problem{condition: infrastructurev1alpha1.ConditionReady, reason: infrastructurev1alpha1.ReasonReconciling, message: shortname.Truncate(err.Error(), maxCondition)}
	return ctrl.Result{}, err
}

// conditions are the conditions that Ready summarizes, in the order of the steps that set them.
var conditions = []string{
	infrastructurev1alpha1.ConditionSchemaCompatible,
	infrastructurev1alpha1.ConditionCRDEstablished,
	infrastructurev1alpha1.ConditionBackendReady,
	infrastructurev1alpha1.ConditionSchemaInAPIExport,
}

// setStatus computes the status. Conditions of steps that were not reached do not change, because their state is unknown: a kind whose edit is
// refused is still served as before.
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
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: infrastructurev1alpha1.ReasonReady, ObservedGeneration: generation})
	}
	ready := metav1.Condition{Type: infrastructurev1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: infrastructurev1alpha1.ReasonReady, ObservedGeneration: generation}
	if s.problem != nil {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, s.problem.reason, s.problem.message
		if s.problem.condition != ready.Type {
			meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: s.problem.condition, Status: metav1.ConditionFalse, Reason: s.problem.reason, Message: s.problem.message, ObservedGeneration: generation})
		}
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	status.Registered.CRDEstablished = s.definition != nil && apihelpers.IsCRDConditionTrue(s.definition, apiextensionsv1.Established)
	if s.exported {
		status.Registered.SchemaName = s.schema.Name
		status.Registered.Versions = servedVersions(s.wanted)
	}
}

// IsReady reports whether instances of a Template can be created.
func IsReady(t *infrastructurev1alpha1.Template) bool {
	return meta.IsStatusConditionTrue(t.Status.Conditions, infrastructurev1alpha1.ConditionReady)
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
