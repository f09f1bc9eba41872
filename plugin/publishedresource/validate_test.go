package publishedresource_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/atoll-dev/atoll/plugin"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/publishedresource"
)

// run runs "kubectl kcp publishedresource". There is no kubeconfig.
func run(t *testing.T, input string, args ...string) (output, message string) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "missing"))
	var out, errOut bytes.Buffer
	cmd := plugin.NewRootCommand("kubectl kcp publishedresource", connection.NewFlags(genericiooptions.IOStreams{In: strings.NewReader(input), Out: &out, ErrOut: &errOut}), publishedresource.NewCommand)
	cmd.SilenceErrors = true
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		message = err.Error()
	}
	return out.String(), message
}

const (
	newer = "apiVersion: syncagent.kcp.io/v1alpha1\nkind: PublishedResource\nmetadata: {name: a}\n"
	older = "apiVersion: services.kdp.k8c.io/v1alpha1\nkind: PublishedResource\nmetadata: {name: b}\n"
	valid = newer + "spec: {resource: {apiGroup: example.com, kind: Thing}}\n"
)

func TestValidateOffline(t *testing.T) {
	offline := []string{"validate", "--offline", "-"}
	for name, tc := range map[string]struct {
		args               []string
		input, out, failed string
	}{
		"a valid one": {offline, valid, "PublishedResource \"a\" is valid\n", ""},
		"every mistake of every object": {append(offline, "--service-group=example.corp"),
			newer + "spec: {resource: {apiGroup: example.com, kind: Thing, version: v1, versions: [v1]}, naming: {name: A}}\n---\n" +
				valid + "---\n" + older + "spec: {resource: {apiGroup: example.com, kind: Thing, version: v1}, related: [{origin: platform, kind: Secret, reference: {name: {path: ''}}}]}",
			`PublishedResource "a": spec.resource.versions: Forbidden: version and versions exclude each other
PublishedResource "a": spec.naming.name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
PublishedResource "a" is valid
PublishedResource "b": spec.related[0].reference.name.path: Required value
`, "standard input has 3 mistakes"},
		"one mistake": {offline, newer + "spec: {resource: {apiGroup: '', kind: ConfigMap}}", "PublishedResource \"a\": spec.projection.group: Required value: resources of the core group are published in another group\n", "standard input has a mistake"},
		"an annotation that is no list of names": {append(offline, "--service-group=example.corp"),
			strings.Replace(valid, "{name: a}", "{name: a, annotations: {syncagent.kcp.io/allowed-namespaces: 'shared, a.b'}}", 1) +
				"---\n" + strings.Replace(older, "{name: b}", "{name: b, annotations: {syncagent.kcp.io/allowed-namespaces: '*'}}", 1) +
				"spec: {resource: {apiGroup: example.com, kind: Thing, version: v1}}",
			`PublishedResource "a": metadata.annotations[syncagent.kcp.io/allowed-namespaces]: Invalid value: "a.b": must not contain dots
PublishedResource "b": metadata.annotations[syncagent.kcp.io/allowed-namespaces]: Invalid value: "*": allows everything; write a prefix before the asterisk
`, "standard input has 2 mistakes"},
		"a list":          {offline, `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "syncagent.kcp.io/v1alpha1", "kind": "PublishedResource", "metadata": {"name": "a"}, "spec": {"resource": {"apiGroup": "a.b", "kind": "C"}}}]}`, "PublishedResource \"a\" is valid\n", ""},
		"unknown fields":  {offline, newer + "spec: {resource: {apiGroup: a, kind: B, group: a}, filters: {}}", "", "reading standard input: document 1: unknown field \"spec.filters\"\nunknown field \"spec.resource.group\""},
		"another type":    {offline, newer + "spec: {enableWorkspacePaths: maybe}", "", "reading standard input: document 1: json: cannot unmarshal string into Go struct field PublishedResourceSpec.spec.enableWorkspacePaths of type bool"},
		"another kind":    {offline, "{apiVersion: v1, kind: Secret}", "", "reading standard input: document 1: want a PublishedResource of syncagent.kcp.io/v1alpha1 or services.kdp.k8c.io/v1alpha1, not a Secret of v1"},
		"no group":        {offline, older + "spec: {}", "", "reading standard input: document 1: --service-group is required for a PublishedResource of services.kdp.k8c.io/v1alpha1"},
		"nothing":         {offline, "# nothing\n", "", "standard input holds no PublishedResource"},
		"no file":         {[]string{"validate"}, "", "", "accepts 1 arg(s), received 0"},
		"a missing file":  {[]string{"validate", "none.yaml"}, "", "", "open none.yaml: no such file or directory"},
		"another format":  {[]string{"crd", "-o", "xml", "-"}, valid, "", `invalid value "xml" for --output; valid values are json, yaml`},
		"no server":       {[]string{"crd", "-"}, valid, "", `current "" context not found`},
		"no server given": {[]string{"validate", "-"}, valid, "", `current "" context not found`},
	} {
		t.Run(name, func(t *testing.T) {
			out, failed := run(t, tc.input, tc.args...)
			if diff := cmp.Diff([]string{tc.out, tc.failed}, []string{out, failed}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
