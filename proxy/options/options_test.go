package options

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestFlags parses command lines. The first one is that of the operator.
func TestFlags(t *testing.T) {
	required := "--mapping-file=m --shards-kubeconfig=s "
	for name, tc := range map[string]struct {
		line  string
		want  string // part of the error; "" for none
		check func(Options) bool
	}{
		"all flags of the operator": {line: "--secure-port=6443 --root-kubeconfig=k --shards-kubeconfig=k --tls-private-key-file=tls.key --tls-cert-file=tls.crt " +
			"--mapping-file=m.yaml --client-ca-file=ca.crt --requestheader-client-ca-file=rh.crt --requestheader-allowed-names=kcp-front-proxy,kcp-mounts-proxy " +
			"--requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra- " +
			"--authentication-drop-groups=system:masters,x --authentication-pass-on-groups=a,b -v=4 --logging-format=json " +
			"--oidc-issuer-url=https://i --oidc-client-id=c --oidc-groups-claim=g --oidc-username-claim=u --oidc-username-prefix=p --oidc-groups-prefix=q --oidc-ca-file=o.crt " +
			"--authentication-token-webhook-cache-ttl=1m --authentication-token-webhook-version=v1 --authentication-token-webhook-config-file=w " +
			"--token-auth-file=t.csv --service-account-lookup=false --service-account-key-file=a.crt --service-account-key-file=b.crt",
			check: func(o Options) bool {
				return len(o.DropGroups) == 2 && len(o.PassOnGroups) == 2 && len(o.Authentication.ServiceAccounts.KeyFiles) == 2 && !o.Authentication.ServiceAccounts.Lookup && o.SecureServing.BindPort == 6443
			}},
		"the other flags of the contract": {line: required + "--service-account-issuer=https://i --api-audiences=a --cors-allowed-origins=^https://x$ --profiler-address=localhost:6060 --feature-gates=WorkspaceMounts=true --v=3 --root-directory=/d"},
		"the defaults": {line: required, check: func(o Options) bool {
			return o.SecureServing.BindPort == 443 && o.SecureServing.ServerCert.CertDirectory == ".kcp" && o.SecureServing.ServerCert.PairName == "apiserver" &&
				len(o.DropGroups) == 6 && !o.SharedIndex.Enabled() && len(o.Shards) == 0 && len(o.PassOnGroups) == 0 && o.Logs.Verbosity == 2 && o.Authentication.ServiceAccounts == nil
		}},
		"a quoted list": {line: required + `--authentication-drop-groups="system:masters,x"`, check: func(o Options) bool {
			return len(o.DropGroups) == 2 && o.DropGroups[0] == "system:masters" && o.DropGroups[1] == "x"
		}},
		"an empty list drops nothing":             {line: required + `--authentication-drop-groups=""`, check: func(o Options) bool { return len(o.DropGroups) == 0 }},
		"an unknown flag":                         {line: required + "--bogus", want: "unknown flag: --bogus"},
		"no mapping file":                         {line: "--shards-kubeconfig=s", want: "--mapping-file: got nothing"},
		"no shards kubeconfig":                    {line: "--mapping-file=m", want: "--shards-kubeconfig: got nothing"},
		"a certificate without a key":             {line: required + "--tls-cert-file=x", want: "expected both or neither"},
		"no directory for a certificate":          {line: required + "--root-directory=", want: "--root-directory: got nothing"},
		"port 0":                                  {line: required + "--secure-port=0", want: "--secure-port"},
		"an incomplete OIDC configuration":        {line: required + "--oidc-issuer-url=https://x", want: "oidc-client-id"},
		"an unknown gate":                         {line: required + "--feature-gates=Foo=true", want: "unrecognized feature gate: Foo"},
		"a gate of kcp":                           {line: required + "--feature-gates=WorkspaceAuthentication=true,CacheAPIs=false"},
		"a negative number of watches":            {line: required + "--max-watches-per-user=-1", want: "--max-watches-per-user: got -1"},
		"a profiler address that is not loopback": {line: required + "--profiler-address=:6060", want: "expected a loopback host"},
		"no credentials for shards":               {line: "--mapping-file=m", want: "--shards-kubeconfig"},
		"a shared index needs none":               {line: "--mapping-file=m --shared-index-etcd-servers=https://etcd:2379"},
		"an invalid URL of the shared index":      {line: required + "--shared-index-etcd-servers=etcd", want: "--shared-index-etcd-servers"},
		"a subset of shards": {line: required + "--shards=a,b --shard-selector=region=east", check: func(o Options) bool {
			return len(o.Shards) == 2 && o.ShardSelector == "region=east"
		}},
		"an invalid selector": {line: required + "--shard-selector=a==b==c", want: "--shard-selector"},
		"an invalid origin":   {line: required + "--cors-allowed-origins=(", want: "--cors-allowed-origins"},
	} {
		t.Run(name, func(t *testing.T) {
			o := New()
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			o.AddFlags(fs)
			err := fs.Parse(strings.Fields(tc.line))
			var completed CompletedOptions
			if err == nil {
				completed, err = o.Complete()
			}
			if (tc.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			if tc.check != nil && !tc.check(completed.Options) {
				t.Errorf("got %+v", completed.Options)
			}
		})
	}
}
