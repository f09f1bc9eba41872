package syncer

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/atoll-dev/atoll/internal/workspaces"
)

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
func (p *pass) record(ctx context.Context, reason string) {
	p.config.Events.Event(ctx, p.request.Workspace, p.source, corev1.EventTypeNormal, reason, texts[reason])
}

func (p *pass) warn(ctx context.Context, reason, message string) {
	p.config.Events.Event(ctx, p.request.Workspace, p.source, corev1.EventTypeWarning, reason, message)
}
