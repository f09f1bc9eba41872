package state

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/syncagent/publication"
)

// api-syncagent also stores a Secret for each primary object. It has the labels of the object's copy, but no label for the agent. The
// values are the complete objects as api-syncagent last synced them: the primary object, and the originals of its related objects. This
// package does not use the keys and names, because each value identifies its object.

// annotationFormer contains the name of the Secret of api-syncagent from which a state was created. That Secret exists as long as the
// primary object, so that users can return to api-syncagent.
const annotationPrevious = publication.Prefix + "former-state"

// PreviousName returns the name of the Secret of api-syncagent from which a state was created, or an empty string.
func PreviousName(state metav1.Object) string { return state.GetAnnotations()[annotationPrevious] }

// Previous contains the objects that api-syncagent synced last.
type Previous struct {
	// Primary is the primary object.
	Primary *unstructured.Unstructured
	objects []unstructured.Unstructured
	name    string
}

// Find returns an object of a kind in any version, or nil.
func (p *Previous) Find(kind schema.GroupKind, key types.NamespacedName) *unstructured.Unstructured {
	if p == nil {
		return nil
	}
	if at := slices.IndexFunc(p.objects, is(kind, key)); at >= 0 {
		return &p.objects[at]
	}
	return nil
}

func is(kind schema.GroupKind, key types.NamespacedName) func(unstructured.Unstructured) bool {
	return func(object unstructured.Unstructured) bool {
		return object.GroupVersionKind().GroupKind() == kind && client.ObjectKeyFromObject(&object) == key
	}
}

// Claimed reports whether the agent has written the state.
func (s *State) Claimed() bool {
	return s.read != nil && s.read.Labels[publication.LabelStateAgent] != ""
}

// LoadFormer reads the record of api-syncagent about a primary object, which has one of the kinds in that record. source are the labels
// of the object's copy. It returns nil if no record exists: a Secret that does not contain the primary object belongs to another one.
func (s Store) LoadPrevious(ctx context.Context, source map[string]string, key types.NamespacedName, kinds ...schema.GroupKind) (*Previous, error) {
	selector := apilabels.SelectorFromSet(source)
	for _, text := range []string{publication.LabelObjectState + "=true", "!" + publication.LabelStateAgent} {
		requirements, err := apilabels.ParseToRequirements(text)
		if err != nil {
			return nil, err
		}
		selector = selector.Add(requirements...)
	}
	list := &corev1.SecretList{}
	if err := s.Client.List(ctx, list, client.InNamespace(s.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing states of api-syncagent: %w", err)
	}
	for _, kind := range kinds {
		for i := range list.Items {
			previous := &Previous{objects: objectsOf(&list.Items[i]), name: list.Items[i].Name}
			if previous.Primary = previous.Find(kind, key); previous.Primary != nil {
				return previous, nil
			}
		}
	}
	return nil, nil
}

// objectsOf returns the values of a Secret that are complete objects; contents of this agent never are.
func objectsOf(secret *corev1.Secret) (objects []unstructured.Unstructured) {
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		if object, ok := wholeObject(secret.Data[key]); ok {
			objects = append(objects, object)
		}
	}
	return objects
}

func wholeObject(encoded []byte) (object unstructured.Unstructured, ok bool) {
	err := object.UnmarshalJSON(encoded)
	return object, err == nil && object.GetAPIVersion() != "" && object.GetName() != ""
}

// SetFormer records the Secret from which the state was created. Delete deletes it with the state.
func (s *State) SetPrevious(previous *Previous) {
	if previous.name != s.name.Name {
		s.previous = previous.name
		return
	}
	for key, encoded := range s.contents {
		if _, ok := wholeObject(encoded); ok {
			delete(s.contents, key)
		}
	}
}
