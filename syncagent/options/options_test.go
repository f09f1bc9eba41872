package options_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/atoll-dev/atoll/syncagent/options"
)

const kubeconfig = `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"contexts": [{"name": "c", "context": {"cluster": "c"}}], "clusters": [{"name": "c", "cluster": {"server": "SERVER"}}]}`

func write(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(kubeconfig, "SERVER", server)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func parse(t *testing.T, more ...string) (*options.Completed, error) {
	t.Helper()
	o := options.New()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(flags)
	args := []string{
		"--kcp-kubeconfig=" + write(t, "https://kcp.example.com/clusters/root:provider"), "--kubeconfig=" + write(t, "https://service.example.com"),
		"--apiexportendpointslice-ref=certificates", "--namespace=agents",
	}
	if err := flags.Parse(append(args, more...)); err != nil {
		t.Fatal(err)
	}
	return o.Complete()
}

func TestDefaults(t *testing.T) {
	c, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	if c.AgentName != "certificates-syncagent" || c.MetricsAddress != "127.0.0.1:8085" || c.HealthAddress != "" || c.LeaderElection || c.OrphanPolicy != options.KeepOrphans {
		t.Errorf("got %+v", c)
	}
	if !c.Selector.Matches(labels.Set{"any": "thing"}) || !c.Enabled(options.SyncController) {
		t.Error("not all PublishedResources are selected and synced")
	}
	if c.Kcp.Host != "https://kcp.example.com/clusters/root:provider" || c.Service.Host != "https://service.example.com" {
		t.Errorf("got the servers %q and %q", c.Kcp.Host, c.Service.Host)
	}
}

func TestOverrides(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := parse(t, "--kubeconfig-host-override=https://10.0.0.1", "--kubeconfig-ca-file-override="+ca, "--agent-name=own",
		"--disabled-controllers=sync,apiexport", "--published-resource-selector=team=a", "--orphan-policy=Delete")
	if err != nil {
		t.Fatal(err)
	}
	if c.Service.Host != "https://10.0.0.1" || c.Service.CAFile != ca || c.AgentName != "own" || c.OrphanPolicy != options.DeleteOrphans {
		t.Errorf("got %+v, %+v", c, c.Service)
	}
	if c.Enabled(options.SyncController) || c.Enabled(options.APIExportController) || !c.Enabled(options.APIResourceSchemaController) {
		t.Error("the wrong controllers run")
	}
	if c.Selector.Matches(labels.Set{"team": "b"}) {
		t.Error("the selector is ignored")
	}
}

func TestMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"--kcp-kubeconfig=":                             "--kcp-kubeconfig is required",
		"--apiexportendpointslice-ref=":                 "--apiexportendpointslice-ref is required",
		"--namespace=":                                  "--namespace is required",
		"--namespace=Not_valid":                         "--namespace",
		"--agent-name=1st":                              "--agent-name",
		"--published-resource-selector=a in":            "--published-resource-selector",
		"--disabled-controllers=sync,all":               `--disabled-controllers: got "all", expected some of apiexport, apiresourceschema, sync`,
		"--orphan-policy=Drop":                          `--orphan-policy: got "Drop", expected Keep or Delete`,
		"--log-format=text":                             `--log-format: got "text", expected JSON or Console`,
		"--kubeconfig=/does/not/exist":                  "--kubeconfig",
		"--kubeconfig-ca-file-override=/does/not/exist": "--kubeconfig-ca-file-override",
		"--kcp-kubeconfig=" + write(t, "https://kcp.example.com/services/x"): "it has to end with /clusters/",
	} {
		if _, err := parse(t, args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}
