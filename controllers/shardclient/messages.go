package shardclient

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/atoll-dev/atoll/controllers/status"
)

// StableMessage returns a message for conditions that is the same for each attempt: without ports and request numbers.
func StableMessage(err error) string {
	var stable *stableError
	var statusErr *status.Error
	switch apiStatus := apierrors.APIStatus(nil); {
	case errors.As(err, &stable):
		return stable.Error()
	case errors.As(err, &statusErr):
		return statusErr.Error()
	case errors.As(err, &apiStatus):
		return apiStatus.Status().Message
	}
	return networkMessage(err)
}

// networkMessage describes why a request got no response. The messages of the errors themselves may contain the port of the client, or
// the current time.
func networkMessage(err error) string {
	var unknownAuthority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var lookup *net.DNSError
	var operation *net.OpError
	switch {
	case errors.As(err, &unknownAuthority):
		return "its certificate is signed by an unknown authority"
	case errors.As(err, &hostname):
		return "its certificate is for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired, or is not valid yet"
	case errors.As(err, &lookup):
		return "lookup " + lookup.Name + ": " + lookupFailure(lookup)
	case errors.As(err, &operation) && operation.Addr != nil:
		return operation.Op + " " + operation.Net + " " + operation.Addr.String() + ": " + cause(operation.Err).Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer within " + callTimeout.String()
	}
	return cause(err).Error()
}

// lookupFailure returns the message of a failed lookup without the addresses of a request to a name server.
func lookupFailure(err *net.DNSError) string {
	switch {
	case err.IsNotFound:
		return "no such host"
	case err.IsTimeout:
		return "no answer of the name server"
	}
	return "the name server failed"
}

// cause returns the innermost error.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// stableError is an error whose message is the same for each attempt; cause may have more details.
type stableError struct {
	message string
	cause   error
}

func (s *stableError) Error() string { return s.message }

func (s *stableError) Unwrap() error { return s.cause }

// Errorf returns an error whose message is the same for each attempt.
func Errorf(format string, args ...any) error {
	return &stableError{message: fmt.Sprintf(format, args...)}
}

// describeError wraps err with a message that is the same for each attempt. It logs the omitted details.
func describeError(ctx context.Context, err error, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	ctrl.LoggerFrom(ctx).Info("Failed to send a request to the installation", "attempt", message, "err", err)
	return &stableError{message: message + ": " + StableMessage(err), cause: err}
}
