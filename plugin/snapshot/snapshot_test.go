package snapshot_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/plugin"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/snapshot"
)

const definitionsFile = "testdata/definitions.yaml"

// run runs "kubectl kcp crd" and returns its output. There is no kubeconfig: none is needed.
func run(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "missing"))
	var out, errOut bytes.Buffer
	cmd := plugin.NewRootCommand("kubectl kcp crd", connection.NewFlags(genericiooptions.IOStreams{In: strings.NewReader(input), Out: &out, ErrOut: &errOut}), snapshot.NewCommand)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

func TestSnapshotGolden(t *testing.T) {
	for _, format := range []string{"yaml", "json"} {
		t.Run(format, func(t *testing.T) {
			got, err := run(t, "", "snapshot", "-f", definitionsFile, "--prefix", "today", "-o", format)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "schemas."+format+".golden")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got, UPDATE_GOLDEN=1 rewrites the file):\n%s", diff)
			}
		})
	}
}

func TestSnapshotFormatsAreEquivalent(t *testing.T) {
	names := func(output string) (all []string) {
		for _, document := range strings.Split(output, "\n---\n") {
			var schema apisv1alpha1.APIResourceSchema
			if err := yaml.UnmarshalStrict([]byte(document), &schema); err != nil {
				t.Fatal(err)
			}
			if schema.Name != "" {
				all = append(all, schema.Name)
			}
		}
		return all
	}
	want := []string{"today.cowboys.wildwest.dev", "today.saloons.town.k8s.io"}
	for _, format := range []string{"yaml", "json"} {
		output, err := run(t, "", "snapshot", "-f", definitionsFile, "--prefix", "today", "-o", format)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, names(output)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", format, diff)
		}
	}
}

// newDefinition returns a definition as JSON, with some fields of its spec replaced, or removed if nil.
func newDefinition(t *testing.T, changes map[string]any) string {
	t.Helper()
	spec := map[string]any{
		"group": "wildwest.dev", "scope": "Namespaced", "names": map[string]any{"kind": "Cowboy", "plural": "cowboys"},
		"versions": []any{newVersion("v1", true)},
	}
	for field, value := range changes {
		spec[field] = value
	}
	content, err := json.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "cowboys.wildwest.dev"}, "spec": spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func newVersion(name string, storage bool) map[string]any {
	return map[string]any{"name": name, "served": true, "storage": storage, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}
}

func TestSnapshotFromStdin(t *testing.T) {
	for name, tc := range map[string]struct{ input, want string }{
		"a definition as JSON":           {newDefinition(t, nil), "name: v7.cowboys.wildwest.dev"},
		"a list, as kubectl get -o yaml": {`{"apiVersion": "v1", "kind": "List", "items": [` + newDefinition(t, nil) + `]}`, "name: v7.cowboys.wildwest.dev"},
		"the core group has a name in names": {
			newDefinition(t, map[string]any{"group": ""}), "name: v7.cowboys.core",
		},
		"several versions need a conversion, which definitions have by default": {
			newDefinition(t, map[string]any{"versions": []any{newVersion("v1", true), newVersion("v2", false)}}), "strategy: None",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := run(t, tc.input, "snapshot", "-f", "-", "--prefix", "v7")
			if err != nil || !strings.Contains(got, tc.want) || strings.Count(got, "\n---\n") != 1 {
				t.Errorf("got %v, want %q once in\n%s", err, tc.want, got)
			}
		})
	}
}

func TestSnapshotErrors(t *testing.T) {
	stdinArgs := []string{"snapshot", "-f", "-", "--prefix", "p"}
	service := map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"}, "clientConfig": map[string]any{"service": map[string]any{"name": "s", "namespace": "n"}},
	}}
	for name, tc := range map[string]struct {
		args  []string
		input string
		want  string
	}{
		"no file":                  {[]string{"snapshot", "--prefix", "p"}, "", "--filename is required"},
		"no prefix":                {[]string{"snapshot", "-f", "x"}, "", "--prefix is required"},
		"another format":           {[]string{"snapshot", "-f", "x", "--prefix", "p", "-o", "xml"}, "", `invalid value "xml" for --output; valid values are json, yaml`},
		"a missing file":           {[]string{"snapshot", "-f", "testdata/none.yaml", "--prefix", "p"}, "", "open testdata/none.yaml: no such file or directory"},
		"an empty stream":          {stdinArgs, "# nothing\n", "standard input holds no CustomResourceDefinition"},
		"another kind":             {stdinArgs, "{apiVersion: v1, kind: ConfigMap}", "reading standard input: document 1: want a CustomResourceDefinition of apiextensions.k8s.io/v1, not a ConfigMap of v1"},
		"an old definition":        {stdinArgs, "{apiVersion: apiextensions.k8s.io/v1beta1, kind: CustomResourceDefinition}", "reading standard input: document 1: want a CustomResourceDefinition of apiextensions.k8s.io/v1, not a CustomResourceDefinition of apiextensions.k8s.io/v1beta1"},
		"an object without a kind": {stdinArgs, "a: b", "reading standard input: document 1: the object has no apiVersion and kind"},
		"a webhook's service":      {stdinArgs, newDefinition(t, map[string]any{"conversion": service}), `making a schema of CustomResourceDefinition "cowboys.wildwest.dev": spec.conversion.webhook.clientConfig.service: workspaces have no services; give the webhook a url`},
		"unknown fields":           {stdinArgs, newDefinition(t, map[string]any{"preserveUnknownFields": true}), `making a schema of CustomResourceDefinition "cowboys.wildwest.dev": spec.preserveUnknownFields: schemas are structural; use x-kubernetes-preserve-unknown-fields in the schema instead`},
		"no schema in a version":   {stdinArgs, newDefinition(t, map[string]any{"versions": []any{map[string]any{"name": "v1"}}}), `making a schema of CustomResourceDefinition "cowboys.wildwest.dev": version "v1": has no schema`},
		"no versions":              {stdinArgs, newDefinition(t, map[string]any{"versions": []any{}}), `making a schema of CustomResourceDefinition "cowboys.wildwest.dev": spec.versions is empty`},
		"arguments":                {[]string{"snapshot", "x"}, "", `unknown command "x" for "kubectl kcp crd snapshot"`},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, tc.input, tc.args...)
			if err == nil || err.Error() != tc.want {
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
			if out != "" {
				t.Errorf("printed %q", out)
			}
		})
	}
}
