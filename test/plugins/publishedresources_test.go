package plugins

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

const horseDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: horses.stable.example.org}
spec:
  group: stable.example.org
  names: {kind: Horse, listKind: HorseList, plural: horses, singular: horse, shortNames: [ho]}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {color: {type: string}}}}}}}
  - {name: v1alpha1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

const publishedHorse = `
apiVersion: syncagent.kcp.io/v1alpha1
kind: PublishedResource
metadata: {name: horses}
spec:
  resource: {apiGroup: stable.example.org, kind: Horse, versions: [v1]}
  projection: {group: ponies.example.com, kind: Pony, plural: ponies, shortNames: []}
  related:
  - {identifier: saddle, origin: service, kind: Secret, object: {reference: {path: status.saddle}}}
`

const olderPublishedHorse = `
apiVersion: services.kdp.k8c.io/v1alpha1
kind: PublishedResource
metadata: {name: horses}
spec:
  resource: {apiGroup: stable.example.org, kind: Horse, version: v1}
  projection: {kind: Pferd, plural: Pferde}
`

// testPublishedResources uses a workspace as service cluster.
func testPublishedResources(t *testing.T, i *installation.Installation) {
	config := i.NewWorkspace(t, "services", "owner")
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(horseDefinition), &definition.Object); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	u := newUser(t, i, config)
	file := func(content string) string {
		name := filepath.Join(t.TempDir(), "published.yaml")
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	horses := file(publishedHorse)

	shardtesting.Eventually(t, "horses are served", func(context.Context) error {
		if got := u.kcp("publishedresource validate " + horses); got.err != "" {
			return errors.New(got.out + got.err)
		}
		return nil
	})
	u.expect(u.kcp("pubres validate "+horses), commandOutput{out: "PublishedResource \"horses\" is valid\n"})

	var projected, source apiextensionsv1.CustomResourceDefinition
	u.decode(u.kcp("publishedresource crd "+horses), &projected)
	if projected.Name != "ponies.ponies.example.com" || projected.Spec.Names.Kind != "Pony" || len(projected.Spec.Names.ShortNames) > 0 ||
		len(projected.Spec.Versions) != 1 || projected.Spec.Versions[0].Subresources.Status == nil {
		t.Errorf("the projected definition is %+v", projected)
	}
	if color := projected.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["color"]; color.Type != "string" {
		t.Errorf("the schema has changed: %+v", projected.Spec.Versions[0].Schema.OpenAPIV3Schema)
	}
	u.decode(u.kcp("publishedresource crd --no-projection "+horses), &source)
	if source.Name != "horses.stable.example.org" || len(source.Spec.Versions) != 2 {
		t.Errorf("the source is %+v", source)
	}
	var schema apisv1alpha1.APIResourceSchema
	u.decode(u.kcp("publishedresource crd --ars -o json "+horses), &schema)
	if !strings.HasSuffix(schema.Name, ".ponies.ponies.example.com") || schema.Spec.Names.Kind != "Pony" || len(schema.Labels) > 0 {
		t.Errorf("the schema is %+v", schema)
	}
	if err := c.Create(t.Context(), unstructuredOf(t, u.kcp("publishedresource crd --ars "+horses))); err != nil {
		t.Errorf("the server refuses the schema: %v", err)
	}

	older := file(olderPublishedHorse)
	u.decode(u.kcp("publishedresource crd --service-group stables.example.corp --kubeconfig "+u.kubeconfig+" --context workspace "+older), &projected)
	if projected.Name != "pferde.stables.example.corp" || projected.Spec.Versions[0].Name != "v1" || len(projected.Spec.Versions) != 1 {
		t.Errorf("the older dialect publishes %+v", projected)
	}

	roles := file(strings.NewReplacer("stable.example.org, kind: Horse, versions: [v1]", "rbac.authorization.k8s.io, kind: Role", "Pony", "Permit", "plural: ponies", "plural: permits").Replace(publishedHorse))
	u.decode(u.kcp("publishedresource crd "+roles), &projected)
	if projected.Name != "permits.ponies.example.com" || projected.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["rules"].Type != "array" {
		t.Errorf("a resource without definition is %+v", projected)
	}

	wrong := file(strings.NewReplacer("kind: Secret", "version: v1, resource: saddles", "versions: [v1]", "versions: [v2]").Replace(publishedHorse))
	got := u.kcp("publishedresource validate " + wrong)
	if !strings.Contains(got.out, "spec.resource.versions: Invalid value: \"v2\"") ||
		!strings.Contains(got.out, `spec.related[0]: Not found: "saddles in v1"`) || !strings.HasSuffix(got.err, "has 2 mistakes") {
		t.Errorf("mistakes that only the cluster knows: %+v", got)
	}
	missing := file(strings.Replace(publishedHorse, "kind: Horse", "kind: Unicorn", 1))
	u.expect(u.kcp("publishedresource validate "+missing), commandOutput{
		out: "PublishedResource \"horses\": spec.resource: Not found: \"Unicorn in group \\\"stable.example.org\\\"\"\n", err: missing + " has a mistake"})
}

func (u *user) decode(got commandOutput, object any) {
	u.Helper()
	document, _, _ := strings.Cut(got.out, "\n---\n")
	if err := yaml.UnmarshalStrict([]byte(document), object); got.err != "" || err != nil {
		u.Fatalf("%v in %+v", err, got)
	}
}

func unstructuredOf(t *testing.T, got commandOutput) *unstructured.Unstructured {
	t.Helper()
	document, _, _ := strings.Cut(got.out, "\n---\n")
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}
