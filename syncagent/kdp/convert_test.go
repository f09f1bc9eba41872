package kdp_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	servicesv1alpha1 "github.com/atoll-dev/atoll/api/kdp/services/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/kdp"
)

var update = flag.Bool("update", false, "write the golden files")

const group = "certificates.example.corp"

func parse(t *testing.T, manifest string) *servicesv1alpha1.PublishedResource {
	t.Helper()
	object := &servicesv1alpha1.PublishedResource{}
	if err := yaml.UnmarshalStrict([]byte(manifest), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// TestConversion compares the converted manifests of the guide with equivalent PublishedResources of the newer dialect.
func TestConversion(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			manifest, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			object := parse(t, string(manifest))
			p := kdp.FromPublishedResource(object, group)
			if len(p.Invalid) > 0 {
				t.Errorf("invalid: %v", p.Invalid)
			}
			if p.Object != object {
				t.Error("the object is not kept")
			}
			got, err := yaml.Marshal(map[string]syncagentv1alpha1.PublishedResourceSpec{"spec": p.Spec})
			if err != nil {
				t.Fatal(err)
			}
			golden := file + ".golden"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestMistakesHaveThePathsOfTheDialect(t *testing.T) {
	const source = "spec:\n  resource: {apiGroup: cert-manager.io, kind: Certificate, version: v1}\n"
	for _, tc := range []struct {
		name, manifest, group string
		refused               []string
	}{
		{"accepts a source alone", source, group, nil},
		{"refuses a group that is not known", source, "", []string{"apiVersion"}},
		{"refuses a version that is none", "spec:\n  resource: {apiGroup: a.b, kind: C, version: V1}", group, []string{"spec.resource.version"}},
		{"refuses a filter that is neither text nor selector", source + "  filter: {namespace: 5}", group, []string{"spec.filter.namespace"}},
		{"refuses a filter with unknown fields", source + "  filter: {namespace: {labels: {a: b}}}", group, []string{"spec.filter.namespace"}},
		{"refuses a reference without path", source + "  related: [{origin: platform, kind: Secret, reference: {name: {path: ''}, namespace: {path: a, regex: {pattern: '('}}}}]", group,
			[]string{"spec.related[0].reference.name.path", "spec.related[0].reference.namespace.regex.pattern"}},
		{"refuses a missing namespace of cluster-scoped objects", source + "  projection: {scope: Cluster}\n  related: [{origin: platform, kind: Secret, reference: {name: {path: a}}}]", group,
			[]string{"spec.related[0].reference.namespace"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, err := range kdp.FromPublishedResource(parse(t, tc.manifest), tc.group).Invalid {
				got = append(got, err.Field)
			}
			if strings.Join(got, " ") != strings.Join(tc.refused, " ") {
				t.Errorf("refused are %v, want %v", got, tc.refused)
			}
		})
	}
}
