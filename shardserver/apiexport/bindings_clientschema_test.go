package apiexport_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/discovery"
	"k8s.io/kube-openapi/pkg/util/proto"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testTypesForClients reads OpenAPI v2 as clients do that compute server-side apply themselves, Argo CD for one. Every kind that the
// workspace lists has a type, those of bound resources, too. The operator tells Argo CD to read again when the index of
// OpenAPI v3 differs.
func testTypesForClients(t *testing.T, s *env) {
	provider, consumer := s.newProviderAndConsumer()
	widgets := s.newResource("widgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget")
	client := discovery.NewDiscoveryClientForConfigOrDie(shardtesting.At(s.Admin(t), consumer))
	index := func() string {
		content, err := client.RESTClient().Get().AbsPath("/openapi/v3").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	unbound := index()
	s.Bind(t, consumer, provider, "widgets")
	if index() == unbound {
		t.Error("a binding does not change the index of the documents")
	}
	document, err := client.OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	models, err := proto.NewOpenAPIData(document)
	if err != nil {
		t.Fatal(err)
	}
	parser, err := managedfields.NewGVKParser(models, false)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			if kind := version.WithKind(resource.Kind); parser.Type(kind) == nil {
				t.Errorf("%s has no type", kind)
			}
		}
	}
	if kind := (schema.GroupVersionKind{Group: widgets.Group, Version: "v1", Kind: "Widget"}); parser.Type(kind) == nil {
		t.Errorf("%s is bound and has no type", kind)
	}
}
