package publisher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/projection"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/source"
)

// Reasons of the condition SchemaReady.
const (
	reasonCreated  = "Created"
	ReasonInvalid  = "InvalidSpec"
	reasonNoSource = "SourceNotFound"
	reasonRefused  = "SchemaRefused"
	reasonFailed   = "ReconcilingError"
)

// failure is why a publication has no schema of its current content.
type failure struct {
	reason, message string
	// retry is the error that requeues the publication; it is nil if the publication, its definition or the workspace has to change
	// first.
	retry error
}

// schemaReconciler creates the APIResourceSchemas of PublishedResources.
type schemaReconciler struct {
	options   Options
	discovery source.Discovery
	service   client.Reader
	workspace client.Client
	// schemas reads without the cache, because that contains only metadata, and may not have a schema that has just been created.
	schemas  client.Reader
	recorder events.EventRecorder
}

// Reconcile implements reconcile.Reconciler. It does not delete the schema of a deleted PublishedResource, because consumers may have
// objects.
func (r *schemaReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	p, err := r.options.Publications.Get(ctx, request.NamespacedName)
	if err != nil || p.Object.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	name, failure := r.publish(ctx, p)
	condition := metav1.Condition{
		Type: syncagentv1alpha1.ConditionSchemaReady, Status: metav1.ConditionTrue, Reason: reasonCreated,
		Message: fmt.Sprintf("APIResourceSchema %s has the current content", name), ObservedGeneration: p.Object.GetGeneration(),
	}
	if failure != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, failure.reason, failure.message
		r.recorder.Eventf(p.Object, nil, corev1.EventTypeWarning, ReasonReconcilingError, "Publish", "%s", note(failure.message))
	}
	err = r.options.Publications.WriteStatus(ctx, p, func(status *syncagentv1alpha1.PublishedResourceStatus) {
		if failure == nil {
			status.ResourceSchemaName = name
		}
		meta.SetStatusCondition(&status.Conditions, condition)
	})
	if failure != nil {
		err = errors.Join(failure.retry, client.IgnoreNotFound(err))
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// publish ensures that the schema of a publication exists, and returns its name.
func (r *schemaReconciler) publish(ctx context.Context, p *publication.Publication) (string, *failure) {
	if len(p.Invalid) > 0 {
		return "", &failure{ReasonInvalid, p.Invalid.ToAggregate().Error(), nil}
	}
	resource := p.Spec.Resource
	definition, err := source.Definition(ctx, r.discovery, r.service, resource.APIGroup, resource.Kind)
	if errors.Is(err, source.ErrNotServed) {
		return "", &failure{reasonNoSource, fmt.Sprintf("The service cluster serves no kind %s in the API group %q. Install its CustomResourceDefinition, or correct spec.resource.",
			resource.Kind, resource.APIGroup), err}
	}
	if err != nil {
		return "", failed(err)
	}
	projected, err := projection.Project(definition, &p.Spec)
	if err != nil {
		if invalid := (*field.Error)(nil); errors.As(err, &invalid) {
			return "", &failure{ReasonInvalid, err.Error(), nil}
		}
		return "", failed(err)
	}
	desired, err := projection.Schema(projected, r.options.AgentName)
	if err != nil {
		return "", failed(err)
	}
	if err := r.ensure(ctx, desired); err != nil {
		return "", refused(desired.Name, err)
	}
	return desired.Name, nil
}

// ensure creates a schema, or repairs its labels and annotations. It does not compare the content, because the name contains a hash of
// it.
func (r *schemaReconciler) ensure(ctx context.Context, desired *apisv1alpha1.APIResourceSchema) error {
	existing := &apisv1alpha1.APIResourceSchema{}
	err := r.schemas.Get(ctx, client.ObjectKeyFromObject(desired), existing)
	if apierrors.IsNotFound(err) {
		log.FromContext(ctx).Info("Creating APIResourceSchema", "name", desired.Name)
		err = r.workspace.Create(ctx, desired)
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		err = r.schemas.Get(ctx, client.ObjectKeyFromObject(desired), existing)
	}
	if err != nil {
		return err
	}
	labels, annotations := with(existing.Labels, desired.Labels), with(existing.Annotations, desired.Annotations)
	if maps.Equal(labels, existing.Labels) && maps.Equal(annotations, existing.Annotations) {
		return nil
	}
	existing.Labels, existing.Annotations = labels, annotations
	return r.workspace.Update(ctx, existing)
}

// with returns the entries of both maps; those of the second map take precedence.
func with(existing, desired map[string]string) map[string]string {
	result := maps.Clone(existing)
	if result == nil {
		result = map[string]string{}
	}
	maps.Copy(result, desired)
	return result
}

func failed(err error) *failure {
	return &failure{reasonFailed, err.Error(), err}
}

// refused returns the failure for a schema that cannot be created. Its message includes the remedy.
func refused(name string, err error) *failure {
	message := fmt.Sprintf("Cannot create APIResourceSchema %s: %s.", name, strings.TrimSuffix(err.Error(), "."))
	switch {
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), isRefusedByAdmission(err):
		return &failure{reasonRefused, message + " Change the CustomResourceDefinition or spec.projection.", err}
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return &failure{reasonFailed, message + " Grant the agent get, list, watch, create and update on apiresourceschemas in the workspace of the APIExport.", err}
	}
	return failed(fmt.Errorf("creating APIResourceSchema %s: %w", name, err))
}

// isRefusedByAdmission reports whether admission, and not authorization, returned Forbidden: the error of admission describes what is
// wrong in the object.
func isRefusedByAdmission(err error) bool {
	return apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "User \"")
}

// note truncates a message to the maximum length of an event's message.
func note(message string) string {
	const maxNoteLength = 1024
	if len(message) > maxNoteLength {
		return strings.ToValidUTF8(message[:maxNoteLength], "")
	}
	return message
}

// enqueue enqueues the PublishedResources that an object affects.
func (r *schemaReconciler) enqueue(concerns func(object client.Object, sourceGroup, schemaName string) bool) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		keys, err := r.options.Publications.Find(ctx, func(sourceGroup, schemaName string) bool { return concerns(object, sourceGroup, schemaName) })
		if err != nil {
			log.FromContext(ctx).Error(err, "Failed to find the PublishedResources of a change", "name", object.GetName())
		}
		requests := make([]reconcile.Request, 0, len(keys))
		for _, key := range keys {
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
		return requests
	})
}

// ofGroup reports whether a definition, whose name is "<plural>.<group>", is in a group. The metadata does not contain its kind; an
// unnecessary reconciliation of a publication costs a few reads.
func ofGroup(definition client.Object, sourceGroup, _ string) bool {
	_, group, _ := strings.Cut(definition.GetName(), ".")
	return group == sourceGroup
}

func hasName(schema client.Object, _, schemaName string) bool { return schema.GetName() == schemaName }
