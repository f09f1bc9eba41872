package template

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/shortname"
	"github.com/atoll-dev/atoll/infrastructure/template/versions"
	"github.com/atoll-dev/atoll/internal/apiresourceschema"
)

// Labels of CRDs. A CRD without LabelTemplate belongs to somebody else, and the provider never changes it. The prefix of labels is the
// API group of the provider.
const (
	labelTemplate = "template"
	labelVersion  = "template-version"
)

// closedMessage is the error for tenants who create an instance of a Template that is being removed, or that their export does not offer.
const closedMessage = "this kind is being removed from the catalogue; new instances cannot be created"

// LabelTemplate returns the label key for the name of the Template of a CRD or object.
func LabelTemplate(group string) string { return group + "/" + labelTemplate }

// LabelTemplateVersion returns the label key for the version of the Template.
func LabelTemplateVersion(group string) string { return group + "/" + labelVersion }

// DefinitionName returns the name of the CustomResourceDefinition of a Template.
func DefinitionName(t *infrastructurev1alpha1.Template) string {
	return t.Spec.InstanceCRD.Resource + "." + t.Spec.InstanceCRD.Group
}

// AnnotationStored returns the annotation of a CRD with the only version in which instances are stored.
func AnnotationStored(group string) string { return group + "/stored-version" }

// withServed returns a CRD to which the versions of the exported schema are added: somebody may have deleted or edited the CRD, and
// instances may be stored in any of the versions. It adds nothing else of the schema. It returns nil if there is neither a CRD nor an
// exported schema.
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

// Definition returns the CRD for the kind of a Template. current is the existing CRD, or nil: its storage version does not change, and its
// versions stay served unless their retirement has begun. Definition omits versions that the Template retires, unless objects may be stored
// in them. The new version preserves values of fields that only other versions have. While a Template is being deleted, all versions refuse
// new instances.
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
		return Closed(crd), nil
	}
	return crd, nil
}

// mergeVersions adds the version of a Template to the existing versions.
func mergeVersions(t *infrastructurev1alpha1.Template, version apiextensionsv1.CustomResourceDefinitionVersion, current *apiextensionsv1.CustomResourceDefinition) []apiextensionsv1.CustomResourceDefinitionVersion {
	version.Storage = true
	if current == nil {
		return []apiextensionsv1.CustomResourceDefinitionVersion{version}
	}
	var versions []apiextensionsv1.CustomResourceDefinitionVersion
	for _, previous := range current.Spec.Versions {
		// A CRD that was deleted and created again lacks the annotation, so its versions stay.
		unused := current.Annotations[AnnotationStored(t.Spec.InstanceCRD.Group)] == version.Name
		switch {
		case previous.Name == version.Name:
			version.Storage = previous.Storage
			continue
		case unused && slices.Contains(t.Spec.RetiredVersions, previous.Name):
			continue
		}
		if previous.Storage {
			version.Storage = false
		}
		// A retired version is served until the retirement begins. A version that has stopped being retired is served again.
		previous.Served = previous.Served || !slices.Contains(t.Spec.RetiredVersions, previous.Name)
		previous.Deprecated = true
		previous.DeprecationWarning = ptr.To(fmt.Sprintf("%s/%s %s is deprecated; use %s", t.Spec.InstanceCRD.Group, previous.Name, t.Spec.InstanceCRD.Kind, version.Name))
		previous.Schema = previous.Schema.DeepCopy()
		keepFields(version.Schema.OpenAPIV3Schema, previous.Schema.OpenAPIV3Schema)
		keepFields(previous.Schema.OpenAPIV3Schema, version.Schema.OpenAPIV3Schema)
		versions = append(versions, previous)
	}
	return append(versions, version)
}

// keepFields makes a schema preserve the values of fields that only the other schema has. An object is stored once for all versions, so a
// write in one version would otherwise drop fields of another.
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
	keepFields(versions.ItemsOf(schema), versions.ItemsOf(other))
	keepFields(versions.AdditionalOf(schema), versions.AdditionalOf(other))
}

// RetireVersions sets the storage version of a CRD, and stops serving retired versions. It reports whether that changed anything.
func RetireVersions(definition *apiextensionsv1.CustomResourceDefinition, version string, retired []string) (changed bool) {
	for i := range definition.Spec.Versions {
		v := &definition.Spec.Versions[i]
		storage, served := v.Name == version, v.Served && !slices.Contains(retired, v.Name)
		changed = changed || v.Storage != storage || v.Served != served
		v.Storage, v.Served = storage, served
	}
	return changed
}

// Closed returns a CRD that refuses new instances in all versions.
func Closed(definition *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
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
		Required:    []string{"spec"}, // otherwise required fields and defaults of spec do not apply if spec is absent
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

// statusSchema returns the common status schema of all instances. Backends add fields for their outputs.
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

// parseSchema parses the schema of spec. It returns an error for unknown keywords, which the API server would drop silently.
func parseSchema(raw []byte) (*apiextensionsv1.JSONSchemaProps, error) {
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.DisallowUnknownFields()
	schema := &apiextensionsv1.JSONSchemaProps{}
	if err := decoder.Decode(schema); err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	return schema, nil
}

// schemaPrefix precedes the beginning of the hash in names of schemas.
const schemaPrefix = "tmpl"

// CatalogueSchemaPrefix is the name prefix of the schemas of Templates themselves, whose plural is Resource.
const (
	CatalogueSchemaPrefix = "catalogue"
	Resource              = "templates"
)

// IsPruned reports whether a schema belongs to the provider, which deletes it when it is unused.
func IsPruned(schema *apisv1alpha1.APIResourceSchema, group string) bool {
	_, ofTemplate := schema.Labels[LabelTemplate(group)]
	return ofTemplate || schema.Spec.Group == group && schema.Spec.Names.Plural == Resource && strings.HasPrefix(schema.Name, CatalogueSchemaPrefix)
}

// Schema returns the APIResourceSchema of a CRD. Its name is derived from its content.
func Schema(definition *apiextensionsv1.CustomResourceDefinition) (*apisv1alpha1.APIResourceSchema, error) {
	return apiresourceschema.ByContent(definition, schemaPrefix)
}

// AnnotationUnusedSince returns the annotation of a previous schema, with the time since which no binding uses it.
func AnnotationUnusedSince(group string) string { return group + "/unused-since" }

// ListedSchemas returns the schemas that any export lists, including exports of the platform operator.
func ListedSchemas(ctx context.Context, c client.Reader) (map[string]bool, error) {
	var exports apisv1alpha2.APIExportList
	if err := c.List(ctx, &exports); err != nil {
		return nil, fmt.Errorf("listing exports: %w", err)
	}
	names := map[string]bool{}
	for i := range exports.Items {
		for _, entry := range exports.Items[i].Spec.Resources {
			names[entry.Schema] = true
		}
	}
	return names, nil
}
