package runtimecluster

import (
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/instances"
)

// refusalInterval is how often something is tried again that the runtime cluster refuses.
const refusalInterval = time.Minute

var (
	// errForeign is why an object is not applied that is not the instance's.
	errForeign = errors.New("exists and belongs to something else")
	// errTerminating is why an object is not applied now.
	errTerminating = errors.New("is being deleted")
)

// Refusal returns the state of an instance whose objects cannot be applied because of what it is, and whether an error says that. What
// exactly was refused is for the log: it names objects that tenants do not know. Other errors are those of the cluster.
func Refusal(err error) (instances.State, bool) {
	switch {
	case err == nil:
		return instances.State{}, false
	case errors.Is(err, errTerminating):
		return instances.State{Phase: infrastructurev1alpha1.PhaseProvisioning, Message: "A former part is being removed.", RecheckAfter: 2 * time.Second}, true
	case errors.Is(err, errForeign):
		return failed("A part of this instance would have the name of something else; delete that, or give this instance another name."), true
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), exceeded):
		return quotaExceeded(), true
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return InvalidValues(), true
	}
	return instances.State{}, false
}

// InvalidValues is the state of an instance whose values make no objects, or objects that the runtime cluster refuses.
func InvalidValues() instances.State {
	return failed("The values of this instance cannot be applied; what was applied before stays as it is.")
}

// InvalidTemplate is the state of an instance whose Template has a mistake that no object can repair. mistake names the field.
func InvalidTemplate(mistake string) instances.State {
	state := failed("The platform has made this instance, and cannot tell what belongs to it, because of a mistake in its kind; ask the platform team, whose log names the mistake.")
	state.Reason, state.Mistake = "TemplateInvalid", mistake
	return state
}

func failed(message string) instances.State {
	return instances.State{Phase: infrastructurev1alpha1.PhaseFailed, Message: message, RecheckAfter: refusalInterval}
}
