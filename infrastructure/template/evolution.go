package template

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template/versions"
)

// revalidateInterval is how often the controller checks whether instances still block a change.
const revalidateInterval = 5 * time.Minute

// maxReasons bounds the reasons in a report.
const maxReasons = 5

// invalid returns the problem for an error that the platform operator must correct. It is retried after the given time; 0 means only after a
// change of the Template.
func invalid(message string, after time.Duration) error {
	return &problem{condition: infrastructurev1alpha1.ConditionSchemaCompatible, reason: infrastructurev1alpha1.ReasonInvalidSpec, message: message, wait: after == 0, after: after}
}

// validateChange refuses a schema that would invalidate instances. An exported version may only be changed so that allowed values stay
// allowed. If the schemas do not prove this, and for a new version, it reads all instances.
func (r *Reconciler) validateChange(ctx context.Context, s *scope) error {
	if s.served == nil {
		return nil
	}
	wanted, err := Definition(s.template, s.base)
	if err != nil {
		return err
	}
	after := specOf(wanted.Spec.Versions[len(wanted.Spec.Versions)-1].Schema.OpenAPIV3Schema)
	changes, isNew, err := changesSince(s.served, s.template.Spec.InstanceCRD.Version, after)
	if err != nil || len(changes) == 0 {
		return err
	}
	var breaking []string
	for _, change := range changes {
		if change.Breaking {
			breaking = append(breaking, change.Text)
		}
	}
	if len(breaking) > 0 && !isNew {
		return invalid("existing instances could become invalid: "+strings.Join(breaking, "; ")+"; give the kind a new spec.instanceCRD.version", 0)
	}
	found, err := r.validateInstances(ctx, s.template, after)
	if err != nil {
		return fmt.Errorf("validating instances: %w", err)
	}
	if found.invalid > 0 {
		return invalid(found.String(), revalidateInterval)
	}
	return nil
}

// changesSince compares a schema of spec with the exported schema of its version. It compares a new version with all others.
func changesSince(served *apisv1alpha1.APIResourceSchema, version string, after *apiextensionsv1.JSONSchemaProps) (changes []versions.Change, isNew bool, err error) {
	isNew = true
	for i := range served.Spec.Versions {
		schema := &apiextensionsv1.JSONSchemaProps{}
		if err := json.Unmarshal(served.Spec.Versions[i].Schema.Raw, schema); err != nil {
			return nil, false, fmt.Errorf("reading the schema of the export: %w", err)
		}
		found := versions.Compare(specOf(schema), after)
		if served.Spec.Versions[i].Name == version {
			return found, false, nil
		}
		changes = append(changes, found...)
	}
	return changes, isNew, nil
}

// specOf returns the schema of spec in the schema of an object.
func specOf(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	spec := schema.Properties["spec"]
	return &spec
}

// report describes the instances that a schema would invalidate. It contains no values of tenants.
type report struct {
	checked, invalid int
	reasons          map[string]int // the number of instances for each reason
}

func (r *report) String() string {
	reasons := slices.Sorted(maps.Keys(r.reasons))
	more := ""
	if left := len(reasons) - maxReasons; left > 0 {
		reasons, more = reasons[:maxReasons], fmt.Sprintf("; and %d others", left)
	}
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%s (%d)", reason, r.reasons[reason])
	}
	return fmt.Sprintf("%d of %d existing instances would become invalid: %s%s; allow what they have", r.invalid, r.checked, strings.Join(reasons, "; "), more)
}

// validateInstances validates all instances of a Template against a schema of spec.
func (r *Reconciler) validateInstances(ctx context.Context, t *infrastructurev1alpha1.Template, schema *apiextensionsv1.JSONSchemaProps) (*report, error) {
	validator, err := versions.NewValidator(schema)
	if err != nil {
		return nil, err
	}
	found := &report{reasons: map[string]int{}}
	err = r.Instances.Each(ctx, t, func(object *unstructured.Unstructured) error {
		found.checked++
		problems := validator.Validate(ctx, object)
		if len(problems) > 0 {
			found.invalid++
		}
		for _, problem := range problems {
			found.reasons[problem]++
		}
		return nil
	})
	return found, err
}
