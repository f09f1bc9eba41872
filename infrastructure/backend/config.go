package backend

import (
	"errors"
	"fmt"

	kjson "sigs.k8s.io/json"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// DecodeConfig decodes backendConfig of a Template. An unknown field is an error, and so is a Template without backendConfig, which the
// error describes by a required field. Integers are int64, as in unstructured objects.
func DecodeConfig(t *infrastructurev1alpha1.Template, required string, into any) error {
	if t.Spec.BackendConfig == nil {
		return fmt.Errorf("spec.backendConfig.%s: is required", required)
	}
	mistakes, err := kjson.UnmarshalStrict(t.Spec.BackendConfig.Raw, into)
	if err = errors.Join(append(mistakes, err)...); err != nil {
		return fmt.Errorf("spec.backendConfig: %w", err)
	}
	return nil
}
