// Package syncer syncs one primary object: a reconciliation reads it, its copy on the service cluster and its related objects, computes the
// differences with pure functions, and writes them. Every reconciliation starts from the current objects, so an earlier reconciliation may have ended between
// any two writes. Finalizers are written before copies, and copies before the state that describes them.
//
// The package has no goroutines, and caches nothing about an object in memory.
package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/state"
)

const (
	// pollDelay is the delay of the next reconciliation where no event triggers it.
	pollDelay = 5 * time.Second
	// conflictDelay is the delay of the next reconciliation after a conflict: a cache may not have the conflicting change yet.
	conflictDelay = 500 * time.Millisecond
)

// Client is the client interface that the syncer needs. The syncer passes objects as unstructured ones, except Secrets and Namespaces of
// the service cluster.
type Client interface {
	client.Reader
	client.Writer
	client.StatusClient
}

// Config configures a Syncer. The syncer does not modify it.
type Config struct {
	AgentName string
	// Namespace is the namespace of the agent on the service cluster.
	Namespace   string
	Publication *publication.Publication
	// WorkspaceResource and ServiceResource are the published resource on each side.
	WorkspaceResource, ServiceResource workspaces.Resource
	// Related are the related resources, in the order of the publication.
	Related []RelatedResource
	// Service is a client of the service cluster. It must not read from a cache.
	Service Client
	// Copies finds copies on the service cluster. It may read from a cache.
	Copies Copies
	Events Events
}

// RelatedResource is a related resource, resolved on both sides.
type RelatedResource struct {
	Spec syncagentv1alpha1.RelatedResourceSpec
	// Origin is the resource on the side of the origin, Copy the resource on the other side.
	Origin, Copy workspaces.Resource
	// Unresolved is why one of them is not resolved; it is nil if both are. The syncer locates and creates nothing for such an entry.
	Unresolved error
}

// Request is a primary object to sync.
type Request struct {
	Cluster logicalcluster.Name
	types.NamespacedName
	// Workspace is a client of the logical cluster. It may read the primary object from a cache, but no other object.
	Workspace Client
}

// Source returns the identity of the primary object.
func (r Request) Source() Source { return Source{r.Cluster, r.NamespacedName} }

// Result is when the object needs another reconciliation if no event triggers it.
type Result struct {
	RequeueAfter time.Duration
}

// Syncer syncs the objects of one publication.
type Syncer struct {
	config Config
	state  state.Store
}

// New returns a Syncer.
func New(config Config) *Syncer {
	return &Syncer{config: config, state: state.Store{Client: config.Service, Namespace: config.Namespace, AgentName: config.AgentName}}
}

// Sync makes one reconciliation over a primary object. It reports an error to the consumer with a generic event; the text of the error is for the
// owner of the service only.
func (s *Syncer) Sync(ctx context.Context, request Request) (Result, error) {
	p := &reconciliation{Syncer: s, request: request}
	source, err := p.workspace().get(ctx, s.config.WorkspaceResource, request.NamespacedName)
	if err != nil || source == nil {
		return Result{}, err
	}
	p.source = source
	result, err := p.run(ctx)
	switch {
	case err == nil:
		return result, nil
	case ctx.Err() != nil:
		return Result{}, err
	case isConflict(err):
		return Result{RequeueAfter: conflictDelay}, nil
	}
	p.warn(ctx, ReasonReconcilingError, consumerText(err))
	return Result{}, err
}

// reconciliation is one reconciliation over a primary object.
type reconciliation struct {
	*Syncer
	request Request
	// source is the primary object in the workspace.
	source *unstructured.Unstructured
	// path is the path of the workspace; it is empty unless the publication enables workspace paths.
	path  string
	state *state.State
	// home is the namespace of the copy while its related objects are synced; it is empty if the copy is cluster-scoped.
	home string
}

func (re *reconciliation) run(ctx context.Context) (Result, error) {
	if re.source.GetDeletionTimestamp() != nil {
		return re.delete(ctx)
	}
	if matches, err := re.matchesFilter(ctx); err != nil || !matches {
		return re.suspend(ctx, err)
	}
	if err := re.readPath(ctx); err != nil {
		return re.suspend(ctx, err)
	}
	if err := re.loadState(ctx); err != nil {
		return Result{}, err
	}
	found, err := re.findCopy(ctx)
	if err != nil {
		return re.suspend(ctx, err)
	}
	if found != nil && found.GetDeletionTimestamp() != nil {
		return re.suspendUntilGone(ctx, found) // a later reconciliation creates it again
	}
	if err := re.takeOver(ctx, found); err != nil {
		return re.suspend(ctx, err)
	}
	if err := re.ensureFinalizer(ctx); err != nil {
		return Result{}, err
	}
	return re.update(ctx, found)
}

// update updates the copy, the status and the related objects.
func (re *reconciliation) update(ctx context.Context, found *unstructured.Unstructured) (Result, error) {
	desired, err := re.desiredCopy(found)
	if err != nil {
		return re.suspend(ctx, err)
	}
	if found == nil {
		var wait bool
		if found, wait, err = re.create(ctx, desired); err != nil {
			return re.suspend(ctx, err)
		}
		if wait {
			_, err := re.suspend(ctx, nil)
			return Result{RequeueAfter: pollDelay}, err
		}
	}
	found, err = re.syncContent(ctx, found, desired)
	if err != nil {
		return re.suspend(ctx, err)
	}
	if found.GetDeletionTimestamp() != nil {
		return re.suspendUntilGone(ctx, found)
	}
	statusErr := re.syncStatus(ctx, found, desired.mutated) // an error must not delay the related objects
	result, err := re.syncRelated(ctx, found)
	return result, errors.Join(statusErr, err)
}

// suspendUntilGone ends the reconciliation over a live primary object whose copy is being deleted.
func (re *reconciliation) suspendUntilGone(ctx context.Context, copied *unstructured.Unstructured) (Result, error) {
	result, err := re.suspend(ctx, nil)
	result.RequeueAfter = max(result.RequeueAfter, re.awaitDeletion(copied).RequeueAfter)
	return result, err
}

// awaitDeletion returns when to check a copy that is being deleted again. For copies with the agent's label, the watch of copies triggers
// the next reconciliation.
func (re *reconciliation) awaitDeletion(copied *unstructured.Unstructured) Result {
	if copied.GetLabels()[publication.LabelAgentName] == re.config.AgentName {
		return Result{}
	}
	return Result{RequeueAfter: pollDelay}
}

func (s *Syncer) spec() *syncagentv1alpha1.PublishedResourceSpec { return &s.config.Publication.Spec }

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

// Reasons of events in workspaces.
const (
	ReasonAccepted                 = "ObjectAccepted"
	ReasonPlaced                   = "ObjectPlaced"
	ReasonSynced                   = "ObjectSynced"
	ReasonStatusSynced             = "ObjectStatusSynced"
	ReasonCleanup                  = "ObjectCleanup"
	ReasonDeleted                  = "ObjectDeleted"
	ReasonReconcilingError         = "ReconcilingError"
	ReasonStatusSubresourceMissing = "StatusSubresourceMissing"
)

// Events records events of objects in workspaces. It returns no errors, because a failed event does not justify a retry.
type Events interface {
	Event(ctx context.Context, workspace workspaces.EventClient, object *unstructured.Unstructured, eventType, reason, message string)
}

// texts are the messages of events of the type Normal.
var texts = map[string]string{
	ReasonAccepted:     "The object has been accepted by the service.",
	ReasonPlaced:       "The object has been placed with the service.",
	ReasonSynced:       "The object has been synchronized with the service.",
	ReasonStatusSynced: "The status has been updated by the service.",
	ReasonCleanup:      "The object is being removed from the service.",
	ReasonDeleted:      "The object has been removed from the service.",
}

// record records an event of the type Normal.
func (re *reconciliation) record(ctx context.Context, reason string) {
	re.config.Events.Event(ctx, re.request.Workspace, re.source, corev1.EventTypeNormal, reason, texts[reason])
}

func (re *reconciliation) warn(ctx context.Context, reason, message string) {
	re.config.Events.Event(ctx, re.request.Workspace, re.source, corev1.EventTypeWarning, reason, message)
}
