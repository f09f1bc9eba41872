package syncer

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/internal/workspaces"
)

// ClaimError means that the agent has no permission to read a resource in a workspace: the consumer has not accepted the permission
// claim.
type ClaimError struct {
	Resource schema.GroupResource
	Err      error
}

func (e *ClaimError) Error() string {
	return fmt.Sprintf("the permission claim for %s is not accepted: %v", e.Resource, e.Err)
}

// Unwrap returns the response of the server.
func (e *ClaimError) Unwrap() error { return e.Err }

// IsClaimNotAccepted reports whether an error is due to permission claims that the consumer has not accepted. Only the consumer can
// resolve it.
func IsClaimNotAccepted(err error) bool {
	var claim *ClaimError
	return errors.As(err, &claim)
}

// OwnedError means that the agent did not write an object because it belongs to another owner.
type OwnedError struct {
	Object string
	Owner  string
}

func (e *OwnedError) Error() string { return fmt.Sprintf("%s exists and %s", e.Object, e.Owner) }

// AmbiguousError means that several copies name one source.
type AmbiguousError struct {
	Source Source
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("more than one object has the labels of the copy of %s in logical cluster %s", e.Source.NamespacedName, e.Source.Cluster)
}

// isMissing reports whether an error means that an object does not exist. A server also returns NotFound for a resource that it does not
// serve, which proves nothing about the object.
func isMissing(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

func isNamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// isConflict reports whether an error consists of conflicts only: a retry after a mixed error would hide the other errors.
func isConflict(err error) bool {
	switch wrapping := err.(type) { // it visits all wrapped errors
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(wrapping.Unwrap(), func(err error) bool { return !isConflict(err) })
	case interface{ Unwrap() error }:
		return isConflict(wrapping.Unwrap())
	}
	return apierrors.IsConflict(err)
}

// consumerText returns the message for consumers about an error. It reveals nothing about the service cluster.
func consumerText(err error) string {
	var claim *ClaimError
	if errors.As(err, &claim) {
		return fmt.Sprintf("Related objects cannot be synchronized until the permission claim for %s is accepted in this workspace.", claim.Resource)
	}
	return "The object could not be synchronized. It is retried; if this persists, contact the provider of the service."
}

// conflict returns an error that requeues the object.
func conflict(resource workspaces.Resource, key types.NamespacedName, reason string) error {
	return apierrors.NewConflict(resource.GroupVersionResource().GroupResource(), key.Name, errors.New(reason))
}
