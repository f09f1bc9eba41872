package manifest

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/internal/expression"
)

// state returns the state of an instance whose objects were applied. If an expression needs a field that an object does not have yet, the
// instance waits for it. Any other failure of an expression is an error in the Template.
func (c *config) state(self map[string]any, wanted []manifest, applied []*unstructured.Unstructured) instance.State {
	other := map[string]any{}
	for i, m := range wanted {
		other[m.ID] = applied[i].Object
	}
	ready, unclear := 0, ""
	for i := range wanted {
		err := wanted[i].checkReady(self, other)
		if err == nil {
			ready++
		} else if unclear == "" && !errors.Is(err, errNotReady) {
			unclear = err.Error()
		}
	}
	if ready < len(wanted) {
		state := runtimecluster.Progress(ready, len(wanted), pendingInterval)
		state.Mistake = unclear
		return state
	}
	outputs, incomplete, invalid := c.outputs(self, other)
	connection, alsoIncomplete, alsoInvalid := c.connection(self, other)
	switch incomplete, invalid = append(incomplete, alsoIncomplete...), append(invalid, alsoInvalid...); {
	case len(invalid) > 0:
		return runtimecluster.InvalidTemplate(errors.Join(invalid...).Error())
	case len(incomplete) > 0:
		return runtimecluster.Incomplete(errors.Join(incomplete...).Error(), pendingInterval)
	}
	return instance.State{Phase: infrastructurev1alpha1.PhaseReady, Outputs: outputs, Connection: connection, RecheckAfter: readyInterval}
}

// errNotReady means that a condition of an object can be evaluated and is false.
var errNotReady = errors.New("a condition does not hold")

// checkReady returns nil if the object can be used. A condition that cannot be evaluated does not hold, whatever the error: fields of objects
// may have any type while the objects become ready.
func (m *manifest) checkReady(self, other map[string]any) error {
	for i, condition := range m.ReadyWhen {
		result, err := expression.EvaluateCEL(condition, nil, self, other)
		if err != nil {
			return fmt.Errorf("readyWhen[%d] of manifest %s: %w", i, m.ID, err)
		}
		if result != true {
			return errNotReady
		}
	}
	return nil
}

// outputs returns the outputs for tenants, the errors of expressions that may be evaluated later, and those of expressions that never can be.
func (c *config) outputs(self, other map[string]any) (outputs map[string]any, incomplete, invalid []error) {
	outputs = make(map[string]any, len(c.Outputs))
	for _, name := range slices.Sorted(maps.Keys(c.Outputs)) {
		value, err := expression.Expand(c.Outputs[name], self, other)
		outputs[name] = value
		if err == nil {
			continue
		}
		failed := fmt.Errorf("spec.backendConfig.outputs[%s]: %w", name, err)
		if isMissing(err) {
			incomplete = append(incomplete, failed)
		} else {
			invalid = append(invalid, failed)
		}
	}
	return outputs, incomplete, invalid
}

// connection returns the values of the connection, and errors like outputs. The errors contain the expressions of the Template but not their
// results, because they must not reveal values.
func (c *config) connection(self, other map[string]any) (values map[string]string, incomplete, invalid []error) {
	values = make(map[string]string, len(c.Connection))
	for _, key := range slices.Sorted(maps.Keys(c.Connection)) {
		value, err := expression.ExpandText(c.Connection[key], self, other)
		values[key] = value
		switch {
		case err == nil:
		case isMissing(err):
			incomplete = append(incomplete, fmt.Errorf("spec.backendConfig.connection[%s]: %s needs a field or an element that is not there", key, c.Connection[key]))
		default:
			invalid = append(invalid, fmt.Errorf("spec.backendConfig.connection[%s]: %s cannot be evaluated", key, c.Connection[key]))
		}
	}
	return values, incomplete, invalid
}

func isMissing(err error) bool {
	_, missing := errors.AsType[*expression.MissingError](err)
	return missing
}
