package main

import (
	"os"
	"strings"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
)

func TestMain(m *testing.M) {
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged // one process, many commands
	os.Exit(m.Run())
}

// kcpFlags are the flags of kcp's server.
var kcpFlags = []string{
	"--context=x", "--cache-kubeconfig=cache", "--external-logical-cluster-admin-kubeconfig=external", "--secure-port=6443", "--bind-address=0.0.0.0",
	"--authentication-kubeconfig=a", "--authentication-skip-lookup", "--authentication-tolerate-lookup-failure", "--authentication-token-webhook-cache-ttl=1s",
	"--client-ca-file=ca", "--tls-cert-file=crt", "--tls-private-key-file=key",
	"--requestheader-client-ca-file=ca", "--requestheader-allowed-names=kcp-front-proxy", "--requestheader-username-headers=X-Remote-User",
	"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
	"--audit-policy-file=p", "--audit-log-path=l", "--profiler-address=localhost:6060", "--feature-gates=CacheAPIs=true", "--shard-external-url=https://127.0.0.1:6443", "-v=4",
}

func TestFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments []string
		want      string // part of the error
	}{
		"no shard": {kcpFlags, "--kubeconfig: got nothing, expected a kubeconfig of the shard"},
		"accepted flags with a missing kubeconfig": {append([]string{"--kubeconfig=/does/not/exist"}, kcpFlags...), "--kubeconfig: "},
		"a profiler address that is not loopback":  {[]string{"--kubeconfig=x", "--profiler-address=0.0.0.0:6060"}, "--profiler-address"},
		"an unknown gate":                          {[]string{"--kubeconfig=x", "--feature-gates=Nonsense=true"}, "--feature-gates"},
		"no port":                                  {[]string{"--kubeconfig=x", "--secure-port=0"}, "--secure-port"},
		"a negative limit":                         {[]string{"--kubeconfig=x", "--max-watches-per-user=-1"}, "--max-watches-per-user: got -1"},
		"an unknown flag":                          {[]string{"--nonsense"}, "unknown flag"},
		"an argument":                              {[]string{"start"}, "unknown command"},
		"several errors":                           {[]string{"--secure-port=0"}, "--kubeconfig: got nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := newCommand()
			cmd.SetArgs(tc.arguments)
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		})
	}
}
