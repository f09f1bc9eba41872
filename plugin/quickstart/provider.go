package quickstart

import (
	"context"
	_ "embed"
	"fmt"
	"io"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/internal/apiresourceschema"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/binding"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// cowboysYAML is the definition of the API that the provider exports.
//
//go:embed cowboys.yaml
var cowboysYAML []byte

const (
	exportName   = "cowboys"
	schemaPrefix = "today"
)

var cowboys = schema.GroupVersionResource{Group: "wildwest.dev", Version: "v1alpha1", Resource: "cowboys"}

// providerSteps returns the scenario of an API, its provider and its consumer.
func (s *setup) providerSteps() (steps []step, end logicalcluster.Path, summary string) {
	provider, consumer := s.organization().Join(s.prefix+"-provider"), s.organization().Join(s.prefix+"-consumer")
	steps = []step{
		s.organizationStep(),
		{"Creating the provider's workspace", func(ctx context.Context) error { return s.createWorkspace(ctx, provider, universalType) }},
		{"Exporting the API cowboys.wildwest.dev", func(ctx context.Context) error { return s.createExport(ctx, provider) }},
		{"Creating the consumer's workspace", func(ctx context.Context) error { return s.createWorkspace(ctx, consumer, universalType) }},
		{"Binding the API", func(ctx context.Context) error { return s.bindExport(ctx, provider, consumer) }},
	}
	if s.withSamples {
		steps = append(steps, step{"Creating a cowboy", func(ctx context.Context) error {
			return s.createObject(ctx, consumer, cowboys, "default", newCowboy())
		}})
	}
	return steps, consumer, fmt.Sprintf(`The API cowboys.wildwest.dev is exported by %[1]s and bound in %[2]s.

  kubectl ws :%[2]s
  kubectl get cowboys                    # served here, defined there
  kubectl kcp claims get apibinding      # what the provider may see besides
  kubectl ws :%[1]s
  kubectl get apiexportendpointslices -o yaml   # the URL for controllers of all cowboys, wherever they are bound
`, provider, consumer)
}

func (s *setup) createExport(ctx context.Context, provider logicalcluster.Path) error {
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(cowboysYAML, &definition); err != nil {
		return fmt.Errorf("reading the definition of the API: %w", err)
	}
	typed, err := apiresourceschema.FromDefinition(&definition, schemaPrefix)
	if err != nil {
		return fmt.Errorf("making a schema of the API: %w", err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return fmt.Errorf("making a schema of the API: %w", err)
	}
	if err := s.createObject(ctx, provider, connection.APIResourceSchemas, "", &unstructured.Unstructured{Object: content}); err != nil {
		return err
	}
	return s.createObject(ctx, provider, connection.APIExports, "", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": connection.APIExports.GroupVersion().String(),
		"kind":       "APIExport",
		"metadata":   map[string]any{"name": exportName},
		"spec": map[string]any{"resources": []any{map[string]any{
			"name": cowboys.Resource, "group": cowboys.Group, "schema": typed.Name, "storage": map[string]any{"crd": map[string]any{}},
		}}},
	}})
}

func (s *setup) bindExport(ctx context.Context, provider, consumer logicalcluster.Path) error {
	_, err := s.installation.Get(ctx, consumer, connection.APIBindings, exportName)
	if err == nil {
		s.printf("  APIBinding %q already exists in %s\n", exportName, consumer)
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	request := binding.Request{Path: provider, Export: exportName, Timeout: s.timeout}
	if err := binding.Bind(ctx, s.installation, consumer, request, io.Discard, io.Discard); err != nil {
		return err
	}
	s.printf("  APIBinding %q created and bound in %s\n", exportName, consumer)
	return nil
}

func newCowboy() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": cowboys.GroupVersion().String(),
		"kind":       "Cowboy",
		"metadata":   map[string]any{"name": "lucky-luke"},
		"spec":       map[string]any{"intent": "shoot faster than my shadow"},
	}}
}
