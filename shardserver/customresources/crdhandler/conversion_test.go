package crdhandler_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// serveConversion is a conversion webhook: size in v1 is volume in v2.
func serveConversion(w http.ResponseWriter, req *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, object := range review.Request.Objects {
		var obj unstructured.Unstructured
		if err := json.Unmarshal(object.Raw, &obj.Object); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		from, to := "size", "volume"
		if strings.HasSuffix(review.Request.DesiredAPIVersion, "/v1") {
			from, to = to, from
		}
		if value, found, _ := unstructured.NestedString(obj.Object, "spec", from); found {
			unstructured.RemoveNestedField(obj.Object, "spec", from)
			_ = unstructured.SetNestedField(obj.Object, value, "spec", to)
		}
		obj.SetAPIVersion(review.Request.DesiredAPIVersion)
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Object: &obj})
	}
	_ = json.NewEncoder(w).Encode(apiextensionsv1.ConversionReview{TypeMeta: review.TypeMeta, Response: response})
}

// newConvertibleDefinition defines widgets in v1 and v2, which a webhook converts.
func newConvertibleDefinition(config *apiextensionsv1.WebhookClientConfig) *apiextensionsv1.CustomResourceDefinition {
	definition := newDefinition("example.com")
	second := definition.Spec.Versions[0].DeepCopy()
	second.Name, second.Storage = "v2", false
	properties := second.Schema.OpenAPIV3Schema.Properties["spec"].Properties
	properties["volume"] = properties["size"]
	delete(properties, "size")
	definition.Spec.Versions = append(definition.Spec.Versions, *second)
	definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: config, ConversionReviewVersions: []string{"v1"}},
	}
	return definition
}

func testConversionWebhook(t *testing.T, shard *shardtesting.Shard) {
	server := httptest.NewTLSServer(http.HandlerFunc(serveConversion))
	defer server.Close()
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	w := newWorkspace(t, shard)
	w.define(newConvertibleDefinition(&apiextensionsv1.WebhookClientConfig{URL: &server.URL, CABundle: bundle}))
	w.create(newWidget("one", map[string]any{"size": "big"}))
	got, err := w.objects("v2").Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if volume, _, _ := unstructured.NestedString(got.Object, "spec", "volume"); volume != "big" || got.GetAPIVersion() != "example.com/v2" {
		t.Errorf("in v2 it is %v", got)
	}
	list, err := w.objects("v2").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Object["spec"].(map[string]any)["volume"] != "big" {
		t.Errorf("the list in v2 is %v, %v", list, err)
	}
	_ = unstructured.SetNestedField(got.Object, "small", "spec", "volume")
	if _, err := w.objects("v2").Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if size, _, _ := unstructured.NestedString(w.get("one").Object, "spec", "size"); size != "small" {
		t.Errorf("in v1 it is %q", size)
	}
}

func testConversionWebhookService(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	w.define(newConvertibleDefinition(&apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "default", Name: "kubernetes"}}))
	w.create(newWidget("one", map[string]any{"size": "big"}))
	if _, err := w.objects("v2").Get(t.Context(), "one", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "a workspace has no services") {
		t.Errorf("by a service: got %v", err)
	}
	w.get("one") // needs no conversion
	if err := w.definitions().Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the definition is deleted nevertheless", func(ctx context.Context) error {
		if _, err := w.definitions().Get(ctx, "widgets.example.com", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

// testUnreadableObjectDeletion deletes the definition of objects that cannot be converted.
func testUnreadableObjectDeletion(t *testing.T, shard *shardtesting.Shard) {
	server := httptest.NewTLSServer(http.HandlerFunc(serveConversion))
	w := newWorkspace(t, shard)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	definition := w.define(newConvertibleDefinition(&apiextensionsv1.WebhookClientConfig{URL: &server.URL, CABundle: bundle}))
	for i := range 20 {
		w.create(newWidget(fmt.Sprintf("w%d", i), map[string]any{"size": "big"}))
	}
	held := newWidget("held", nil)
	held.SetFinalizers([]string{"example.com/held"})
	w.create(held)
	definition.Spec.Versions[0].Storage, definition.Spec.Versions[1].Storage = false, true
	if _, err := w.definitions().Update(t.Context(), definition, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the second version is the stored one", func(ctx context.Context) error {
		got, err := w.definitions().Get(ctx, definition.Name, metav1.GetOptions{})
		if err == nil && len(got.Status.StoredVersions) != 2 {
			err = fmt.Errorf("stored versions are %v", got.Status.StoredVersions)
		}
		return err
	})
	server.Close()
	if err := w.definitions().Delete(t.Context(), definition.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "all but the object with a finalizer are deleted", func(ctx context.Context) error {
		keys := shard.Keys(t, "/widgets/customresources/"+w.name+"/")
		if len(keys) != 1 || !strings.HasSuffix(keys[0], "/held") {
			return fmt.Errorf("stored keys are %v", keys)
		}
		return nil
	})
}
