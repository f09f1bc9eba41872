package instance

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// LabelEvent returns the label key of events of instances. Its value is "true".
func LabelEvent(group string) string { return group + "/event" }

// recordTransition records an event in the tenant's workspace if an instance has changed its state and the tenant accepts the claim for
// events. A write that does not change the reason of the condition Ready records none.
func (p *pass) recordTransition(after map[string]any) {
	former, current := readyCondition(statusOf(p.instance.Object)), readyCondition(after)
	if current == nil || former != nil && former.Reason == current.Reason {
		return
	}
	eventType, reason, message := corev1.EventTypeNormal, current.Reason, current.Message
	switch {
	case reason == reasonReady:
		reason, message = "Ready", "The instance is ready."
	case reason == reasonUnavailable, after["phase"] == string(infrastructurev1alpha1.PhaseFailed):
		eventType = corev1.EventTypeWarning
	}
	p.kind.shard.record(p.ctx, p.instance.Cluster, p.instance.Object, eventType, reason, message)
}

func (s *shard) record(ctx context.Context, cluster logicalcluster.Name, object *unstructured.Unstructured, eventType, reason, message string) {
	s.events.Event(ctx, s.workspaces.Client(cluster), object, eventType, reason, message)
}

// recordPurge records an event in the provider's workspace that the backend has deleted the remains of a tenant's workspace.
func (r *runner) recordPurge(ctx context.Context, tenant logicalcluster.Name) {
	exported := &apisv1alpha2.APIExport{}
	if err := r.provider.Get(ctx, client.ObjectKey{Name: r.Export}, exported); err != nil {
		log.FromContext(ctx).Error(err, "Could not read the export that an event is about")
		return
	}
	r.record(ctx, apisv1alpha2.SchemeGroupVersion.WithKind("APIExport"), exported, corev1.EventTypeNormal, "Purged",
		fmt.Sprintf("Backend %s deleted what it still had of logical cluster %s, which has no instances.", r.Backend, tenant))
}

// maxMistake bounds the length of the description of an error in an event.
const maxMistake = 800

// recordMistake records an event in the provider's workspace that an error in a Template prevents an instance from becoming ready. The
// event is the same for all instances, so that the recorder aggregates them.
func (p *pass) recordMistake(mistake string) {
	log.FromContext(p.ctx).Info("An instance has failed because of a mistake in its Template", "template", p.latest.Name, "reason", mistake)
	if len(mistake) > maxMistake {
		mistake = strings.ToValidUTF8(mistake[:maxMistake], "") + "..."
	}
	kind := infrastructurev1alpha1.SchemeGroupVersion.WithKind("Template")
	kind.Group = p.Group
	p.record(p.ctx, kind, p.latest, corev1.EventTypeWarning, "InstancesFail", "Instances cannot become ready: "+mistake)
}

// record records an event about an object in the provider's workspace.
func (r *runner) record(ctx context.Context, kind schema.GroupVersionKind, of client.Object, eventType, reason, message string) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetName(of.GetName())
	object.SetUID(of.GetUID())
	r.operatorEvents.Event(ctx, r.provider, object, eventType, reason, message)
}
