package syncerview

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	const valid = `{"group":"certs.corp","resource":"certs","source":{"group":"cert-manager.io","kind":"Certificate","resource":"certificates","versions":{"v1beta1":"v1"}}}`
	for name, tc := range map[string]struct {
		text string
		want []string // parts of the error; none for a valid text
	}{
		"nothing published":             {`{}`, nil},
		"a resource":                    {`{"resources":[` + valid + `],"related":[{"group":"certs.corp","resource":"profiles"}]}`, nil},
		"a field of a newer agent":      {`{"resources":[],"later":true}`, nil},
		"a source in the core group":    {`{"resources":[{"group":"x.corp","resource":"maps","source":{"kind":"ConfigMap","resource":"configmaps"}}]}`, nil},
		"no JSON":                       {`{`, []string{"metadata.annotations[syncagent.kcp.io/view]"}},
		"too large":                     {`{"later":"` + strings.Repeat("x", MaxSize) + `"}`, []string{"metadata.annotations[syncagent.kcp.io/view]", "Too long"}},
		"a resource twice":              {`{"resources":[` + valid + `,` + strings.Replace(valid, "certificates", "others", 1) + `]}`, []string{"resources[1]", "Duplicate"}},
		"two of one source":             {`{"resources":[` + valid + `,` + strings.Replace(valid, `"certs"`, `"others"`, 1) + `]}`, []string{"resources[1].source", "Duplicate"}},
		"a related one is synced, too":  {`{"resources":[` + valid + `],"related":[{"group":"certs.corp","resource":"certs"}]}`, []string{"related[0]", "Duplicate"}},
		"no kind":                       {`{"resources":[` + strings.Replace(valid, "Certificate", "", 1) + `]}`, []string{"resources[0].source.kind"}},
		"a path as a resource":          {`{"resources":[` + strings.Replace(valid, `"certs"`, `"certs/status"`, 1) + `]}`, []string{"resources[0].resource"}},
		"an identity in a resource":     {`{"resources":[` + strings.Replace(valid, `"certs"`, `"certs:abc"`, 1) + `]}`, []string{"resources[0].resource"}},
		"dots as a group":               {`{"related":[{"group":"..","resource":"profiles"}]}`, []string{"related[0].group"}},
		"two versions become one":       {`{"resources":[` + strings.Replace(valid, `"v1beta1":"v1"`, `"v1beta1":"v1","v2":"v1"`, 1) + `]}`, []string{"versions", "Duplicate"}},
		"a version that is not a label": {`{"resources":[` + strings.Replace(valid, `"v1"`, `"v1/x"`, 1) + `]}`, []string{"resources[0].source.versions[v1beta1]"}},
		"an invalid selector":           {`{"resources":[` + strings.Replace(valid, `"source"`, `"filter":{"namespace":{"matchExpressions":[{"key":"a","operator":"Near"}]}},"source"`, 1) + `]}`, []string{"resources[0].filter.namespace.matchExpressions[0].operator"}},
	} {
		t.Run(name, func(t *testing.T) {
			view, err := Parse(tc.text)
			if (err == nil) != (len(tc.want) == 0) || (err == nil) != (view != nil) {
				t.Fatalf("got %v, %v", view, err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %v", want, err)
				}
			}
		})
	}
}

func TestVersions(t *testing.T) {
	source := Source{Versions: map[string]string{"v1beta1": "v1"}}
	for version, want := range map[string]string{"v1": "v1beta1", "v2": "v2", "v1beta1": ""} {
		got, ok := source.WorkspaceVersionOf(version)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%s in workspaces: %q, %v", version, got, ok)
		}
		if ok && source.VersionOf(got) != version {
			t.Errorf("%s becomes %s", got, source.VersionOf(got))
		}
	}
}

func TestURL(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://shard:6443/services/apiexport/abc123/certs":                "https://shard:6443/services/syncer/abc123:certs",
		"https://shard:6443/services/apiexport/abc123/certs/":               "https://shard:6443/services/syncer/abc123:certs",
		"https://vw/prefix/services/apiexport/abc123/certs.corp":            "https://vw/prefix/services/syncer/abc123:certs.corp",
		"https://shard:6443/services/apiexport/abc123":                      "",
		"https://shard:6443/services/apiexport/abc123/certs/clusters/other": "",
		"https://shard:6443/services/apiexport/root:org/certs":              "",
		"https://shard:6443/services/replication/abc123/certs":              "",
	} {
		if got, ok := URL(endpoint); got != want || ok != (want != "") {
			t.Errorf("%s: got %q, %v", endpoint, got, ok)
		}
	}
}
