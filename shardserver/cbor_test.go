package shardserver_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/client-go/rest"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestCBOR writes and reads a built-in resource, one of kcp's resources and a custom resource in CBOR, and reads the
// result as JSON.
func TestCBOR(t *testing.T) {
	shard := sharedShard(t)
	shard.NewWorkspace(t, "root", "cbor")
	config := shardtesting.At(shard.Admin(t), "root:cbor")
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	do := func(t *testing.T, method, path, contentType, accept string, body map[string]any) (int, string, []byte) {
		t.Helper()
		var raw []byte
		if body != nil {
			if raw, err = direct.Marshal(body); err != nil {
				t.Fatal(err)
			}
		}
		request, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", contentType)
		request.Header.Set("Accept", accept)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if raw, err = io.ReadAll(response.Body); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, response.Header.Get("Content-Type"), raw
	}
	const cborType = "application/cbor"
	definition := unstructured.Unstructured{}
	if err := definition.UnmarshalJSON([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.cbor.example.com"},"spec":{"group":"cbor.example.com","scope":"Cluster",
"names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer","default":7}}}}}}}]}}`)); err != nil {
		t.Fatal(err)
	}
	if status, _, body := do(t, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", cborType, cborType, definition.Object); status != http.StatusCreated {
		t.Fatalf("creating a definition: %d %s", status, body)
	}
	shardtesting.Eventually(t, "things are served", func(context.Context) error {
		if status, _, body := do(t, http.MethodGet, "/apis/cbor.example.com/v1/things", "", "application/json", nil); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	for _, tc := range []struct {
		collection, apiVersion, kind string
		spec                         map[string]any
	}{
		{"/api/v1/namespaces", "v1", "Namespace", map[string]any{}},
		{"/apis/tenancy.kcp.io/v1alpha1/workspacetypes", "tenancy.kcp.io/v1alpha1", "WorkspaceType", map[string]any{}},
		{"/apis/cbor.example.com/v1/things", "cbor.example.com/v1", "Thing", map[string]any{}},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			object := func(label string) map[string]any {
				return map[string]any{"apiVersion": tc.apiVersion, "kind": tc.kind, "spec": tc.spec, "metadata": map[string]any{"name": "x", "labels": map[string]any{"label": label}}}
			}
			for _, r := range []struct {
				method, path, contentType string
				body                      map[string]any
				status                    int
			}{
				{http.MethodPost, tc.collection, cborType, object("one"), http.StatusCreated},
				{http.MethodPatch, tc.collection + "/x?fieldManager=test&force=true", "application/apply-patch+cbor", object("two"), http.StatusOK},
				{http.MethodGet, tc.collection + "/x", "", nil, http.StatusOK},
				{http.MethodGet, tc.collection, "", nil, http.StatusOK},
				{http.MethodGet, tc.collection + "/absent", "", nil, http.StatusNotFound},
			} {
				status, contentType, raw := do(t, r.method, r.path, r.contentType, cborType, r.body)
				if status != r.status || contentType != cborType {
					t.Fatalf("%s %s: %d %s %s", r.method, r.path, status, contentType, raw)
				}
				var got map[string]any
				if err := direct.Unmarshal(raw, &got); err != nil {
					t.Fatalf("%s %s: %v", r.method, r.path, err)
				}
			}
			status, contentType, raw := do(t, http.MethodGet, tc.collection+"?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3Dx", "", cborType, nil)
			if status != http.StatusOK || contentType != "application/cbor-seq" || !bytes.Contains(raw, []byte("ADDED")) {
				t.Errorf("watch: %d %s %q", status, contentType, raw)
			}
			status, _, raw = do(t, http.MethodGet, tc.collection+"/x", "", "application/json", nil)
			if status != http.StatusOK || !bytes.Contains(raw, []byte(`"label":"two"`)) {
				t.Errorf("as JSON: %d %s", status, raw)
			}
		})
	}
}
