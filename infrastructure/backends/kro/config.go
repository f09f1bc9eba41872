package kro

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
)

// config is backendConfig. Expressions are CEL between "${" and "}". They can use schema, which is the instance with metadata and spec, and
// the resources by id.
type config struct {
	Resources []resource `json:"resources"`
	// StatusMapping contains fields of the status of instances. Status is another name for it.
	StatusMapping map[string]any `json:"statusMapping,omitempty"`
	Status        map[string]any `json:"status,omitempty"`
	// Connection contains values that the tenant gets in a Secret, such as credentials. Each value is a text.
	Connection map[string]string `json:"connection,omitempty"`
}

// resource is an object of an instance, or one that the instance reads.
type resource struct {
	// ID is the name of the object in expressions.
	ID string `json:"id"`
	// Template is the object. ExternalRef refers to an object of another owner in the namespace of the tenant. Exactly one is set.
	Template    map[string]any `json:"template,omitempty"`
	ExternalRef *externalRef   `json:"externalRef,omitempty"`
	// ReadyWhen are conditions that hold when the object can be used. IncludeWhen are conditions that hold if the object should exist.
	ReadyWhen   []string `json:"readyWhen,omitempty"`
	IncludeWhen []string `json:"includeWhen,omitempty"`
	// ForEach creates an object for each combination of elements of lists. Each map has one variable with the expression of its list.
	ForEach []map[string]string `json:"forEach,omitempty"`
}

// externalRef refers to one object by name, or selects objects by their labels.
type externalRef struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Metadata   externalMetadata `json:"metadata"`
}

type externalMetadata struct {
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Selector is a label selector, or an expression that results in one.
	Selector any `json:"selector,omitempty"`
}

// kind returns the kind of the object.
func (r *resource) kind() schema.GroupVersionKind {
	apiVersion, kind := "", ""
	if r.ExternalRef != nil {
		apiVersion, kind = r.ExternalRef.APIVersion, r.ExternalRef.Kind
	} else {
		apiVersion, _ = r.Template["apiVersion"].(string)
		kind, _ = r.Template["kind"].(string)
	}
	return schema.FromAPIVersionAndKind(apiVersion, kind)
}

// object returns the input of the compiler: the template, or a template that identifies the referenced objects.
func (r *resource) object() map[string]any {
	if r.ExternalRef == nil {
		return r.Template
	}
	metadata := map[string]any{}
	if r.ExternalRef.Metadata.Name != "" {
		metadata["name"] = r.ExternalRef.Metadata.Name
	} else {
		metadata["selector"] = r.ExternalRef.Metadata.Selector
	}
	return map[string]any{"apiVersion": r.ExternalRef.APIVersion, "kind": r.ExternalRef.Kind, "metadata": metadata}
}

// parseConfig parses and validates backendConfig. Errors name the field. It removes namespaces, because all objects are in the namespace of
// the tenant.
func parseConfig(t *infrastructurev1alpha1.Template) (*config, error) {
	parsed := &config{}
	if err := backend.DecodeConfig(t, "resources", parsed); err != nil {
		return nil, err
	}
	if errs := parsed.validate(t.Spec.InstanceCRD.Group); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	if parsed.Status != nil {
		parsed.StatusMapping = parsed.Status
	}
	for i := range parsed.Resources {
		if metadata, ok := parsed.Resources[i].Template["metadata"].(map[string]any); ok {
			delete(metadata, "namespace")
		}
	}
	return parsed, nil
}
