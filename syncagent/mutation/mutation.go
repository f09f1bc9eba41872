// Package mutation applies the mutation steps of a PublishedResource to objects.
package mutation

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
)

// Apply executes the steps in order and changes the object. The other object is its counterpart on the other side, and is not changed.
// Steps may change only the labels and annotations of the metadata. Callers must not use the object after an error: Apply may have
// executed some of the steps.
func Apply(steps []syncagentv1alpha1.ResourceMutation, object, other *unstructured.Unstructured) error {
	counterpart := map[string]any{}
	if other != nil && other.Object != nil {
		counterpart = other.Object
	}
	for i, s := range steps {
		if err := apply(s, object.Object, counterpart); err != nil {
			return fmt.Errorf("step %d%s: %w", i, describe(s), err)
		}
	}
	return nil
}

// describe returns the kind and path of a step. If several kinds are set, the first one applies, in the order of the contract.
func describe(s syncagentv1alpha1.ResourceMutation) string {
	switch {
	case s.Delete != nil:
		return fmt.Sprintf(" (delete %s)", s.Delete.Path)
	case s.Regex != nil:
		return fmt.Sprintf(" (regex %s)", s.Regex.Path)
	case s.Template != nil:
		return fmt.Sprintf(" (template %s)", s.Template.Path)
	case s.CEL != nil:
		return fmt.Sprintf(" (cel %s)", s.CEL.Path)
	}
	return ""
}

func apply(s syncagentv1alpha1.ResourceMutation, object, other map[string]any) error {
	switch {
	case s.Delete != nil:
		if err := checkPath(s.Delete.Path); err != nil {
			return err
		}
		return expression.Delete(object, s.Delete.Path)
	case s.Regex != nil:
		return replace(object, s.Regex.Path, func(any) (any, error) {
			value, err := expression.Get(object, s.Regex.Path)
			if err != nil {
				return nil, err
			}
			return expression.Replace(s.Regex.Pattern, s.Regex.Replacement, value.String())
		})
	case s.Template != nil:
		return replace(object, s.Template.Path, func(any) (any, error) {
			value, err := expression.Get(object, s.Template.Path)
			if err != nil {
				return nil, err
			}
			text, err := expression.Render(s.Template.Template, map[string]any{
				"Value": value, "LocalObject": object, "RemoteObject": other,
			})
			// A field that does not exist yet renders as an empty text.
			return strings.ReplaceAll(text, expression.NoValue, ""), err
		})
	case s.CEL != nil:
		return replace(object, s.CEL.Path, func(value any) (any, error) {
			return expression.EvaluateCEL(s.CEL.Expression, value, object, other)
		})
	}
	return errors.New("one of delete, regex, template and cel must be set")
}

// replace sets the value at a path to a function of it.
func replace(object map[string]any, path string, compute func(any) (any, error)) error {
	if err := checkPath(path); err != nil {
		return err
	}
	value, _, err := expression.Lookup(object, path)
	if err != nil {
		return err
	}
	if value, err = compute(value); err != nil {
		return err
	}
	if err := expression.Set(object, path, value); err != nil {
		return err
	}
	return checkMetadata(object)
}

// checkPath refuses paths of the fields that identify an object, and of metadata that servers manage.
func checkPath(path string) error {
	keys, err := expression.FirstKeys(path, 2)
	if err != nil {
		return err
	}
	switch {
	case keys[0] == "apiVersion" || keys[0] == "kind":
		return fmt.Errorf("%s cannot be mutated", keys[0])
	case keys[0] == "metadata" && (len(keys) == 1 || keys[1] != "labels" && keys[1] != "annotations"):
		return errors.New("of the metadata, only labels and annotations can be mutated")
	}
	return nil
}

// checkMetadata returns an error if labels or annotations are not maps of strings any more.
func checkMetadata(object map[string]any) error {
	for _, field := range []string{"labels", "annotations"} {
		if _, _, err := unstructured.NestedStringMap(object, "metadata", field); err != nil {
			return fmt.Errorf("metadata.%s must have values of type string", field)
		}
	}
	return nil
}
