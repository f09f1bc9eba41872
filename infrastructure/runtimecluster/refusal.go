package runtimecluster

import (
	"errors"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/instance"
)

// refusalInterval is how often an instance is reconciled again whose objects the runtime cluster refuses.
const refusalInterval = time.Minute

var (
	// errForeign means that the object to apply does not belong to the instance.
	errForeign = errors.New("exists and belongs to something else")
	// errTerminating means that the object to apply is being deleted.
	errTerminating = errors.New("is being deleted")
)

// Refusal returns the state of an instance whose objects cannot be applied because of their content, and whether err is such an error. The
// details belong in the log, because they name objects that tenants do not know. Other errors are failures of the cluster.
func Refusal(err error) (instance.State, bool) {
	switch {
	case err == nil:
		return instance.State{}, false
	case errors.Is(err, errTerminating):
		return instance.State{Phase: infrastructurev1alpha1.PhaseProvisioning, Message: "A previous part is being removed.", RecheckAfter: 2 * time.Second}, true
	case errors.Is(err, errForeign):
		return failed("A part of this instance would have the name of something else; delete that, or give this instance another name."), true
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), exceeded):
		return quotaExceeded(), true
	case isInvalid(err):
		return InvalidValues(), true
	}
	return instance.State{}, false
}

// unreasoned are parts of error messages about objects for which API servers return no reason: an object that does not match its schema,
// and one that is too large for etcd or for a request to etcd.
var unreasoned = []string{"failed to create typed patch object", "etcdserver: request is too large", "trying to send message larger than max"}

// isInvalid reports whether the content of an object caused the error.
func isInvalid(err error) bool {
	if _, ok := errors.AsType[*InvalidError](err); ok || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) {
		return true
	}
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && slices.ContainsFunc(unreasoned, func(text string) bool { return strings.Contains(err.Error(), text) })
}

// InvalidValues returns the state of an instance whose values result in no objects, or in objects that the runtime cluster refuses.
func InvalidValues() instance.State {
	return failed("The values of this instance cannot be applied; what was applied before stays as it is.")
}

// InvalidTemplate returns the state of an instance whose Template has an error that no change of objects can repair. The argument names the
// field.
func InvalidTemplate(mistake string) instance.State {
	state := failed("The platform has created this instance, and cannot determine its objects because of a mistake in its kind. Ask the platform team: its log names the mistake.")
	state.Reason, state.Mistake = "TemplateInvalid", mistake
	return state
}

func failed(message string) instance.State {
	return instance.State{Phase: infrastructurev1alpha1.PhaseFailed, Message: message, RecheckAfter: refusalInterval}
}
