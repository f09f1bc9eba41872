package kro

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testVersions makes the runtime cluster stop serving the version in which an object was applied: the object is deleted in another version.
func (e *env) testVersions(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(e.cluster.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	definition := newDefinition("v1beta1", "v1")
	if err := c.Create(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	const v1 = `resources: [{id: main, template: {apiVersion: example.org/v1, kind: Bucket, metadata: {name: "${schema.metadata.name}"}, spec: {size: "${schema.spec.size}"}}}]`
	template := newTemplate(t, "versions", strings.Replace(v1, "v1", "v1beta1", 1))
	shardtesting.Eventually(t, "the kind to be known", func(ctx context.Context) error {
		status, err := e.backend.SetupTemplate(ctx, template)
		if err == nil && !status.Ready {
			err = fmt.Errorf("%s", status.Message)
		}
		return err
	})
	mine := newInstance(t, template, "versions", "mine", "size: small")
	shardtesting.Eventually(t, "the instance to be ready", func(ctx context.Context) error {
		state, err := e.backend.Apply(ctx, mine)
		if err == nil && state.Phase != infrastructurev1alpha1.PhaseReady {
			err = fmt.Errorf("got %+v", state)
		}
		return err
	})
	shardtesting.Eventually(t, "changing the definition", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(definition), definition); err != nil {
			return err
		}
		definition.Spec.Versions[0].Served = false
		return c.Update(ctx, definition)
	})
	bucket := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1beta1", "kind": "Bucket"}}
	key := client.ObjectKey{Namespace: "versions", Name: "mine"}
	shardtesting.Eventually(t, "the version to be served no longer", func(ctx context.Context) error {
		if err := e.c.Get(ctx, key, bucket); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if gone, err := e.backend.Delete(t.Context(), mine); gone || err == nil {
		t.Errorf("a process that knows the previous version only says that the object is gone: %v, %v", gone, err)
	}
	e.remove(t, mine)
	if e.get(t, "versions", "example.org/v1", "Bucket", "mine") != nil {
		t.Error("the object is left")
	}
	if state := e.apply(t, newInstance(t, change(t, template, v1), "versions", "mine", "size: small")); state.Phase != infrastructurev1alpha1.PhaseReady {
		t.Fatalf("in the other version: %+v", state)
	}
	if err := c.Delete(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the kind to be gone", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(definition), definition); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if gone, err := e.backend.Delete(t.Context(), mine); gone || err == nil {
		t.Errorf("a process that has seen the kind says that the object is gone before it has looked for the kind: %v, %v", gone, err)
	}
	e.remove(t, mine) // a kind that does not exist has no objects
}

// newDefinition returns the CRD of Buckets.
func newDefinition(versions ...string) *apiextensionsv1.CustomResourceDefinition {
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "buckets.example.org"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.org", Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "buckets", Singular: "bucket", Kind: "Bucket", ListKind: "BucketList"},
	}}
	for i, name := range versions {
		definition.Spec.Versions = append(definition.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: i == len(versions)-1,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"spec": {Type: "object", XPreserveUnknownFields: ptr.To(true), Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "string"}}},
			}}},
		})
	}
	return definition
}
