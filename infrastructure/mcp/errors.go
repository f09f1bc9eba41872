package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/atoll-dev/atoll/infrastructure/shortname"
)

// argumentError means that an argument cannot be used.
type argumentError struct{ argument, problem string }

// Error implements error.
func (e *argumentError) Error() string { return e.argument + ": " + e.problem }

// failure is the error of a tool: what failed, why, and what to do next.
type failure struct{ what, why, next string }

// Error implements error.
func (f *failure) Error() string {
	return fmt.Sprintf("%s: %s\n%s%s", f.what, strings.TrimSuffix(f.why, "."), nextStep, f.next)
}

// nextStep precedes the advice in an error.
const nextStep = "What to do next: "

// errBusy is the error for calls above the limit.
var errBusy = errors.New("this server runs as many calls as it may")

// explain returns the error of a tool that acted in a workspace. It contains messages of the control plane to this user. It omits addresses
// and network errors, which users should not see.
func (s *server) explain(what, workspace string, err error) error {
	f := &failure{what: what}
	var argument *argumentError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &argument):
		f.why, f.next = err.Error(), "Correct the argument and call the tool again."
	case errors.Is(err, errBusy):
		f.why, f.next = err.Error(), "Call the tool again in some seconds."
	case errors.Is(err, errPanic):
		f.why, f.next = err.Error(), "Tell the operator of the platform."
	case errors.Is(err, errTooLarge):
		f.why, f.next = "the answer of the control plane is too large", "Use a smaller limit, or name a kind."
	case errors.As(err, &status):
		f.why, f.next = s.explainStatus(workspace, err, status.Status())
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		f.why, f.next = "the control plane did not answer in time", "Call the tool again later."
	default:
		f.why, f.next = "the control plane does not answer", "Call the tool again later; if it keeps failing, tell the operator of the platform."
	}
	return f
}

// explainStatus returns why the control plane refused a request, and what to do.
func (s *server) explainStatus(workspace string, err error, status metav1.Status) (why, next string) {
	why = shortname.Truncate(status.Message, maxMessage)
	switch {
	case apierrors.IsUnauthorized(err):
		return "the bearer token is not valid, or has expired", "Ask the user for a new token, and have the client send it."
	case apierrors.IsForbidden(err) && strings.Contains(why, "quota"):
		return why, "Delete instances that are not needed, or ask an administrator of the workspace for more quota."
	case isDenied(err, status):
		return "the user is not permitted to do this there, or the workspace does not exist",
			fmt.Sprintf("Check the workspace, %q. If it is right, one of its administrators has to grant the user access to it, and rights for templates and kinds of the API group %s.", workspace, s.cfg.Group)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return fields(status), "Change these values: infrastructure__describe_template has the schema of the values and an example. Then call the tool again."
	case apierrors.IsAlreadyExists(err):
		return why, "Choose another name, or change the existing instance with infrastructure__update_instance."
	case apierrors.IsNotFound(err) && (status.Details == nil || status.Details.Name == ""):
		return "the workspace has no infrastructure catalogue",
			fmt.Sprintf("Check the workspace, %q. If it is right, one of its administrators has to bind the catalogue: kubectl kcp bind apiexport %s", workspace, s.cfg.Export)
	case apierrors.IsNotFound(err):
		return why, "Check the name: infrastructure__list_templates and infrastructure__list_instances show what exists."
	case apierrors.IsMethodNotSupported(err):
		return why, "This cannot be changed in a workspace of a user."
	case apierrors.IsConflict(err):
		return "somebody else has changed it at the same time", "Read the instance again, and repeat the change if it is still needed."
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return "the list has changed since its first page", "Call the tool again without continue."
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return "the control plane is busy or not available", "Call the tool again in some seconds."
	case status.Code >= http.StatusInternalServerError:
		return "the control plane has failed", "Call the tool again later; if it keeps failing, tell the operator of the platform."
	}
	return why, "Change the arguments accordingly."
}

// isDenied reports whether the user has no access, or the workspace does not exist. Servers return different messages for these cases; showing
// them would reveal which workspaces of others exist.
func isDenied(err error, status metav1.Status) bool {
	if apierrors.IsForbidden(err) {
		return strings.HasSuffix(status.Message, "access denied") || strings.HasSuffix(status.Message, "workspace access not permitted")
	}
	return apierrors.IsNotFound(err) && status.Details != nil && status.Details.Group == "tenancy.kcp.io"
}

const (
	// maxMessage and maxCause bound the length of messages of the control plane, which may repeat values.
	maxMessage, maxCause = 4 << 10, 500
	maxCauses            = 20
)

// fields returns one line for each refused field.
func fields(status metav1.Status) string {
	if status.Details == nil || len(status.Details.Causes) == 0 {
		return shortname.Truncate(status.Message, maxMessage)
	}
	lines := []string{"these values are refused:"}
	for i, cause := range status.Details.Causes {
		if i == maxCauses {
			lines = append(lines, "- and more")
			break
		}
		field := cause.Field
		if after, ok := strings.CutPrefix(field, "spec"); ok {
			field = "values" + after
		}
		lines = append(lines, shortname.Truncate(fmt.Sprintf("- %s: %s", field, cause.Message), maxCause))
	}
	return strings.Join(lines, "\n")
}
