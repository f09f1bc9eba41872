// Package etcdrequest translates the errors of requests that etcd refuses because of the client's input, for all servers that store
// objects.
package etcdrequest

import (
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// WithTooLarge returns status 413 for an object that etcd, or its client, refuses because of its size, and other errors unchanged.
func WithTooLarge(err error) error {
	refused := errors.Is(err, rpctypes.ErrRequestTooLarge)
	if s, ok := grpcstatus.FromError(err); ok && s.Code() == codes.ResourceExhausted {
		refused = refused || strings.Contains(s.Message(), "trying to send message larger than max")
	}
	if !refused {
		return err
	}
	return apierrors.NewRequestEntityTooLargeError("the object is larger than what etcd stores: " + err.Error())
}
