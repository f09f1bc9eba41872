package syncagent

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/atoll-dev/atoll/syncagent"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/test/installation"
)

// Objects that flags name must exist when the agent starts; errors name the flag and include the remedy.
func TestTheAgentDoesNotStartWithoutWhatItsFlagsName(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for name, test := range map[string]struct {
		change func(*options.Options)
		want   string
	}{
		"a namespace that does not exist": {func(o *options.Options) { o.Namespace = "absent" }, `--namespace: the service cluster has no namespace "absent": create it`},
		"a slice that does not exist":     {func(o *options.Options) { o.EndpointSlice = "absent" }, `--apiexportendpointslice-ref: there is no APIExportEndpointSlice "absent"`},
		"a service cluster that refuses the credentials": {func(o *options.Options) {
			installation.WriteKubeconfig(t, e.cluster.User(t, e.cluster.Config.Host, "nobody"), o.Kubeconfig)
		}, "--kubeconfig: the service cluster refuses these credentials"},
		"a workspace that refuses the credentials": {func(o *options.Options) {
			installation.WriteKubeconfig(t, e.User(t, e.ProviderPath, "nobody"), o.KcpKubeconfig)
		}, "--kcp-kubeconfig: kcp refuses these credentials"},
		"a service cluster that does not answer": {func(o *options.Options) { o.HostOverride = "https://127.0.0.1:1" }, "--kubeconfig: the service cluster at https://127.0.0.1:1 does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			o := e.Options(t)
			test.change(o)
			completed, err := o.Complete()
			if err != nil {
				t.Fatal(err)
			}
			err = syncagent.Run(t.Context(), syncagent.Config{Options: completed, Log: logr.Discard()})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
