package kro

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/kubernetes-sigs/kro/pkg/graph"
	"github.com/kubernetes-sigs/kro/pkg/graph/parser"
	kroschema "github.com/kubernetes-sigs/kro/pkg/graph/schema"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// outputsField and connectionField are fields of the compiled status, which only the backend sees.
const outputsField, connectionField = "outputs", "connection"

// source is a Template in the form that the compiler reads. It implements graph.Source.
type source struct {
	resources []graph.ResourceSpec
	gvr       schema.GroupVersionResource
	instance  *spec.Schema
	status    []byte
	// constants are the outputs without expressions, which the compiler does not accept.
	constants map[string]any
}

var _ graph.Source = &source{}

func (s *source) Resources() []graph.ResourceSpec          { return s.resources }
func (s *source) InstanceGVR() schema.GroupVersionResource { return s.gvr }

// InstanceNamespaced returns true, although instances of tenants are cluster-scoped: the backend evaluates a copy in the namespace of the tenant.
func (s *source) InstanceNamespaced() bool      { return true }
func (s *source) SchemaVarSchema() *spec.Schema { return s.instance }
func (s *source) StatusRaw() []byte             { return s.status }

func newSource(t *infrastructurev1alpha1.Template, c *config) (*source, error) {
	names := t.Spec.InstanceCRD
	s := &source{gvr: schema.GroupVersionResource{Group: names.Group, Version: names.Version, Resource: names.Resource}}
	var err error
	if s.instance, err = instanceSchema(t); err != nil {
		return nil, fmt.Errorf("spec.schema: %w", err)
	}
	for i := range c.Resources {
		r := &c.Resources[i]
		s.resources = append(s.resources, graph.ResourceSpec{
			ID: r.ID, Object: r.object(), ExternalRef: r.ExternalRef != nil, Collection: r.ExternalRef != nil && r.ExternalRef.Metadata.Selector != nil,
			ReadyWhen: r.ReadyWhen, IncludeWhen: r.IncludeWhen, ForEach: r.ForEach, Order: i,
		})
	}
	outputs, constants, err := splitConstants(c.StatusMapping, root().Child("statusMapping"))
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(c.Connection)) {
		if expressions, err := parser.ExtractExpressions(c.Connection[key]); err != nil || len(expressions) == 0 {
			return nil, field.Invalid(root().Child("connection").Key(key), c.Connection[key], "must have an expression")
		}
	}
	s.constants = constants
	status := map[string]any{}
	if len(outputs) > 0 {
		status[outputsField] = outputs
	}
	if len(c.Connection) > 0 {
		status[connectionField] = c.Connection
	}
	s.status, err = json.Marshal(status)
	return s, err
}

// instanceSchema returns the schema of the variable schema. It omits labels and annotations, which the tenant controls.
func instanceSchema(t *infrastructurev1alpha1.Template) (*spec.Schema, error) {
	var ofSpec apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(t.Spec.Schema.Raw, &ofSpec); err != nil {
		return nil, err
	}
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	return kroschema.ConvertJSONSchemaPropsToSpecSchema(&apiextensionsv1.JSONSchemaProps{
		Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"metadata": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"name": text, "namespace": text, "uid": text}},
			"spec":     ofSpec,
		},
	})
}

// splitConstants separates outputs with expressions from those without.
func splitConstants(outputs map[string]any, at *field.Path) (expressions, constants map[string]any, err error) {
	expressions, constants = map[string]any{}, map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		value := outputs[name]
		if nested, ok := value.(map[string]any); ok && len(nested) > 0 {
			e, c, err := splitConstants(nested, at.Key(name))
			if err != nil {
				return nil, nil, err
			}
			if len(e) > 0 {
				expressions[name] = e
			}
			if len(c) > 0 {
				constants[name] = c
			}
			continue
		}
		found, plain, err := parser.ParseSchemalessResource(map[string]any{name: value})
		switch {
		case err != nil:
			return nil, nil, field.Invalid(at.Key(name), value, err.Error())
		case len(found) == 0:
			constants[name] = value
		case len(plain) > 0:
			return nil, nil, field.Invalid(at.Key(name), value, "all elements of a list must have expressions, or none")
		default:
			expressions[name] = value
		}
	}
	return expressions, constants, nil
}

// merge adds constants to outputs.
func merge(outputs, constants map[string]any) map[string]any {
	merged := maps.Clone(constants)
	if merged == nil {
		merged = map[string]any{}
	}
	for name, value := range outputs {
		nested, isMap := value.(map[string]any)
		other, isOther := merged[name].(map[string]any)
		if isMap && isOther {
			value = merge(nested, other)
		}
		merged[name] = value
	}
	return merged
}
