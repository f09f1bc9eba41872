package instance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/shortname"
)

// conditionConnection is the type of the condition that reports whether the tenant has the connection of an instance.
const conditionConnection = "ConnectionAvailable"

// Reasons of the condition.
const (
	reasonAvailable   = "Available"
	reasonNotAccepted = "ClaimNotAccepted"
	reasonForeign     = "SecretExists"
	reasonRefused     = "SecretRefused"
)

// connectionNamespace is the namespace of Secrets with connections. Every workspace has it; instances are cluster-scoped.
const connectionNamespace = corev1.NamespaceDefault

// LabelConnection returns the label key of Secrets with connections. Its value is "true".
func LabelConnection(group string) string { return group + "/connection" }

// errForeign means that an existing Secret of that name does not belong to the instance.
var errForeign = errors.New("the Secret is not the instance's")

// connection is the part of the status about the connection of an instance.
type connection struct {
	secret    string            // the name of the Secret, empty if there is none
	condition *metav1.Condition // nil if the instance has no connection
}

// connect writes the connection of an instance to a Secret in the workspace of the tenant, if the tenant accepts the claim. The status
// reports why it cannot. While an instance is not ready, an existing Secret stays as it is.
func (r *reconciliation) connect(state State) (connection, error) {
	object := r.instance.Object
	previous := connectionOf(object)
	switch {
	case len(state.Connection) > 0:
		name := connectionName(object)
		condition, err := connectionCondition(r.applySecret(name, state.Connection), r.runner.controller.NumRequeues(r.request) >= toleratedErrors)
		if err != nil {
			return previous, err
		}
		if condition.Status == metav1.ConditionTrue {
			return connection{name, condition}, nil
		}
		return connection{condition: condition}, nil
	case state.Phase != infrastructurev1alpha1.PhaseReady:
		return previous, nil
	case previous.secret == "":
		return connection{}, nil
	}
	return connection{}, r.deleteSecret(previous.secret)
}

// connectionOf returns the connection in the current status of an instance.
func connectionOf(object *unstructured.Unstructured) connection {
	var c connection
	c.secret, _, _ = unstructured.NestedString(object.Object, "status", "connectionSecret", "name")
	c.condition = meta.FindStatusCondition(conditionsOf(statusOf(object)), conditionConnection)
	return c
}

// connectionName returns the name of the Secret of an instance.
func connectionName(object *unstructured.Unstructured) string {
	return shortname.Of(object.GetName()+"-"+strings.ToLower(object.GetKind()), shortname.Object)
}

// applySecret creates or updates the Secret of an instance.
func (r *reconciliation) applySecret(name string, values map[string]string) error {
	c := r.kind.shard.workspaces.Client(r.instance.Cluster)
	wanted := r.newSecret(name, values)
	current := &corev1.Secret{}
	err := c.Get(r.ctx, client.ObjectKeyFromObject(wanted), current)
	switch {
	case apierrors.IsNotFound(err):
		if err := c.Create(r.ctx, wanted); err != nil {
			return &refusedError{err}
		}
		return nil
	case err != nil:
		return err
	case !isOwned(current, r.instance.Object):
		return errForeign
	case isSame(current, wanted):
		return nil
	}
	updated := current.DeepCopy()
	updated.Data = wanted.Data
	updated.Labels = labels.Merge(updated.Labels, wanted.Labels)
	if err := c.Update(r.ctx, updated); err != nil {
		return &refusedError{err}
	}
	return nil
}

// deleteSecret deletes the Secret of an instance that has stopped having a connection. The garbage collector of the workspace deletes the
// Secret of an instance that is gone.
func (r *reconciliation) deleteSecret(name string) error {
	c := r.kind.shard.workspaces.Client(r.instance.Cluster)
	current := &corev1.Secret{}
	err := c.Get(r.ctx, client.ObjectKey{Namespace: connectionNamespace, Name: name}, current)
	if err == nil && isOwned(current, r.instance.Object) {
		uid := current.UID
		err = c.Delete(r.ctx, current, client.Preconditions{UID: &uid})
	}
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsConflict(err) {
		return nil // without access the platform leaves the Secret to the tenant
	}
	return fmt.Errorf("deleting the Secret of the connection: %s", apierrors.ReasonForError(err))
}

func (r *reconciliation) newSecret(name string, values map[string]string) *corev1.Secret {
	object := r.instance.Object
	data := make(map[string][]byte, len(values))
	for key, value := range values {
		data[key] = []byte(value)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: connectionNamespace, Name: name,
			Labels: map[string]string{
				LabelConnection(r.runner.Group): "true",
				r.runner.Group + "/template":    shortname.Of(r.instance.Template.Name, shortname.Label),
				r.runner.Group + "/instance":    shortname.Of(object.GetName(), shortname.Label),
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Name: object.GetName(), UID: object.GetUID()}},
		},
		Type: corev1.SecretTypeOpaque,
		Data: data,
	}
}

// isOwned reports whether a Secret belongs to an instance, and not to a previous one of its name.
func isOwned(secret *corev1.Secret, object *unstructured.Unstructured) bool {
	return slices.ContainsFunc(secret.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == object.GetUID() })
}

func isSame(current, wanted *corev1.Secret) bool {
	return labels.SelectorFromSet(wanted.Labels).Matches(labels.Set(current.Labels)) && maps.EqualFunc(current.Data, wanted.Data, bytes.Equal)
}

// refusedError is an error of a write, which means that the platform had permission to read the Secret.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

// connectionCondition returns the condition for an error, or an error to retry. Errors of the server may quote the request, so only their
// reason is used. A write that times out results in a condition only after repeated errors, because the shard may be slow, too.
func connectionCondition(err error, again bool) (*metav1.Condition, error) {
	condition := &metav1.Condition{Type: conditionConnection, Status: metav1.ConditionFalse}
	_, isWrite := errors.AsType[*refusedError](err)
	switch {
	case err == nil:
		condition.Status, condition.Reason = metav1.ConditionTrue, reasonAvailable
	case apierrors.IsForbidden(err) && !isWrite:
		condition.Reason = reasonNotAccepted
		condition.Message = "The APIBinding of this workspace does not accept the permission claim for secrets, through which the Secret with the connection is handed over; accept it: kubectl kcp claims accept BINDING --resource secrets.core"
	case errors.Is(err, errForeign), apierrors.IsAlreadyExists(err):
		condition.Reason = reasonForeign
		condition.Message = "Another Secret has the name of the Secret with the connection; it is not changed; delete it or rename it."
	case isWrite && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err)):
		condition.Reason = reasonRefused
		condition.Message = fmt.Sprintf("The workspace refuses the Secret with the connection (%s): the accepted claim lacks a verb that the export claims, a quota is exhausted, the values are too large, or the namespace %s is missing.", apierrors.ReasonForError(err), connectionNamespace)
	case isWrite && again && isUnanswered(err):
		condition.Reason = reasonRefused
		condition.Message = "The workspace does not answer in time where the Secret with the connection is written, as when a webhook of it for secrets is slow or fails; the platform tries again every minute."
	default:
		return nil, fmt.Errorf("handing over the connection: %s", cmp.Or(string(apierrors.ReasonForError(err)), "no answer"))
	}
	return condition, nil
}

// isUnanswered reports whether a request timed out, or failed in a server or webhook.
func isUnanswered(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
}
