package options

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kubeconfigText = `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{"server":"SERVER"}}],"users":[{"name":"a"}],"contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],"current-context":"a"}`

func TestComplete(t *testing.T) {
	write := func(server string) string {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(file, []byte(strings.Replace(kubeconfigText, "SERVER", server, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	workspace, cluster := write("https://kcp.example.org/clusters/root:provider"), write("https://cluster.example.org")
	for name, test := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"good":                     {func(*Options) {}, ""},
		"no kubeconfig":            {func(o *Options) { o.KcpKubeconfig = "" }, "--kcp-kubeconfig: is required"},
		"a missing file":           {func(o *Options) { o.KcpKubeconfig = "/nowhere" }, "--kcp-kubeconfig: "},
		"not of a workspace":       {func(o *Options) { o.KcpKubeconfig = cluster }, "--kcp-kubeconfig: the server is"},
		"a group without domain":   {func(o *Options) { o.Group = "infrastructure" }, "--api-group: got"},
		"no name of an export":     {func(o *Options) { o.Export = "A B" }, "--apiexport: got"},
		"no image for programs":    {func(o *Options) { o.OpenTofu.AllowPrograms = true }, "--opentofu-allow-programs: is used with"},
		"no image for credentials": {func(o *Options) { o.OpenTofu.Namespace = "a" }, "--opentofu-namespace: is used with"},
		"no runtime cluster":       {func(o *Options) { o.RuntimeKubeconfig = "/nowhere" }, "--runtime-kubeconfig: "},
		"no level of security":     {func(o *Options) { o.Tenants.PodSecurity = "strict" }, "--tenant-pod-security: got"},
		"no quantity":              {func(o *Options) { o.Tenants.Quota = "pods" }, "--tenant-quota: got"},
		"no namespace":             {func(o *Options) { o.Tenants.AllowedFrom = []string{"A"} }, "--tenant-network-allow-from: got"},
		"no selector":              {func(o *Options) { o.TemplateSelector = "tier=(" }, "--template-selector: got"},
	} {
		t.Run(name, func(t *testing.T) {
			o := New()
			o.KcpKubeconfig, o.RuntimeKubeconfig = workspace, cluster
			test.change(o)
			completed, err := o.Complete()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if err == nil && (completed.Workspace.QPS >= 0 || completed.Runtime.QPS >= 0) {
				t.Error("clients limit their rate")
			}
		})
	}
}

func TestShippedTemplates(t *testing.T) {
	for name, test := range map[string]struct {
		list []string
		skip string
		none bool
		err  string
	}{
		"all":                    {[]string{"*"}, "", false, ""},
		"all but one":            {[]string{"*", "-redis"}, "false", false, ""},
		"skipped":                {[]string{"*"}, "true", true, ""},
		"empty":                  {nil, "", true, ""},
		"not shipped":            {[]string{"mongo"}, "", true, `--seed-templates: no template "mongo" is shipped`},
		"neither true nor false": {[]string{"*"}, "perhaps", true, SkipSeedTemplates + ": got"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(SkipSeedTemplates, test.skip)
			o := New()
			o.SeedTemplates = test.list
			got, err := o.shipped()
			if (got == nil) != test.none || (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
