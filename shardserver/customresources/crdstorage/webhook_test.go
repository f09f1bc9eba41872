package crdstorage_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// newConversionWebhook returns a conversion webhook that changes the version and counts the objects of its requests.
func newConversionWebhook(t *testing.T, changes ...func(*unstructured.Unstructured)) (config *apiextensionsv1.CustomResourceConversion, converted *atomic.Int64) {
	t.Helper()
	converted = &atomic.Int64{}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		review := apiextensionsv1.ConversionReview{}
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			t.Error(err)
			return
		}
		response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, object := range review.Request.Objects {
			converted.Add(1)
			obj := &unstructured.Unstructured{}
			if err := json.Unmarshal(object.Raw, &obj.Object); err != nil {
				t.Error(err)
			}
			obj.SetAPIVersion(review.Request.DesiredAPIVersion)
			for _, change := range changes {
				change(obj)
			}
			response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Object: obj})
		}
		review.Request, review.Response = nil, response
		if err := json.NewEncoder(w).Encode(&review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				URL:      &s.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
			},
		},
	}, converted
}

func TestConversionWebhookIsCalledOncePerObject(t *testing.T) {
	const group = "hook.example.io"
	crd := newTwoVersionDefinition(group, "v1")
	conversion, converted := newConversionWebhook(t)
	crd.Spec.Conversion = conversion
	s := newServer(t)
	s.handle("ours", newContentHandler(t, newStorage(t, widgetsResource(group)), crd))
	path := func(version string) string {
		return "/ours/clusters/one/apis/" + group + "/" + version + "/namespaces/default/widgets"
	}
	for _, name := range []string{"a", "b", "c"} {
		s.mustDo(t, http.MethodPost, path("v1"), newWidgetJSON(group, "v1", name, nil, `{"color":"blue"}`))
	}
	s.mustDo(t, http.MethodGet, path("v1"), "")
	if n := converted.Load(); n != 0 {
		t.Errorf("the stored version was converted %d times", n)
	}
	for range 3 {
		for _, accept := range []string{"", tableJSON, "application/yaml", metadataListJSON} {
			if res := s.do(t, http.MethodGet, path("v2"), accept, ""); res.code != http.StatusOK {
				t.Fatalf("%d %s", res.code, res.body)
			}
		}
		if obj := s.mustDo(t, http.MethodGet, path("v2")+"/a", ""); obj.GetAPIVersion() != group+"/v2" {
			t.Errorf("got %v", obj)
		}
	}
	s.watch(t, path("v2")+"?watch=1&resourceVersion=0", "").nextEvents(t, 3)
	if n := converted.Load(); n != 3 {
		t.Errorf("three objects were converted %d times", n)
	}
}

func TestConversionWebhookCannotChangeLogicalCluster(t *testing.T) {
	for name, change := range map[string]func(*unstructured.Unstructured){
		"changes the cluster annotation": func(obj *unstructured.Unstructured) {
			obj.SetAnnotations(map[string]string{logicalcluster.AnnotationKey: "root", "seen": "true"})
		},
		"removes annotations": func(obj *unstructured.Unstructured) { obj.SetAnnotations(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			group := strings.Fields(name)[0] + ".hook.example.io"
			crd := newTwoVersionDefinition(group, "v1")
			crd.Spec.Conversion, _ = newConversionWebhook(t, change)
			s := newServer(t)
			s.handle("ours", newContentHandler(t, newStorage(t, widgetsResource(group)), crd))
			path := func(version string) string {
				return "/ours/clusters/one/apis/" + group + "/" + version + "/namespaces/default/widgets"
			}
			s.mustDo(t, http.MethodPost, path("v1"), newWidgetJSON(group, "v1", "a", nil, `{"color":"blue"}`))
			s.mustDo(t, http.MethodPost, path("v2"), newWidgetJSON(group, "v2", "b", nil, `{"color":"blue"}`))
			created := s.mustDo(t, http.MethodGet, path("v2")+"/b", "")
			for _, version := range []string{"v1", "v2"} {
				for _, name := range []string{"a", "b"} {
					if got := s.mustDo(t, http.MethodGet, path(version)+"/"+name, "").GetAnnotations()[logicalcluster.AnnotationKey]; got != "one" {
						t.Errorf("%s in %s is of %q", name, version, got)
					}
				}
				list := &unstructured.UnstructuredList{}
				if err := json.Unmarshal([]byte(s.do(t, http.MethodGet, path(version), "", "").body), list); err != nil || len(list.Items) != 2 {
					t.Fatalf("the list in %s is %v, %v", version, list, err)
				}
				for _, item := range list.Items {
					if got := item.GetAnnotations()[logicalcluster.AnnotationKey]; got != "one" {
						t.Errorf("%s in a list in %s has the cluster %q", item.GetName(), version, got)
					}
				}
			}
			created.SetLabels(map[string]string{"changed": "true"})
			changed, err := json.Marshal(created)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.mustDo(t, http.MethodPut, path("v2")+"/b", string(changed)).GetAnnotations()[logicalcluster.AnnotationKey]; got != "one" {
				t.Errorf("the response to an update has the cluster %q", got)
			}
			for _, event := range s.watch(t, path("v2")+"?watch=1&resourceVersion=0", "").nextEvents(t, 2) {
				object, _ := event["object"].(map[string]any)
				if got := (&unstructured.Unstructured{Object: object}).GetAnnotations()[logicalcluster.AnnotationKey]; got != "one" {
					t.Errorf("an object of a watch has the cluster %q", got)
				}
			}
		})
	}
}
