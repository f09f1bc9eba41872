package registry_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// crdStrategies is the behaviour of Kubernetes for objects of a kind, with its generated definition.
type crdStrategies struct {
	structural     *structuralschema.Structural
	update, status rest.RESTUpdateStrategy
	create         rest.RESTCreateStrategy
}

func loadDefinition(t *testing.T, resource schema.GroupVersionResource) *crdStrategies {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "kcp", "crd", resource.Group+"_"+resource.Resource+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		t.Fatal(err)
	}
	var props apiextensions.CustomResourceValidation
	version := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == resource.Version })
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(crd.Spec.Versions[version].Schema, &props, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(props.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(props.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	statusProps := props.OpenAPIV3Schema.Properties["status"]
	statusValidator, _, err := validation.NewSchemaValidator(&statusProps)
	if err != nil {
		t.Fatal(err)
	}
	main := customresource.NewStrategy(scheme.Scheme, false, resource.GroupVersion().WithKind(crd.Spec.Names.Kind), validator, statusValidator,
		structural, &apiextensions.CustomResourceSubresourceStatus{}, nil, nil)
	return &crdStrategies{structural: structural, update: main, create: main, status: customresource.NewStatusStrategy(main)}
}

func (c *crdStrategies) decode(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	defaulting.Default(obj.Object, c.structural)
	return obj
}

func (c *crdStrategies) validateCreate(t *testing.T, obj *unstructured.Unstructured) field.ErrorList {
	obj = c.decode(obj)
	c.create.PrepareForCreate(t.Context(), obj)
	return c.create.Validate(t.Context(), obj)
}

func (c *crdStrategies) validateUpdate(t *testing.T, strategy rest.RESTUpdateStrategy, obj, old *unstructured.Unstructured) field.ErrorList {
	obj, old = c.decode(obj), c.decode(old)
	// Metadata that storage sets, so that only the fields of the test case can be refused.
	for _, o := range []*unstructured.Unstructured{obj, old} {
		o.SetResourceVersion("1")
		o.SetUID("u")
	}
	strategy.PrepareForUpdate(t.Context(), obj, old)
	return strategy.ValidateUpdate(t.Context(), obj, old)
}

// Every case is evaluated by the server and by Kubernetes' own code with the generated definition, which must agree.
func TestValidationMatchesCRD(t *testing.T) {
	for _, group := range []struct {
		resource schema.GroupVersionResource
		name     string // of the objects, unless the case has one
		cases    []testCase
	}{
		{logicalClusters, "cluster", logicalClusterCases},
		{shards, "x", shardCases},
		{workspaces, "x", workspaceCases},
		{workspaceTypes, "x", workspaceTypeCases},
		{apiExports, "x", apiExportCases},
		{apiExportsV1, "x", apiExportV1alpha1Cases},
		{apiBindings, "x", apiBindingCases},
		{apiBindingsV1, "x", apiBindingV1alpha1Cases},
		{apiSchemas, "v1.widgets.example.com", apiResourceSchemaCases},
		{apiSlices, "x", apiExportEndpointSliceCases},
		{apiConversions, "x", apiConversionCases},
	} {
		defined := loadDefinition(t, group.resource)
		for _, tc := range group.cases {
			t.Run(group.resource.Resource+"."+group.resource.Version+"/"+tc.description, func(t *testing.T) {
				name := tc.name
				if name == "" {
					name = group.name
				}
				client := newClient(t, newClusterName(group.resource.Resource)).Resource(group.resource)
				parseObject := func(text string) *unstructured.Unstructured {
					var content fields
					if err := yaml.Unmarshal([]byte(text), &content); err != nil {
						t.Fatal(err)
					}
					return newObject(group.resource, name, content)
				}

				obj := parseObject(tc.object)
				if tc.existing == "" && !tc.status {
					_, err := client.Create(t.Context(), obj, createOptions)
					checkErrors(t, tc, err, defined.validateCreate(t, obj))
					return
				}
				old := parseObject(tc.existing)
				if errs := defined.validateCreate(t, old); len(errs) > 0 {
					t.Fatalf("the case begins with an object that the definition refuses: %v", errs)
				}
				stored := createObject(t, client, old)
				obj.SetResourceVersion(stored.GetResourceVersion())
				if tc.status {
					_, err := client.UpdateStatus(t.Context(), obj, updateOptions)
					checkErrors(t, tc, err, defined.validateUpdate(t, defined.status, obj, old))
					return
				}
				_, err := client.Update(t.Context(), obj, updateOptions)
				checkErrors(t, tc, err, defined.validateUpdate(t, defined.update, obj, old))
			})
		}
	}
}

func checkErrors(t *testing.T, tc testCase, serverErr error, definitionErrs field.ErrorList) {
	t.Helper()
	if (tc.invalidField == "") != (len(definitionErrs) == 0) {
		t.Errorf("the definition reports %v", definitionErrs)
	}
	switch {
	case tc.invalidField == "" && serverErr != nil:
		t.Errorf("the server refuses: %v", serverErr)
	case tc.invalidField != "" && !isInvalid(serverErr, tc.invalidField):
		t.Errorf("want 422 at %s, the server returns %v (the definition: %v)", tc.invalidField, serverErr, definitionErrs)
	}
}
