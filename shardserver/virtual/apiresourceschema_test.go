package virtual_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
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
	schemasPath = "/apis/apis.kcp.io/v1alpha1/apiresourceschemas"
	schemaName  = "v1.widgets.example.com"
)

// createExport creates an export of widgets.
func createExport(t *testing.T, masters client.Client, cluster string) {
	t.Helper()
	ctx := shardtesting.In(t.Context(), cluster)
	for _, object := range []client.Object{
		&apisv1alpha1.APIResourceSchema{ObjectMeta: metav1.ObjectMeta{Name: schemaName}, Spec: apisv1alpha1.APIResourceSchemaSpec{
			Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Scope:    apiextensionsv1.ClusterScoped,
			Versions: []apisv1alpha1.APIResourceVersion{{Name: "v1", Served: true, Storage: true, Schema: runtime.RawExtension{Raw: []byte(`{"type":"object"}`)}}},
		}},
		&apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}, Spec: apisv1alpha2.APIExportSpec{
			Resources: []apisv1alpha2.ResourceSchema{{Name: "widgets", Group: "example.com", Schema: schemaName, Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}}}},
		}},
	} {
		if err := masters.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConsumersReadBoundSchemas(t *testing.T) {
	shard := shardtesting.Start(t)
	masters := shard.Client(t, shard.Masters(t))
	provider := shard.NewWorkspace(t, "root", "provider").Spec.Cluster
	consumer := shard.NewWorkspace(t, "root", "consumer").Spec.Cluster
	neighbour := shard.NewWorkspace(t, "root", "neighbour").Spec.Cluster
	createExport(t, masters, provider)
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}, Spec: apisv1alpha2.APIBindingSpec{
		Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: provider, Name: "widgets"}},
	}}
	if err := masters.Create(shardtesting.In(t.Context(), consumer), binding); err != nil {
		t.Fatal(err)
	}
	admin, user := shard.Admin(t), shard.User(t)
	virtualPath := func(owner, rest string) string { return "/services/apiresourceschema/" + owner + rest }
	shardtesting.Eventually(t, "the schema is listed", func(context.Context) error {
		if response, body := shardtesting.Send(t, admin, http.MethodGet, virtualPath(consumer, schemasPath+"/"+schemaName), ""); response.StatusCode != http.StatusOK {
			return fmt.Errorf("%d: %s", response.StatusCode, body)
		}
		return nil
	})

	for name, path := range map[string]string{"without clusters": schemasPath, "under its name": "/clusters/" + consumer + schemasPath, "under the wildcard": "/clusters/*" + schemasPath} {
		t.Run("the consumer, "+name, func(t *testing.T) {
			_, body := shardtesting.Send(t, admin, http.MethodGet, virtualPath(consumer, path), "")
			if !strings.Contains(body, `"name":"`+schemaName+`"`) || !strings.Contains(body, `"kcp.io/cluster":"`+provider+`"`) || !strings.Contains(body, `"resourceVersion":"`) {
				t.Errorf("the list is %s", body)
			}
			if _, body := shardtesting.Send(t, admin, http.MethodGet, virtualPath(consumer, path), "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"); !strings.Contains(body, `"kind":"Table"`) {
				t.Errorf("no table: %s", body)
			}
			if response, body := shardtesting.Send(t, admin, http.MethodGet, virtualPath(consumer, path+"?watch=1"), ""); response.StatusCode != http.StatusOK || body != "" {
				t.Errorf("the watch is %d %s", response.StatusCode, body)
			}
		})
	}
	t.Run("discovery describes schemas as that of the shard does", func(t *testing.T) {
		describe := func(path string) metav1.APIResource {
			var list metav1.APIResourceList
			response, body := shardtesting.Send(t, admin, http.MethodGet, path, "")
			if err := json.Unmarshal([]byte(body), &list); err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%d, %v: %s", response.StatusCode, err, body)
			}
			found := list.APIResources[slices.IndexFunc(list.APIResources, func(resource metav1.APIResource) bool { return resource.Name == "apiresourceschemas" })]
			found.Verbs = nil
			return found
		}
		if got, want := describe(virtualPath(consumer, "/apis/apis.kcp.io/v1alpha1")), describe("/clusters/root/apis/apis.kcp.io/v1alpha1"); !reflect.DeepEqual(got, want) || len(got.Categories) == 0 {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
	for name, tc := range map[string]struct {
		config       *rest.Config
		method, path string
		want         int
	}{
		"discovery":                              {admin, http.MethodGet, virtualPath(consumer, "/apis/apis.kcp.io/v1alpha1"), http.StatusOK},
		"OpenAPI":                                {admin, http.MethodGet, virtualPath(consumer, "/openapi/v3/apis/apis.kcp.io/v1alpha1"), http.StatusOK},
		"a schema that is not bound":             {admin, http.MethodGet, virtualPath(consumer, schemasPath+"/v1.others.example.com"), http.StatusNotFound},
		"another workspace without the binding":  {admin, http.MethodGet, virtualPath(neighbour, schemasPath+"/"+schemaName), http.StatusNotFound},
		"other kinds":                            {admin, http.MethodGet, virtualPath(consumer, "/apis/apis.kcp.io/v1alpha1/apibindings"), http.StatusNotFound},
		"other groups":                           {admin, http.MethodGet, virtualPath(consumer, "/api/v1/secrets"), http.StatusNotFound},
		"writing":                                {admin, http.MethodPost, virtualPath(consumer, schemasPath), http.StatusForbidden},
		"deleting":                               {admin, http.MethodDelete, virtualPath(consumer, schemasPath+"/"+schemaName), http.StatusForbidden},
		"writing as masters":                     {shard.Masters(t), http.MethodPost, virtualPath(consumer, schemasPath), http.StatusMethodNotAllowed},
		"a user without access":                  {user, http.MethodGet, virtualPath(consumer, schemasPath), http.StatusForbidden},
		"discovery without access":               {user, http.MethodGet, virtualPath(consumer, "/apis"), http.StatusForbidden},
		"another logical cluster behind":         {admin, http.MethodGet, virtualPath(consumer, "/clusters/"+neighbour+schemasPath), http.StatusForbidden},
		"all consumers":                          {admin, http.MethodGet, virtualPath("*", schemasPath), http.StatusForbidden},
		"a path of workspaces":                   {admin, http.MethodGet, virtualPath("root:consumer", schemasPath), http.StatusForbidden},
		"a logical cluster that does not exist":  {admin, http.MethodGet, virtualPath("nosuchcluster", schemasPath), http.StatusForbidden},
		"one without bindings":                   {shard.Masters(t), http.MethodGet, virtualPath("system:admin", schemasPath), http.StatusNotFound},
		"discovery of one without bindings":      {shard.Masters(t), http.MethodGet, virtualPath("system:admin", "/apis"), http.StatusNotFound},
		"masters at another logical cluster's":   {shard.Masters(t), http.MethodGet, virtualPath(consumer, "/clusters/"+neighbour+schemasPath), http.StatusNotFound},
		"a field selector by name":               {admin, http.MethodGet, virtualPath(consumer, schemasPath+"?fieldSelector=metadata.name%3D"+schemaName), http.StatusOK},
		"the schema in the provider's workspace": {user, http.MethodGet, "/clusters/" + provider + schemasPath + "/" + schemaName, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			if response, body := shardtesting.Send(t, tc.config, tc.method, tc.path, "{}"); response.StatusCode != tc.want {
				t.Errorf("got %d, want %d: %s", response.StatusCode, tc.want, body)
			}
		})
	}
}
