package apiindex

import (
	"errors"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func widgetSchema() *apisv1alpha1.APIResourceSchema {
	return &apisv1alpha1.APIResourceSchema{
		ObjectMeta: metav1.ObjectMeta{
			Name: "v1.widgets.example.io", UID: "a-b-c",
			Annotations: map[string]string{logicalcluster.AnnotationKey: "provider", "example.io/other": "x", "api-approved.kubernetes.io": "unapproved"},
		},
		Spec: apisv1alpha1.APIResourceSchemaSpec{
			Group: "example.io",
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apisv1alpha1.APIResourceVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"spec":{"type":"string"}}}`)},
				Subresources: apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				},
			}},
		},
	}
}

func TestBoundCRD(t *testing.T) {
	definition, err := BoundCRD(widgetSchema())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"apis.kcp.io/bound-crd": "", "apis.kcp.io/schema-cluster": "provider", "apis.kcp.io/schema-name": "v1.widgets.example.io",
		"api-approved.kubernetes.io": "unapproved",
	}
	for key, value := range want {
		if got, ok := definition.Annotations[key]; !ok || got != value {
			t.Errorf("annotation %s is %q, want %q", key, got, value)
		}
	}
	version := definition.Spec.Versions[0]
	if definition.Name != "a-b-c" || len(definition.Annotations) != len(want) || definition.Spec.Names.Kind != "Widget" ||
		version.Schema.OpenAPIV3Schema.Properties["spec"].Type != "string" || version.Subresources.Status == nil ||
		definition.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
		t.Errorf("got %+v", definition)
	}
	if got := StorageVersion(widgetSchema()); got != "v1" {
		t.Errorf("storage version is %q", got)
	}
}

func TestBoundCRDOfInvalidSchema(t *testing.T) {
	several := widgetSchema()
	several.Spec.Versions = append(several.Spec.Versions, several.Spec.Versions[0])
	if _, err := BoundCRD(several); !errors.Is(err, ErrNoConversion) {
		t.Errorf("several versions without conversion: %v", err)
	}
	url := "https://convert.example.io"
	several.Spec.Conversion = &apisv1alpha1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook:  &apisv1alpha1.WebhookConversion{ClientConfig: &apisv1alpha1.WebhookClientConfig{URL: url}, ConversionReviewVersions: []string{"v1"}},
	}
	if definition, err := BoundCRD(several); err != nil || *definition.Spec.Conversion.Webhook.ClientConfig.URL != url {
		t.Errorf("several versions with a webhook: %+v, %v", definition, err)
	}
	broken := widgetSchema()
	broken.Spec.Versions[0].Schema.Raw = []byte(`[]`)
	if _, err := BoundCRD(broken); err == nil || !strings.Contains(err.Error(), "v1.widgets.example.io") {
		t.Errorf("an invalid schema: %v", err)
	}
	paths := widgetSchema()
	paths.Spec.NameValidation = apisv1alpha1.NameValidationPathSegmentName
	if definition, err := BoundCRD(paths); err != nil || definition.Annotations[NameValidationAnnotationKey] != "PathSegmentName" {
		t.Errorf("names that are path segments: %+v, %v", definition, err)
	}
}
