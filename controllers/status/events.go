package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// Event is a change between two states of an object.
type Event struct{ Type, Reason, Note string }

// Transitions returns the events of a change of conditions: the object became ready, is not ready any more, or is stalled, and a part
// became ready. Unchanged conditions cause no event.
func Transitions(before, after []metav1.Condition) []Event {
	var out []Event
	for _, now := range after {
		was := meta.FindStatusCondition(before, now.Type)
		changed := was == nil || was.Status != now.Status
		isTrue := now.Status == metav1.ConditionTrue
		switch now.Type {
		case operatorv1alpha1.ConditionReady:
			switch {
			case changed && isTrue:
				out = append(out, Event{corev1.EventTypeNormal, "Ready", now.Message})
			case was != nil && was.Status == metav1.ConditionTrue && !isTrue:
				out = append(out, Event{corev1.EventTypeWarning, "NotReady", now.Message})
			}
		case operatorv1alpha1.ConditionStalled:
			if isTrue && (changed || was.Reason != now.Reason) {
				out = append(out, Event{corev1.EventTypeWarning, now.Reason, now.Message})
			}
		case operatorv1alpha1.ConditionSpecHonored:
			if !isTrue && (changed || was.Message != now.Message) {
				out = append(out, Event{corev1.EventTypeWarning, now.Reason, now.Message})
			}
		case operatorv1alpha1.ConditionEtcdHealthy:
			if isTrue && changed && was != nil {
				out = append(out, Event{corev1.EventTypeNormal, now.Type, now.Message})
			}
			if !isTrue && (changed || was.Message != now.Message) {
				out = append(out, Event{corev1.EventTypeWarning, now.Reason, now.Message})
			}
		case operatorv1alpha1.ConditionDrained:
			switch {
			case was != nil && was.Status == now.Status && was.Reason == now.Reason:
			case isTrue:
				out = append(out, Event{corev1.EventTypeNormal, now.Type, now.Message})
			case now.Reason == operatorv1alpha1.ReasonDraining:
				out = append(out, Event{corev1.EventTypeNormal, now.Reason, now.Message})
			default:
				out = append(out, Event{corev1.EventTypeWarning, now.Reason, now.Message})
			}
		case operatorv1alpha1.ConditionReconciling:
		default:
			if changed && isTrue {
				out = append(out, Event{corev1.EventTypeNormal, now.Type, now.Message})
			}
			if !isTrue && isMistake(now.Reason) && (changed || was.Message != now.Message) {
				out = append(out, Event{corev1.EventTypeWarning, now.Reason, now.Message})
			}
		}
	}
	return out
}

// mistakes are reasons for which an object waits until the user corrects it, or creates an object that it names. The object is not
// stalled, because the correction causes an event that the operator watches.
var mistakes = []string{operatorv1alpha1.ReasonInvalidReference, operatorv1alpha1.ReasonReferenceNotFound, ReasonSourceNotFound, ReasonSecretNotFound}

func isMistake(reason string) bool { return slices.Contains(mistakes, reason) }

// RecordEvents records the transitions of an object as events.
func RecordEvents(recorder events.EventRecorder, object runtime.Object, before, after []metav1.Condition) {
	const maxNoteLength = 1024
	for _, event := range Transitions(before, after) {
		note := event.Note
		if len(note) > maxNoteLength {
			note = note[:maxNoteLength]
		}
		recorder.Eventf(object, nil, event.Type, event.Reason, "Reconcile", "%s", note)
	}
}
