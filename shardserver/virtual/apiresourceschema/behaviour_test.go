package apiresourceschema_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	own    = "/apis/apis.kcp.io/v1alpha1/apiresourceschemas"
	schema = "v1.widgets.example.com"
)

func request(t *testing.T, config *rest.Config, method, path string, headers ...string) (int, string) {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, bytes.NewBufferString("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// publish makes an export of widgets.
func publish(t *testing.T, masters client.Client, cluster string) {
	t.Helper()
	in := shardtesting.In(t.Context(), cluster)
	for _, object := range []client.Object{
		&apisv1alpha1.APIResourceSchema{ObjectMeta: metav1.ObjectMeta{Name: schema}, Spec: apisv1alpha1.APIResourceSchemaSpec{
			Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Scope:    apiextensionsv1.ClusterScoped,
			Versions: []apisv1alpha1.APIResourceVersion{{Name: "v1", Served: true, Storage: true, Schema: runtime.RawExtension{Raw: []byte(`{"type":"object"}`)}}},
		}},
		&apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}, Spec: apisv1alpha2.APIExportSpec{
			Resources: []apisv1alpha2.ResourceSchema{{Name: "widgets", Group: "example.com", Schema: schema, Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}}}},
		}},
	} {
		if err := masters.Create(in, object); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConsumersReadSchemasOfBoundAPIs(t *testing.T) {
	shard := shardtesting.Start(t)
	masters := shard.Client(t, shard.Masters(t))
	provider := shard.NewWorkspace(t, "root", "provider").Spec.Cluster
	consumer := shard.NewWorkspace(t, "root", "consumer").Spec.Cluster
	neighbour := shard.NewWorkspace(t, "root", "neighbour").Spec.Cluster
	publish(t, masters, provider)
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}, Spec: apisv1alpha2.APIBindingSpec{
		Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: provider, Name: "widgets"}},
	}}
	if err := masters.Create(shardtesting.In(t.Context(), consumer), binding); err != nil {
		t.Fatal(err)
	}
	admin, user := shard.Admin(t), shard.User(t)
	view := func(owner, rest string) string { return "/services/apiresourceschema/" + owner + rest }
	shardtesting.Eventually(t, "the schema is seen", func(context.Context) error {
		if code, body := request(t, admin, http.MethodGet, view(consumer, own+"/"+schema)); code != http.StatusOK {
			return fmt.Errorf("%d: %s", code, body)
		}
		return nil
	})

	for name, path := range map[string]string{"without clusters": own, "under its name": "/clusters/" + consumer + own, "under the wildcard": "/clusters/*" + own} {
		t.Run("the consumer's view, "+name, func(t *testing.T) {
			_, body := request(t, admin, http.MethodGet, view(consumer, path))
			if !strings.Contains(body, `"name":"`+schema+`"`) || !strings.Contains(body, `"kcp.io/cluster":"`+provider+`"`) || !strings.Contains(body, `"resourceVersion":"`) {
				t.Errorf("listed are %s", body)
			}
			if _, body := request(t, admin, http.MethodGet, view(consumer, path), "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"); !strings.Contains(body, `"kind":"Table"`) {
				t.Errorf("no table: %s", body)
			}
			if code, body := request(t, admin, http.MethodGet, view(consumer, path+"?watch=1")); code != http.StatusOK || body != "" {
				t.Errorf("the watch is %d %s", code, body)
			}
		})
	}
	for name, tc := range map[string]struct {
		config       *rest.Config
		method, path string
		want         int
	}{
		"discovery":                                  {admin, http.MethodGet, view(consumer, "/apis/apis.kcp.io/v1alpha1"), http.StatusOK},
		"OpenAPI":                                    {admin, http.MethodGet, view(consumer, "/openapi/v3/apis/apis.kcp.io/v1alpha1"), http.StatusOK},
		"a schema that is not bound":                 {admin, http.MethodGet, view(consumer, own+"/v1.others.example.com"), http.StatusNotFound},
		"a neighbour who has not bound it":           {admin, http.MethodGet, view(neighbour, own+"/"+schema), http.StatusNotFound},
		"other kinds":                                {admin, http.MethodGet, view(consumer, "/apis/apis.kcp.io/v1alpha1/apibindings"), http.StatusNotFound},
		"other groups":                               {admin, http.MethodGet, view(consumer, "/api/v1/secrets"), http.StatusNotFound},
		"writing":                                    {admin, http.MethodPost, view(consumer, own), http.StatusForbidden},
		"deleting":                                   {admin, http.MethodDelete, view(consumer, own+"/"+schema), http.StatusForbidden},
		"writing as masters":                         {shard.Masters(t), http.MethodPost, view(consumer, own), http.StatusMethodNotAllowed},
		"a stranger":                                 {user, http.MethodGet, view(consumer, own), http.StatusForbidden},
		"a stranger's discovery":                     {user, http.MethodGet, view(consumer, "/apis"), http.StatusForbidden},
		"another logical cluster behind":             {admin, http.MethodGet, view(consumer, "/clusters/"+neighbour+own), http.StatusForbidden},
		"all consumers":                              {admin, http.MethodGet, view("*", own), http.StatusForbidden},
		"a path of workspaces":                       {admin, http.MethodGet, view("root:consumer", own), http.StatusForbidden},
		"a logical cluster that does not exist":      {admin, http.MethodGet, view("nosuchcluster", own), http.StatusForbidden},
		"one without bindings":                       {shard.Masters(t), http.MethodGet, view("system:admin", own), http.StatusNotFound},
		"discovery of one without bindings":          {shard.Masters(t), http.MethodGet, view("system:admin", "/apis"), http.StatusNotFound},
		"masters at another logical cluster's":       {shard.Masters(t), http.MethodGet, view(consumer, "/clusters/"+neighbour+own), http.StatusNotFound},
		"a name selects":                             {admin, http.MethodGet, view(consumer, own+"?fieldSelector=metadata.name%3D"+schema), http.StatusOK},
		"the schema as its provider has it, outside": {user, http.MethodGet, "/clusters/" + provider + own + "/" + schema, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			if code, body := request(t, tc.config, tc.method, tc.path); code != tc.want {
				t.Errorf("got %d, want %d: %s", code, tc.want, body)
			}
		})
	}
}
