package instance

import (
	"k8s.io/apimachinery/pkg/api/meta"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// offered is the latest Template together with the Template from which instances are provided until the latest is accepted.
type offered struct {
	latest *infrastructurev1alpha1.Template
	// template has the spec that was accepted last. It is the latest if no accepted spec is known, or if the Template is being deleted.
	template *infrastructurev1alpha1.Template
}

// offer returns the Template from which instances are provided after a change. Until an edit is validated, set up and exported, which
// observedGeneration reports, instances use the spec that was accepted before.
func offer(before *offered, latest *infrastructurev1alpha1.Template) *offered {
	if before == nil || isAccepted(latest) || latest.DeletionTimestamp != nil || before.template.UID != latest.UID || !isAccepted(before.template) {
		return &offered{latest, latest}
	}
	template := before.template.DeepCopy()
	template.Status.Registered, template.Status.Backend = latest.Status.Registered, latest.Status.Backend
	return &offered{latest, template}
}

// isAccepted reports whether the export offers the current spec of a Template.
func isAccepted(t *infrastructurev1alpha1.Template) bool {
	return t.Status.ObservedGeneration == t.Generation
}

// concerns reports whether instances must be reconciled because the accepted Template, its readiness or its backend has changed.
func (o *offered) concerns(before *offered) bool {
	return o.template.Generation != before.template.Generation ||
		isAccepted(o.template) != isAccepted(before.template) ||
		isReady(o.latest) && !isReady(before.latest) ||
		o.latest.Spec.Backend != before.latest.Spec.Backend ||
		o.latest.Status.Backend.ReplacedBy != before.latest.Status.Backend.ReplacedBy
}

func isReady(t *infrastructurev1alpha1.Template) bool {
	return meta.IsStatusConditionTrue(t.Status.Conditions, infrastructurev1alpha1.ConditionReady)
}
