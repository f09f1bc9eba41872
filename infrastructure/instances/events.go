package instances

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

// LabelEvent returns the key of the label of events of instances. Its value is "true".
func LabelEvent(group string) string { return group + "/event" }

// recordTransition tells the tenant in an event that an instance has changed its state, if the tenant lets events in. What was written
// without such a change is no event.
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

// recordPurge tells the platform operator, in the workspace of the provider, that something was left of a workspace.
func (r *runner) recordPurge(ctx context.Context, tenant logicalcluster.Name) {
	exported := &apisv1alpha2.APIExport{}
	if err := r.provider.Get(ctx, client.ObjectKey{Name: r.Export}, exported); err != nil {
		log.FromContext(ctx).Error(err, "Could not read the export that an event is about")
		return
	}
	r.record(ctx, apisv1alpha2.SchemeGroupVersion.WithKind("APIExport"), exported, corev1.EventTypeNormal, "Purged",
		fmt.Sprintf("Backend %s deleted what it still had of logical cluster %s, which has no instances.", r.Backend, tenant))
}

// maxMistake is the limit of what an event says of a mistake.
const maxMistake = 800

// recordMistake tells the platform operator, in the workspace of the provider, what in a Template keeps an instance from being ready. It is the
// same for all instances, so that their events are one.
func (p *pass) recordMistake(mistake string) {
	log.FromContext(p.ctx).Info("An instance has failed because of a mistake in its Template", "template", p.latest.Name, "reason", mistake)
	if len(mistake) > maxMistake {
		mistake = strings.ToValidUTF8(mistake[:maxMistake], "") + "..."
	}
	kind := infrastructurev1alpha1.SchemeGroupVersion.WithKind("Template")
	kind.Group = p.Group
	p.record(p.ctx, kind, p.latest, corev1.EventTypeWarning, "InstancesFail", "Instances cannot become ready: "+mistake)
}

// record records an event of an object in the workspace of the provider.
func (r *runner) record(ctx context.Context, kind schema.GroupVersionKind, of client.Object, eventType, reason, message string) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetName(of.GetName())
	object.SetUID(of.GetUID())
	r.operatorEvents.Event(ctx, r.provider, object, eventType, reason, message)
}
