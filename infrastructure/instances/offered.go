package instances

import (
	"k8s.io/apimachinery/pkg/api/meta"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// offered is a Template as it is, and what its instances are provided by meanwhile.
type offered struct {
	latest *infrastructurev1alpha1.Template
	// template has the spec that was accepted last. Of a Template of which none is known, or that is being removed, it is the latest.
	template *infrastructurev1alpha1.Template
}

// offer returns what instances are provided by after a Template has changed. Until an edit is validated, set up and exported, which is
// when its generation is observed, they are provided by what was accepted before.
func offer(before *offered, latest *infrastructurev1alpha1.Template) *offered {
	if before == nil || isAccepted(latest) || latest.DeletionTimestamp != nil || before.template.UID != latest.UID || !isAccepted(before.template) {
		return &offered{latest, latest}
	}
	template := before.template.DeepCopy()
	template.Status.Registered, template.Status.Backend = latest.Status.Registered, latest.Status.Backend
	return &offered{latest, template}
}

// isAccepted reports whether the spec of a Template is what tenants are offered.
func isAccepted(t *infrastructurev1alpha1.Template) bool {
	return t.Status.ObservedGeneration == t.Generation
}

// concerns reports whether instances have to be looked at because something else is offered, or can be now.
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
