package shardserver_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	kubeprotobuf "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/internal/nesting"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	schemasPath     = "/apis/apis.kcp.io/v1alpha1/apiresourceschemas"
	rolesPath       = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	deepThingsPath  = "/apis/nesting.example.com/v1/things"
)

// bodyClient sends bodies to one workspace.
type bodyClient struct {
	http   *http.Client
	config *rest.Config
}

func (c *bodyClient) send(t *testing.T, method, path, media string, body []byte) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, c.config.Host+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", media)
	request.Header.Set("Accept", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// expect sends a body and checks the status, and that a refusal names the limit.
func (c *bodyClient) expect(t *testing.T, status int, method, path, media string, body []byte) {
	t.Helper()
	got, content := c.send(t, method, path, media, body)
	if got != status || status == http.StatusBadRequest && !strings.Contains(content, fmt.Sprintf("deeper than the limit of %d levels", nesting.Default().Request)) {
		t.Errorf("%s %s as %s: status %d, want %d: %.400s", method, path, media, got, status, content)
	}
}

// encodings are how objects are sent. Only some types have protobuf.
var encodings = map[string]func(t *testing.T, obj any) []byte{
	runtime.ContentTypeJSON: func(t *testing.T, obj any) []byte { return encoded(json.Marshal(obj))(t) },
	runtime.ContentTypeYAML: func(t *testing.T, obj any) []byte { return encoded(yaml.Marshal(obj))(t) },
	runtime.ContentTypeCBOR: func(t *testing.T, obj any) []byte { return encoded(direct.Marshal(untyped(t, obj)))(t) },
}

func encoded(data []byte, err error) func(*testing.T) []byte {
	return func(t *testing.T) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
}

func untyped(t *testing.T, obj any) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := json.Unmarshal(encoded(json.Marshal(obj))(t), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// toProtobuf encodes an object with the envelope of its kind.
func toProtobuf(t *testing.T, obj runtime.Object) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	var out bytes.Buffer
	if err := kubeprotobuf.NewSerializer(scheme, scheme).Encode(obj, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// deepLists returns lists in lists.
func deepLists(levels int) any {
	var out any = []any{}
	for range levels - 1 {
		out = []any{out}
	}
	return out
}

// newDeepDefinition returns a definition whose schema has levels of lists.
func newDeepDefinition(levels int) *apiextensionsv1.CustomResourceDefinition {
	lists := apiextensionsv1.JSONSchemaProps{Type: "string"}
	for range levels {
		items := lists
		lists = apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &items}}
	}
	preserve := true
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "things.nesting.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "nesting.example.com", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec": {Type: "object", XPreserveUnknownFields: &preserve}, "lists": lists,
				}},
			}}},
		},
	}
}

func newThing(levels int) map[string]any {
	return map[string]any{
		"apiVersion": "nesting.example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "one"},
		"spec": map[string]any{"lists": deepLists(levels)},
	}
}

// TestBodies sends objects that are a little deeper than the limit, in each encoding and to each kind of API.
func TestBodies(t *testing.T) {
	shard := sharedShard(t)
	shard.NewWorkspace(t, "root", "nesting")
	config := shardtesting.At(shard.Admin(t), "root:nesting")
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &bodyClient{http: client, config: config}
	limit := nesting.Default().Request
	// The schema of the lists is on the eighth level of its definition.
	tooDeep, deepest := newDeepDefinition(limit-7), newDeepDefinition(limit-8)
	c.expect(t, http.StatusCreated, http.MethodPost, definitionsPath, runtime.ContentTypeProtobuf, toProtobuf(t, deepest))
	definition := definitionsPath + "/" + deepest.Name
	role := &rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	c.expect(t, http.StatusCreated, http.MethodPost, rolesPath, runtime.ContentTypeProtobuf, toProtobuf(t, role))
	shardtesting.Eventually(t, "things are served", func(context.Context) error {
		if status, content := c.send(t, http.MethodGet, deepThingsPath, "", nil); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, content)
		}
		return nil
	})
	c.expect(t, http.StatusCreated, http.MethodPost, deepThingsPath, runtime.ContentTypeJSON, encodings[runtime.ContentTypeJSON](t, newThing(limit-2)))
	c.expect(t, http.StatusOK, http.MethodDelete, deepThingsPath+"/one", runtime.ContentTypeJSON, nil)

	deepSchema := untyped(t, shardtesting.NewSchema("v1", schema.GroupResource{Group: "nesting.example.com", Resource: "things"}, "Thing"))
	deepSchema["spec"].(map[string]any)["extra"] = deepLists(limit - 1)
	deepRole := untyped(t, role)
	deepRole["extra"] = deepLists(limit)
	options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "extra": deepLists(limit)}
	for media, encode := range encodings {
		t.Run(media, func(t *testing.T) {
			c.expect(t, http.StatusBadRequest, http.MethodPost, definitionsPath, media, encode(t, tooDeep))
			c.expect(t, http.StatusBadRequest, http.MethodPut, definition, media, encode(t, tooDeep))
			c.expect(t, http.StatusBadRequest, http.MethodPut, definition+"/status", media, encode(t, tooDeep))
			c.expect(t, http.StatusBadRequest, http.MethodPost, schemasPath, media, encode(t, deepSchema))
			c.expect(t, http.StatusBadRequest, http.MethodPost, rolesPath, media, encode(t, deepRole))
			c.expect(t, http.StatusBadRequest, http.MethodPut, rolesPath+"/one", media, encode(t, deepRole))
			c.expect(t, http.StatusBadRequest, http.MethodPost, deepThingsPath, media, encode(t, newThing(limit-1)))
			c.expect(t, http.StatusBadRequest, http.MethodDelete, rolesPath+"/one", media, encode(t, options))
			c.expect(t, http.StatusBadRequest, http.MethodDelete, definition, media, encode(t, options))
			c.expect(t, http.StatusBadRequest, http.MethodDelete, rolesPath+"?labelSelector=none", media, encode(t, options))
			c.expect(t, http.StatusBadRequest, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", media, encode(t, deepRole))
		})
	}
	t.Run("protobuf", func(t *testing.T) {
		body := toProtobuf(t, tooDeep)
		c.expect(t, http.StatusBadRequest, http.MethodPost, definitionsPath, runtime.ContentTypeProtobuf, body)
		c.expect(t, http.StatusBadRequest, http.MethodPut, definition, runtime.ContentTypeProtobuf, body)
		c.expect(t, http.StatusBadRequest, http.MethodPut, definition+"/status", runtime.ContentTypeProtobuf, body)
		// The kind in the body decides what is decoded, whatever the path.
		c.expect(t, http.StatusBadRequest, http.MethodPost, rolesPath, runtime.ContentTypeProtobuf, body)
		c.expect(t, http.StatusBadRequest, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", runtime.ContentTypeProtobuf, body)
	})
	t.Run("patches", func(t *testing.T) {
		patch := encodings[runtime.ContentTypeJSON](t, tooDeep)
		for _, media := range []string{"application/merge-patch+json", "application/apply-patch+yaml"} {
			c.expect(t, http.StatusBadRequest, http.MethodPatch, definition+"?fieldManager=test&force=true", media, patch)
		}
		c.expect(t, http.StatusBadRequest, http.MethodPatch, definition+"?fieldManager=test&force=true", "application/apply-patch+cbor", encodings[runtime.ContentTypeCBOR](t, tooDeep))
		deepPatch := encodings[runtime.ContentTypeJSON](t, map[string]any{"extra": deepLists(limit)})
		for _, path := range []string{definition, rolesPath + "/one", schemasPath + "/v1.things"} {
			for _, media := range []string{"application/merge-patch+json", "application/strategic-merge-patch+json"} {
				c.expect(t, http.StatusBadRequest, http.MethodPatch, path, media, deepPatch)
			}
			operations := encodings[runtime.ContentTypeJSON](t, []any{map[string]any{"op": "add", "path": "/spec/a", "value": deepLists(limit - 1)}})
			c.expect(t, http.StatusBadRequest, http.MethodPatch, path, "application/json-patch+json", operations)
		}
	})
	t.Run("every resource", func(t *testing.T) {
		masters := shardtesting.At(shard.Masters(t), "root:nesting")
		client, err := rest.HTTPClientFor(masters)
		if err != nil {
			t.Fatal(err)
		}
		testEveryResource(t, &bodyClient{client, masters}, masters, encodings[runtime.ContentTypeJSON](t, map[string]any{"extra": deepLists(limit)}), toProtobuf(t, tooDeep))
	})
	t.Run("sizes", func(t *testing.T) {
		testSizes(t, c, definition)
	})
	t.Run("malformed chunks", func(t *testing.T) {
		testMalformedChunks(t, config)
	})
}

// testEveryResource sends bodies that are too deep to every resource that is in discovery, for each verb with a body.
func testEveryResource(t *testing.T, c *bodyClient, config *rest.Config, inJSON, inProtobuf []byte) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	requests := 0
	for _, list := range lists {
		prefix := "/apis/" + list.GroupVersion
		if list.GroupVersion == "v1" {
			prefix = "/api/v1"
		}
		for _, resource := range list.APIResources {
			collection := prefix
			if resource.Namespaced {
				collection += "/namespaces/default"
			}
			name, subresource, _ := strings.Cut(resource.Name, "/")
			collection += "/" + name
			object := strings.TrimSuffix(collection+"/one/"+subresource, "/")
			for _, verb := range resource.Verbs {
				method, path := map[string]string{"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}[verb], object
				if (verb == "create" || verb == "deletecollection") && subresource == "" {
					path = collection
				}
				switch method {
				case "":
					continue
				case http.MethodPatch:
					c.expect(t, http.StatusBadRequest, method, path, "application/merge-patch+json", inJSON)
				default:
					c.expect(t, http.StatusBadRequest, method, path, runtime.ContentTypeJSON, inJSON)
					// A resource without protobuf, or whose decoder does not know the kind, does not decode the body.
					if status, content := c.send(t, method, path, runtime.ContentTypeProtobuf, inProtobuf); status != http.StatusBadRequest && status != http.StatusUnsupportedMediaType {
						t.Errorf("%s %s in protobuf: %d %.400s", method, path, status, content)
					}
				}
				requests++
			}
		}
	}
	if requests < 100 {
		t.Errorf("only %d kinds of requests", requests)
	}
}

// testSizes sends definitions above their limit, and objects above what etcd stores.
func testSizes(t *testing.T, c *bodyClient, definition string) {
	large := newDeepDefinition(1)
	large.Name, large.Annotations = "larges.nesting.example.com", nil
	large.Spec.Versions[0].Schema.OpenAPIV3Schema.Description = strings.Repeat("a", 1<<20)
	asJSON := encodings[runtime.ContentTypeJSON]
	c.expect(t, http.StatusRequestEntityTooLarge, http.MethodPost, definitionsPath, runtime.ContentTypeJSON, asJSON(t, large))
	c.expect(t, http.StatusRequestEntityTooLarge, http.MethodPost, definitionsPath, runtime.ContentTypeProtobuf, toProtobuf(t, large))
	part := func(field string) []byte {
		return asJSON(t, []any{map[string]any{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/" + field, "value": strings.Repeat("a", 900_000)}})
	}
	c.expect(t, http.StatusOK, http.MethodPatch, definition, "application/json-patch+json", part("description"))
	c.expect(t, http.StatusRequestEntityTooLarge, http.MethodPatch, definition, "application/json-patch+json", part("title"))

	const aboveEtcd = 1_700_000
	role := func(name string, size int) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{strings.Repeat("a", size)}}},
		}
	}
	for _, size := range []int{aboveEtcd, 2_400_000} { // above the limit of the client of etcd, too
		c.expect(t, http.StatusRequestEntityTooLarge, http.MethodPost, rolesPath, runtime.ContentTypeJSON, asJSON(t, role("large", size)))
		c.expect(t, http.StatusRequestEntityTooLarge, http.MethodPut, rolesPath+"/one", runtime.ContentTypeJSON, asJSON(t, role("one", size)))
		c.expect(t, http.StatusRequestEntityTooLarge, http.MethodPatch, rolesPath+"/one", "application/merge-patch+json", asJSON(t, role("one", size)))
		thing := newThing(1)
		thing["spec"] = map[string]any{"text": strings.Repeat("a", size)}
		c.expect(t, http.StatusRequestEntityTooLarge, http.MethodPost, deepThingsPath, runtime.ContentTypeJSON, asJSON(t, thing))
		c.expect(t, http.StatusRequestEntityTooLarge, http.MethodPatch, deepThingsPath+"/two?fieldManager=test", "application/apply-patch+yaml", asJSON(t, map[string]any{
			"apiVersion": "nesting.example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "two"}, "spec": thing["spec"],
		}))
	}
}

// testMalformedChunks sends a body that cannot be read to the shard itself.
func testMalformedChunks(t *testing.T, config *rest.Config) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig.NextProtos = []string{"http/1.1"}
	address, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", address.Host, tlsConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	token := "Authorization: Bearer " + config.BearerToken + "\r\n"
	if config.BearerToken == "" {
		token = ""
	}
	_, err = io.WriteString(conn, "POST "+address.Path+rolesPath+" HTTP/1.1\r\nHost: "+address.Host+"\r\n"+token+
		"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if content, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusBadRequest {
		t.Errorf("%s: %s", response.Status, content)
	}
}
