package projection_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/projection"
)

// crontabs is a definition of v1alpha1, which is not served, v1beta1, and v1, which is stored.
func crontabs(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "crontabs.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, definition); err != nil {
		t.Fatal(err)
	}
	return definition
}

// parse returns a spec. Its resource is CronTab unless the text sets another one.
func parse(t *testing.T, text string) *syncagentv1alpha1.PublishedResourceSpec {
	t.Helper()
	spec := &syncagentv1alpha1.PublishedResourceSpec{Resource: syncagentv1alpha1.SourceResource{APIGroup: "example.com", Kind: "CronTab"}}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

func schemaOf(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition, spec string) *apisv1alpha1.APIResourceSchema {
	t.Helper()
	projected, err := projection.Project(definition, parse(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	schema, err := projection.Schema(projected, "an-agent")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// summary is the part of a definition that projections change.
type summary struct {
	name, scope, kinds, names, shortNames, categories, versions, storage string
}

func summarize(definition *apiextensionsv1.CustomResourceDefinition) summary {
	names := definition.Spec.Names
	result := summary{
		name: definition.Name, scope: string(definition.Spec.Scope), kinds: names.Kind + " " + names.ListKind, names: names.Singular + " " + names.Plural,
		shortNames: strings.Join(names.ShortNames, " "), categories: strings.Join(names.Categories, " "),
	}
	var versions []string
	for _, version := range definition.Spec.Versions {
		versions = append(versions, version.Name)
		if version.Storage {
			result.storage += version.Name
		}
	}
	result.versions = strings.Join(versions, " ")
	return result
}

func TestProject(t *testing.T) {
	unchanged := summary{
		name: "crontabs.example.com", scope: "Namespaced", kinds: "CronTab CronTabList", names: "crontab crontabs", shortNames: "ct", categories: "all",
		versions: "v1 v1beta1 v1alpha1", storage: "v1",
	}
	with := func(change func(*summary)) summary { result := unchanged; change(&result); return result }
	for name, tc := range map[string]struct {
		spec string
		want summary
	}{
		"without a projection all versions stay, the highest first": {"{}", unchanged},
		"A9: one version is selected":                               {"{resource: {versions: [v1]}}", with(func(s *summary) { s.versions = "v1" })},
		"the older form of selecting one version":                   {"{resource: {version: v1}}", with(func(s *summary) { s.versions = "v1" })},
		"A10: the order of the selection does not matter":           {"{resource: {versions: [v1beta1, v1]}}", with(func(s *summary) { s.versions = "v1 v1beta1" })},
		"selected versions that are not served are left out":        {"{resource: {versions: [v1alpha1, v1]}}", with(func(s *summary) { s.versions = "v1" })},
		"the highest of the remaining versions is stored if the stored one is not selected": {
			"{resource: {versions: [v1beta1]}}", with(func(s *summary) { s.versions, s.storage = "v1beta1", "v1beta1" }),
		},
		"renamed versions are sorted by their new names": {
			"{projection: {versions: {v1: v1alpha3, v1beta1: v2, v1alpha1: v1alpha2}}}",
			with(func(s *summary) { s.versions, s.storage = "v2 v1alpha3 v1alpha2", "v1alpha3" }),
		},
		"new names of versions that do not exist are ignored": {"{projection: {versions: {v7: v8}}}", unchanged},
		"one version is renamed in the older form": {
			"{resource: {version: v1beta1}, projection: {version: v1}}", with(func(s *summary) { s.versions, s.storage = "v1", "v1" }),
		},
		"a kind brings all its names": {
			"{projection: {kind: Zeitplan}}",
			with(func(s *summary) {
				s.name, s.kinds, s.names = "zeitplans.example.com", "Zeitplan ZeitplanList", "zeitplan zeitplans"
			}),
		},
		"a plural of its own": {
			"{projection: {kind: Zeitplan, plural: zeitplaene}}",
			with(func(s *summary) {
				s.name, s.kinds, s.names = "zeitplaene.example.com", "Zeitplan ZeitplanList", "zeitplan zeitplaene"
			}),
		},
		"only the plural": {
			"{projection: {plural: crontables}}", with(func(s *summary) { s.name, s.names = "crontables.example.com", "crontab crontables" }),
		},
		"empty lists remove short names and categories": {
			"{projection: {shortNames: [], categories: []}}", with(func(s *summary) { s.shortNames, s.categories = "", "" }),
		},
		"lists replace short names and categories": {
			"{projection: {shortNames: [zp, z], categories: [mine]}}", with(func(s *summary) { s.shortNames, s.categories = "zp z", "mine" }),
		},
		"another scope": {"{projection: {scope: Cluster}}", with(func(s *summary) { s.scope = "Cluster" })},
		"another group": {"{projection: {group: time.corp.example}}", with(func(s *summary) { s.name = "crontabs.time.corp.example" })},
	} {
		t.Run(name, func(t *testing.T) {
			original := crontabs(t)
			projected, err := projection.Project(original, parse(t, tc.spec))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, summarize(projected), cmp.AllowUnexported(summary{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(crontabs(t), original); diff != "" {
				t.Errorf("the given definition has changed:\n%s", diff)
			}
		})
	}
}

func TestProjectErrors(t *testing.T) {
	for name, tc := range map[string]struct{ spec, want string }{
		"no selected version exists":                {"{resource: {versions: [v3, v4]}}", `spec.resource.versions: Invalid value: "v3, v4": none of them is served; the service cluster serves v1, v1beta1`},
		"the selected version is not served":        {"{resource: {version: v1alpha1}}", "the service cluster serves v1, v1beta1"},
		"both forms of selection":                   {"{resource: {version: v1, versions: [v1]}}", "spec.resource.version: Forbidden: set either version or versions"},
		"both forms of renaming":                    {"{resource: {version: v1}, projection: {version: v1, versions: {v1: v2}}}", "spec.projection.version: Forbidden"},
		"one new name for several versions":         {"{projection: {version: v2}}", "spec.projection.version: Invalid value: \"v2\": 3 versions are published; select one"},
		"two versions get one name":                 {"{projection: {versions: {v1beta1: v2, v1: v2}}}", `"v2": version v1beta1 has this name, too`},
		"a version gets the name of one that stays": {"{projection: {versions: {v1beta1: v1}}}", "has this name, too"},
		"a name that kcp does not allow":            {"{projection: {versions: {v1: latest}}}", "spec.projection.versions[v1]: Invalid value: \"latest\": kcp requires"},
		"a group of Kubernetes":                     {"{projection: {group: apps.k8s.io}}", "spec.projection.group: Invalid value: \"apps.k8s.io\": the group belongs to Kubernetes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := projection.Project(crontabs(t), parse(t, tc.spec))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestProtectedGroupsKeepTheirApproval(t *testing.T) {
	definition := crontabs(t)
	definition.Spec.Group = "batch.k8s.io"
	definition.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "https://example.com/1"}
	for spec, want := range map[string]string{"{}": "https://example.com/1", "{projection: {group: own.example.com}}": ""} {
		schema := schemaOf(t, definition, spec)
		if got := schema.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation]; got != want {
			t.Errorf("%s: the schema's approval is %q, want %q", spec, got, want)
		}
	}
}

// A11: the result contains none of the previous names.
func TestSchemaGolden(t *testing.T) {
	schema := schemaOf(t, crontabs(t), `
resource: {versions: [v1beta1, v1]}
projection: {group: time.corp.example, versions: {v1: v2, v1beta1: v1}, scope: Cluster, kind: Zeitplan, plural: zeitplaene, shortNames: [zp], categories: []}
`)
	got, err := yaml.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "schema.yaml.golden")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got, UPDATE_GOLDEN=1 rewrites the file):\n%s", diff)
	}
}

func TestNamesOfSchemasAreMadeOfTheContent(t *testing.T) {
	nameOf := func(spec string, change func(*apiextensionsv1.CustomResourceDefinition)) string {
		t.Helper()
		definition := crontabs(t)
		change(definition)
		return schemaOf(t, definition, spec).Name
	}
	first := nameOf("{}", func(*apiextensionsv1.CustomResourceDefinition) {})
	for name, change := range map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"nothing":        func(*apiextensionsv1.CustomResourceDefinition) {},
		"the generation": func(d *apiextensionsv1.CustomResourceDefinition) { d.Generation++ },
		"a label":        func(d *apiextensionsv1.CustomResourceDefinition) { d.Labels = map[string]string{"a": "b"} },
		"the conversion": func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter}
		},
		"the order of versions": func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Versions[0], d.Spec.Versions[2] = d.Spec.Versions[2], d.Spec.Versions[0]
		},
	} {
		if got := nameOf("{}", change); got != first {
			t.Errorf("%s changes the name from %s to %s", name, first, got)
		}
	}
	for name, change := range map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"a schema": func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Versions[1].Schema.OpenAPIV3Schema.Description = "other"
		},
		"a short name": func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Names.ShortNames = nil },
	} {
		if got := nameOf("{}", change); got == first {
			t.Errorf("%s does not change the name %s", name, got)
		}
	}
	if got := nameOf("{projection: {scope: Cluster}}", func(*apiextensionsv1.CustomResourceDefinition) {}); got == first {
		t.Errorf("a projection does not change the name %s", got)
	}
}

func TestResources(t *testing.T) {
	for name, tc := range map[string]struct {
		spec, service, workspace string
		status                   bool
	}{
		"the stored version":                     {"{}", "example.com/v1 crontabs CronTab namespaced", "example.com/v1 crontabs CronTab namespaced", true},
		"a version without a status":             {"{resource: {versions: [v1beta1]}}", "example.com/v1beta1 crontabs CronTab namespaced", "example.com/v1beta1 crontabs CronTab namespaced", false},
		"a renamed version":                      {"{projection: {versions: {v1: v3}}}", "example.com/v1 crontabs CronTab namespaced", "example.com/v3 crontabs CronTab namespaced", true},
		"the name of a version that is left out": {"{resource: {version: v1beta1}, projection: {version: v1}}", "example.com/v1beta1 crontabs CronTab namespaced", "example.com/v1 crontabs CronTab namespaced", false},
		"other names": {
			"{projection: {group: a.b, kind: Plan, plural: plaene, scope: Cluster}}", "example.com/v1 crontabs CronTab namespaced", "a.b/v1 plaene Plan", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := parse(t, tc.spec)
			projected, err := projection.Project(crontabs(t), spec)
			if err != nil {
				t.Fatal(err)
			}
			service, workspace := projection.Resources(crontabs(t), projected, spec)
			for side, resource := range map[string]struct {
				got, want string
				status    bool
			}{"service": {describe(service), tc.service, service.HasStatus}, "workspace": {describe(workspace), tc.workspace, workspace.HasStatus}} {
				if resource.got != resource.want || resource.status != tc.status {
					t.Errorf("%s: got %s, status %t; want %s, %t", side, resource.got, resource.status, resource.want, tc.status)
				}
			}
		})
	}
}

func TestObjectsAreSyncedInAServedVersion(t *testing.T) {
	definition := crontabs(t)
	for i := range definition.Spec.Versions {
		definition.Spec.Versions[i].Storage = definition.Spec.Versions[i].Name == "v1alpha1" // not served
	}
	spec := parse(t, "{}")
	projected, err := projection.Project(definition, spec)
	if err != nil {
		t.Fatal(err)
	}
	service, workspace := projection.Resources(definition, projected, spec)
	if service.Version != "v1" || workspace.Version != "v1" {
		t.Errorf("objects are synced in %s and %s, want v1", service.Version, workspace.Version)
	}
}

func describe(resource workspaces.Resource) string {
	text := resource.GroupVersion().String() + " " + resource.Resource + " " + resource.Kind
	if resource.Namespaced {
		text += " namespaced"
	}
	return text
}

func TestRefusedPathsAreLeftOut(t *testing.T) {
	definition := crontabs(t)
	for i := range definition.Spec.Versions {
		definition.Spec.Versions[i].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{
			{Name: "Any", Type: "string", JSONPath: ".spec..image"}, {Name: "Image", Type: "string", JSONPath: ".spec.image"},
		}
	}
	for _, version := range schemaOf(t, definition, "{}").Spec.Versions {
		if columns := version.AdditionalPrinterColumns; len(columns) != 1 || columns[0].Name != "Image" {
			t.Errorf("%s has the columns %v", version.Name, columns)
		}
	}
}
