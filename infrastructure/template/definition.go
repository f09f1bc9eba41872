package template

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/shortname"
)

// Labels of definitions. A definition without LabelTemplate is somebody else's and never changed. The prefix of labels is the API
// group of the provider.
const (
	labelTemplate = "template"
	labelVersion  = "template-version"
)

// closedMessage is what tenants read who create an instance of a Template that is being removed, or that is not offered to them any more.
const closedMessage = "this kind is being removed from the catalogue; new instances cannot be created"

// LabelTemplate returns the key of the label with the name of the Template of a definition or object.
func LabelTemplate(group string) string { return group + "/" + labelTemplate }

// LabelTemplateVersion returns the key of the label with the version of the Template.
func LabelTemplateVersion(group string) string { return group + "/" + labelVersion }

// DefinitionName is the name of the CustomResourceDefinition of a Template.
func DefinitionName(t *infrastructurev1alpha1.Template) string {
	return t.Spec.InstanceCRD.Resource + "." + t.Spec.InstanceCRD.Group
}

// AnnotationStored returns the annotation of a definition with the only version in which instances are stored.
func AnnotationStored(group string) string { return group + "/stored-version" }

// withServed returns a definition with all versions that the export has: somebody may have deleted or edited it, and instances may be stored in
// any of them. It has nothing else of the schema. It is nil if there is neither a definition nor an exported schema.
func withServed(definition *apiextensionsv1.CustomResourceDefinition, served *apisv1alpha1.APIResourceSchema) (*apiextensionsv1.CustomResourceDefinition, error) {
	if served == nil {
		return definition, nil
	}
	base := &apiextensionsv1.CustomResourceDefinition{}
	if definition != nil {
		base = definition.DeepCopy()
	}
	for i := range served.Spec.Versions {
		version := &served.Spec.Versions[i]
		if slices.ContainsFunc(base.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version.Name }) {
			continue
		}
		schema := &apiextensionsv1.JSONSchemaProps{}
		if err := json.Unmarshal(version.Schema.Raw, schema); err != nil {
			return nil, fmt.Errorf("reading the schema of the export: %w", err)
		}
		base.Spec.Versions = append(base.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version.Name, Served: version.Served, Storage: version.Storage && definition == nil,
			Deprecated: version.Deprecated, DeprecationWarning: version.DeprecationWarning, SelectableFields: version.SelectableFields,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}, Subresources: version.Subresources.DeepCopy(),
			AdditionalPrinterColumns: version.AdditionalPrinterColumns,
		})
	}
	return base, nil
}

// Definition returns the definition of the kind of a Template. current is the definition that exists, or nil: its versions stay
// served unless their retirement has begun, its storage version stays what it is. Versions that the Template retires are left out unless
// objects may be stored in them. The new version keeps the values of fields that only others have. While a Template is being deleted, all versions refuse new
// instances.
func Definition(t *infrastructurev1alpha1.Template, current *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	names := t.Spec.InstanceCRD
	version, err := newVersion(t)
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{
			Name: DefinitionName(t),
			Labels: map[string]string{
				LabelTemplate(names.Group):        t.Name,
				LabelTemplateVersion(names.Group): shortname.LabelValue(t.Spec.Version),
			},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: names.Group,
			Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: names.Kind, ListKind: listKind(&names), Plural: names.Resource, Singular: singularName(&names),
			},
		},
	}
	crd.Spec.Versions = mergeVersions(t, version, current)
	if !t.DeletionTimestamp.IsZero() {
		return closed(crd), nil
	}
	return crd, nil
}

// mergeVersions adds the version of a Template to those that exist.
func mergeVersions(t *infrastructurev1alpha1.Template, version apiextensionsv1.CustomResourceDefinitionVersion, current *apiextensionsv1.CustomResourceDefinition) []apiextensionsv1.CustomResourceDefinitionVersion {
	version.Storage = true
	if current == nil {
		return []apiextensionsv1.CustomResourceDefinitionVersion{version}
	}
	var versions []apiextensionsv1.CustomResourceDefinitionVersion
	for _, former := range current.Spec.Versions {
		// Nothing says that of a definition that was deleted and made anew.
		unused := current.Annotations[AnnotationStored(t.Spec.InstanceCRD.Group)] == version.Name
		switch {
		case former.Name == version.Name:
			version.Storage = former.Storage
			continue
		case unused && slices.Contains(t.Spec.RetiredVersions, former.Name):
			continue
		}
		if former.Storage {
			version.Storage = false
		}
		// A version that is retired is served until the retirement begins. One that is not retired any more is served again.
		former.Served = former.Served || !slices.Contains(t.Spec.RetiredVersions, former.Name)
		former.Deprecated = true
		former.DeprecationWarning = ptr.To(fmt.Sprintf("%s/%s %s is deprecated; use %s", t.Spec.InstanceCRD.Group, former.Name, t.Spec.InstanceCRD.Kind, version.Name))
		former.Schema = former.Schema.DeepCopy()
		keepFields(version.Schema.OpenAPIV3Schema, former.Schema.OpenAPIV3Schema)
		keepFields(former.Schema.OpenAPIV3Schema, version.Schema.OpenAPIV3Schema)
		versions = append(versions, former)
	}
	return append(versions, version)
}

// keepFields has a schema keep the values of fields that only another one has: an object is stored once for all versions, and a write in
// one of them would lose what belongs to another.
func keepFields(schema, other *apiextensionsv1.JSONSchemaProps) {
	if schema == nil || other == nil {
		return
	}
	for name, otherProperty := range other.Properties {
		property, ok := schema.Properties[name]
		switch {
		case ok:
			keepFields(&property, &otherProperty)
			schema.Properties[name] = property
		case schema.Type == "object" && schema.AdditionalProperties == nil:
			schema.XPreserveUnknownFields = ptr.To(true)
		}
	}
	keepFields(itemsOf(schema), itemsOf(other))
	keepFields(additionalOf(schema), additionalOf(other))
}

// closed returns a definition that refuses new instances in all versions.
func closed(definition *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	refusing := definition.DeepCopy()
	for _, version := range refusing.Spec.Versions {
		version.Schema.OpenAPIV3Schema.XValidations = apiextensionsv1.ValidationRules{{Rule: "oldSelf.hasValue()", Message: closedMessage, OptionalOldSelf: ptr.To(true)}}
	}
	return refusing
}

func newVersion(t *infrastructurev1alpha1.Template) (apiextensionsv1.CustomResourceDefinitionVersion, error) {
	spec, err := parseSchema(t.Spec.Schema.Raw)
	if err != nil {
		return apiextensionsv1.CustomResourceDefinitionVersion{}, err
	}
	schema := apiextensionsv1.JSONSchemaProps{
		Type:        "object",
		Description: t.Spec.Description,
		Required:    []string{"spec"}, // else neither required fields nor defaults of spec apply where it is absent
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"apiVersion": {Type: "string"},
			"kind":       {Type: "string"},
			"metadata":   {Type: "object"},
			"spec":       *spec,
			"status":     statusSchema(),
		},
	}
	return apiextensionsv1.CustomResourceDefinitionVersion{
		Name:         t.Spec.InstanceCRD.Version,
		Served:       true,
		Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema},
		AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{
			{Name: "Phase", Type: "string", JSONPath: ".status.phase"},
			{Name: "Message", Type: "string", JSONPath: ".status.message"},
			{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
		},
	}, nil
}

// statusSchema is the common part of the status of all instances. Backends add fields for their outputs.
func statusSchema() apiextensionsv1.JSONSchemaProps {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	return apiextensionsv1.JSONSchemaProps{
		Type:                   "object",
		XPreserveUnknownFields: ptr.To(true),
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"phase":              text,
			"message":            text,
			"observedGeneration": {Type: "integer", Format: "int64"},
			"connectionSecret": {
				Type: "object", Description: "The Secret with the credentials of the instance.",
				Properties: map[string]apiextensionsv1.JSONSchemaProps{"namespace": text, "name": text},
			},
			"conditions": {
				Type:         "array",
				XListType:    ptr.To("map"),
				XListMapKeys: []string{"type"},
				Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{
					Type:     "object",
					Required: []string{"type", "status"},
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"type": text, "status": text, "reason": text, "message": text,
						"lastTransitionTime": {Type: "string", Format: "date-time"},
						"observedGeneration": {Type: "integer", Format: "int64"},
					},
				}},
			},
		},
	}
}

// parseSchema reads the schema of spec. Unknown keywords are an error: they would be dropped silently.
func parseSchema(raw []byte) (*apiextensionsv1.JSONSchemaProps, error) {
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.DisallowUnknownFields()
	schema := &apiextensionsv1.JSONSchemaProps{}
	if err := decoder.Decode(schema); err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	return schema, nil
}
