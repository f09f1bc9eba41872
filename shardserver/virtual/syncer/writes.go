package syncer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

const (
	// finalizer is the agent's on published objects.
	finalizer = syncagentv1alpha1.GroupName + "/cleanup"
	// annotationPrefix is that of the agent's annotations of published objects.
	annotationPrefix = "related-resources." + syncagentv1alpha1.GroupName + "/"
)

// writeRules is admission that restricts the updates of published objects to what belongs to the agent. It runs before other
// admission, whose changes are not those of the agent.
type writeRules struct {
	// resource is the resource in logical clusters.
	resource schema.GroupResource
	// selects reports whether the filter of the publication selects an object.
	selects func(metav1.Object) bool
}

var _ admission.MutationInterface = writeRules{}

// Handles implements admission.Interface.
func (writeRules) Handles(operation admission.Operation) bool { return operation == admission.Update }

// Admit implements admission.MutationInterface.
func (r writeRules) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != r.resource {
		return nil
	}
	old, okOld := a.GetOldObject().(*unstructured.Unstructured)
	if okOld && !r.selects(old) { // the watch cache had an older one when the request was checked
		return apierrors.NewNotFound(a.GetResource().GroupResource(), a.GetName())
	}
	if a.GetSubresource() != "" {
		return nil // updates of the status change nothing else
	}
	object, okNew := a.GetObject().(*unstructured.Unstructured)
	if !okOld || !okNew {
		return fmt.Errorf("got %T and %T, want custom resources", a.GetOldObject(), a.GetObject())
	}
	if changed := changedField(old, object); changed != "" {
		return admission.NewForbidden(a, fmt.Errorf("the syncer's view allows changes of the status, of finalizer %s and of annotations %s*, not of %s", finalizer, annotationPrefix, changed))
	}
	return nil
}

// changedField returns a field that an update changes and that does not belong to the agent; empty if there is none. The
// server itself protects the metadata that only it writes.
func changedField(old, object *unstructured.Unstructured) string {
	for _, key := range slices.Sorted(maps.Keys(union(old.Object, object.Object))) {
		switch key {
		case "metadata", "status":
		default:
			if !apiequality.Semantic.DeepEqual(old.Object[key], object.Object[key]) {
				return key
			}
		}
	}
	if key := changedKey(old.GetLabels(), object.GetLabels(), ""); key != "" {
		return fmt.Sprintf("metadata.labels[%s]", key)
	}
	if key := changedKey(old.GetAnnotations(), object.GetAnnotations(), annotationPrefix); key != "" {
		return fmt.Sprintf("metadata.annotations[%s]", key)
	}
	isOwn := func(name string) bool { return name == finalizer }
	if !slices.Equal(slices.DeleteFunc(old.GetFinalizers(), isOwn), slices.DeleteFunc(object.GetFinalizers(), isOwn)) {
		return "metadata.finalizers"
	}
	if !apiequality.Semantic.DeepEqual(old.GetOwnerReferences(), object.GetOwnerReferences()) {
		return "metadata.ownerReferences"
	}
	return ""
}

func union(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	if all == nil {
		return b
	}
	maps.Copy(all, b)
	return all
}

// changedKey returns the first key whose value differs, except keys with the allowed prefix; empty if there is none.
func changedKey(old, object map[string]string, allowedPrefix string) string {
	var changed []string
	for key, value := range old {
		if other, ok := object[key]; !ok || other != value {
			changed = append(changed, key)
		}
	}
	for key := range object {
		if _, ok := old[key]; !ok {
			changed = append(changed, key)
		}
	}
	changed = slices.DeleteFunc(changed, func(key string) bool { return allowedPrefix != "" && strings.HasPrefix(key, allowedPrefix) })
	if len(changed) == 0 {
		return ""
	}
	return slices.Min(changed)
}
