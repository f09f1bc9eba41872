package options

import (
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// parse parses a command line into options, with loopback addresses and a new root directory.
func parse(t *testing.T, args ...string) (*Options, error) {
	t.Helper()
	o := New(filepath.Join(t.TempDir(), "root"))
	o.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	var sets cliflag.NamedFlagSets
	o.AddFlags(&sets)
	fs := pflag.NewFlagSet("kcp start", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		fs.AddFlagSet(set)
	}
	return o, fs.Parse(args)
}

func TestOperatorFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, arg := range []string{
		"--root-ca-file=" + file, "--client-ca-file=" + file, "--requestheader-client-ca-file=" + file,
		"--requestheader-allowed-names=kcp-front-proxy,kcp-root-shard-proxy", "--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--tls-private-key-file=" + file, "--tls-cert-file=" + file, "--service-account-key-file=" + file,
		"--service-account-private-key-file=" + file, "--service-account-lookup=false", "--remote-service-account-key-file=" + file, "--service-account-key-generations=1,2", "--shard-client-key-file=" + file,
		"--shard-client-cert-file=" + file, "--shard-base-url=https://root-kcp:6443", "--shard-external-url=https://kcp.example.com:6443",
		"--logical-cluster-admin-kubeconfig=" + file, "--external-logical-cluster-admin-kubeconfig=" + file,
		"--batteries-included=workspace-types", "--root-directory=", "--enable-leader-election=true", "--logging-format=json", "-v=4",
		"--etcd-servers=https://etcd:2379", "--etcd-prefix=/registry", "--etcd-certfile=" + file, "--etcd-keyfile=" + file, "--etcd-cafile=" + file,
		"--audit-policy-file=" + file, "--audit-webhook-config-file=" + file, "--audit-webhook-mode=batch", "--oidc-issuer-url=https://issuer",
		"--enable-admission-plugins=apis.kcp.io/ReservedMetadata", "--disable-admission-plugins=kcp.io/PathAnnotation",
		"--root-shard-kubeconfig-file=" + file, "--cache-kubeconfig=" + file, "--cache-server-kubeconfig-file=" + file, "--shard-kubeconfig-file=" + file,
		"--external-hostname=kcp.example.com", "--mount-proxy-client-cert-file=" + file, "--mount-proxy-client-key-file=" + file,
		"--shard-virtual-workspace-ca-file=" + file, "--concurrent-serviceaccount-token-syncs=3", "--shard-max-logical-clusters=10", "--shard-max-objects=10", "--shard-labels=region=eu,tier=gold", "--shard-max-objects-of-another=10", "--max-requests-inflight=800", "--max-mutating-requests-inflight=100",
		"--admission-control-config-file=" + file, "--oidc-client-id=x", "--token-auth-file=" + file, "--authentication-token-webhook-config-file=" + file,
	} {
		if _, err := parse(t, arg); err != nil {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

func TestUnsupportedFlags(t *testing.T) {
	for _, flag := range []string{
		"advertise-address", "enable-priority-and-fairness", "request-timeout", "runtime-config",
		"egress-selector-config-file", "delete-collection-workers", "enable-garbage-collector",
		"default-watch-cache-size", "log-text-split-stream", "service-account-signing-endpoint",
	} {
		if _, err := parse(t, "--"+flag+"=x"); err == nil || !strings.Contains(err.Error(), "unknown flag") {
			t.Errorf("--%s: got %v, want an unknown flag", flag, err)
		}
	}
}

func TestCompleteRejects(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"a non-root shard without a cache":       {[]string{"--shard-name=alpha"}, "--cache-kubeconfig is required for non-root shards"},
		"a non-root shard without a root shard":  {[]string{"--shard-name=alpha", "--cache-kubeconfig=options.go"}, "--root-shard-kubeconfig-file is required"},
		"a non-root shard with identity seeds":   {[]string{"--shard-name=alpha", "--cache-kubeconfig=options.go", "--root-shard-kubeconfig-file=options.go", "--root-identities-file=options.go"}, "--root-identities-file"},
		"an invalid shard name":                  {[]string{"--shard-name=Alpha", "--cache-kubeconfig=options.go", "--root-shard-kubeconfig-file=options.go"}, "--shard-name"},
		"a negative maximum of objects":          {[]string{"--shard-max-objects=-1"}, "--shard-max-objects"},
		"hidden metrics of another version":      {[]string{"--show-hidden-metrics-for-version=1.2"}, "--show-hidden-metrics-for-version"},
		"a metric that is no name":               {[]string{"--disabled-metrics=a b"}, "--disabled-metrics"},
		"no seats for requests":                  {[]string{"--max-requests-inflight=0", "--max-mutating-requests-inflight=0"}, "--max-requests-inflight"},
		"embedded and external etcd at once":     {[]string{"--etcd-servers=embedded,https://etcd:2379"}, "--etcd-servers"},
		"an invalid etcd URL":                    {[]string{"--etcd-servers=etcd"}, "--etcd-servers"},
		"an invalid base URL":                    {[]string{"--shard-base-url=kcp"}, "--shard-base-url"},
		"a plain HTTP external URL":              {[]string{"--shard-external-url=http://kcp"}, "--shard-external-url"},
		"no external URL with admin credentials": {[]string{"--logical-cluster-admin-kubeconfig=x"}, "--shard-external-url"},
		"a free port and a fixed port":           {[]string{"--experimental-bind-free-port"}, "--secure-port=0"},
		"a client certificate without its key":   {[]string{"--shard-client-cert-file=x"}, "--shard-client-key-file"},
		"a missing CA file":                      {[]string{"--root-ca-file=/does/not/exist"}, "--root-ca-file"},
		"a missing admission configuration":      {[]string{"--admission-control-config-file=/does/not/exist"}, "--admission-control-config-file"},
		"a missing client CA":                    {[]string{"--client-ca-file=/does/not/exist"}, "--client-ca-file"},
		"a missing etcd CA":                      {[]string{"--etcd-servers=https://etcd:2379", "--etcd-cafile=/does/not/exist"}, "--etcd-cafile"},
		"credentials for embedded etcd":          {[]string{"--etcd-cafile=/does/not/exist"}, "--etcd-servers"},
		"a feature that is not implemented":      {[]string{"--feature-gates=StorageVersionAPI=true"}, "StorageVersionAPI"},
		"an unknown feature gate":                {[]string{"--feature-gates=Nonsense=true"}, "Nonsense"},
		"an unknown battery":                     {[]string{"--batteries-included=nonsense"}, "nonsense"},
		"more generations than keys":             {[]string{"--service-account-key-generations=1,2"}, "--service-account-key-generations: got 2 generations, expected at most one for each of the 1 files"},
		"a generation before the first":          {[]string{"--service-account-key-generations=0"}, "--service-account-key-generations: got 0, expected numbers of 1 and more"},
		"no keys and no root directory":          {[]string{"--root-directory=", "--embedded-etcd-directory=/nowhere"}, "no serviceaccount key file loaded and no root directory set"},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(t, tc.args...)
			if err == nil {
				_, err = o.Complete()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want an error about %q", err, tc.want)
			}
		})
	}
}

func TestCompleteDefaults(t *testing.T) {
	o, err := parse(t, "--secure-port=7443")
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.Complete()
	if err != nil {
		t.Fatal(err)
	}
	if !c.Embedded || c.Shard.BaseURL != "https://127.0.0.1:7443" || c.Shard.ExternalURL != c.Shard.BaseURL || c.Shard.VirtualWorkspaceURL != c.Shard.BaseURL {
		t.Errorf("embedded %v, URLs %q, %q, %q", c.Embedded, c.Shard.BaseURL, c.Shard.ExternalURL, c.Shard.VirtualWorkspaceURL)
	}
	for _, file := range []string{"sa.key", "apiserver.crt", "apiserver.key"} {
		if _, err := os.Stat(filepath.Join(o.RootDirectory, file)); err != nil {
			t.Error(err)
		}
	}
	info, err := os.Stat(o.RootDirectory)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("root directory: %v, %v", info.Mode(), err)
	}
}

func TestParseBatteries(t *testing.T) {
	for name, tc := range map[string]struct {
		in   []string
		want []string
		err  bool
	}{
		"an empty list disables all":        {nil, []string{}, false},
		"a plain list replaces the default": {[]string{"workspace-types"}, []string{"workspace-types"}, false},
		"plus adds to the default":          {[]string{"+user"}, []string{"admin", "user", "workspace-types"}, false},
		"minus removes from the default":    {[]string{"-admin"}, []string{"workspace-types"}, false},
		"both forms at once are rejected":   {[]string{"+user", "admin"}, nil, true},
		"user needs admin":                  {[]string{"user"}, nil, true},
		"minus admin with plus user":        {[]string{"-admin", "+user"}, nil, true},
		"unknown names are rejected":        {[]string{"x"}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseBatteries(tc.in)
			if (err != nil) != tc.err {
				t.Fatalf("error %v", err)
			}
			if err == nil && !reflect.DeepEqual(got.Names(), tc.want) {
				t.Errorf("got %v, want %v", got.Names(), tc.want)
			}
		})
	}
}

func TestParseFeatureGates(t *testing.T) {
	for name, tc := range map[string]struct {
		in   []string
		want []string // the enabled gates
		err  string
	}{
		"gates of kcp are disabled by default":                {nil, []string{GateCBOR}, ""},
		"an implemented feature can be enabled":               {[]string{"WorkspaceMounts=true"}, []string{GateCBOR, GateWorkspaceMounts}, ""},
		"two features at once":                                {[]string{"WorkspaceMounts=true", "WorkspaceAuthentication=true"}, []string{GateCBOR, GateWorkspaceAuthentication, GateWorkspaceMounts}, ""},
		"the last value takes precedence":                     {[]string{"WorkspaceMounts=true", "WorkspaceMounts=false"}, []string{GateCBOR}, ""},
		"a feature that is not implemented can be disabled":   {[]string{"StorageVersionAPI=false"}, []string{GateCBOR}, ""},
		"the gate of Kubernetes that kcp has can be disabled": {[]string{"StorageVersionAPI=false"}, []string{GateCBOR}, ""},
		"a feature that is not implemented cannot be enabled": {[]string{"StorageVersionAPI=true"}, nil, "does not have the feature"},
		"CBOR can be disabled":                                {[]string{"CBORServingAndStorage=false"}, nil, ""},
		"an unknown gate is rejected":                         {[]string{"X=false"}, nil, "unknown gate"},
		"a gate without a value is rejected":                  {[]string{"WorkspaceMounts"}, nil, "want Name=true"},
	} {
		t.Run(name, func(t *testing.T) {
			on, err := ParseFeatureGates(tc.in)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("got error %v, want %q", err, tc.err)
			}
			completed := Completed{&completed{features: on}}
			for _, gate := range append(knownGates(), "Nonsense") {
				if got, want := completed.FeatureEnabled(gate), slices.Contains(tc.want, gate); got != want {
					t.Errorf("%s: on is %v, want %v", gate, got, want)
				}
			}
		})
	}
}

func TestPeerConfigs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"cache",
"clusters":[{"name":"root","cluster":{"server":"https://root:6443"}},{"name":"cache","cluster":{"server":"https://cache:6443"}}],
"users":[{"name":"me","user":{"token":"secret"}}],
"contexts":[{"name":"shard-base","context":{"cluster":"root"}},{"name":"cache","context":{"cluster":"cache","user":"me"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parse(t, "--root-shard-kubeconfig-file="+file, "--cache-kubeconfig="+file, "--shard-client-cert-file=c", "--shard-client-key-file=k")
	if err != nil {
		t.Fatal(err)
	}
	root, err := o.RootConfig()
	if err != nil || root.Host != "https://root:6443" || root.CertFile != "c" || root.KeyFile != "k" {
		t.Errorf("the root shard, without credentials in the file: %v, %v", root, err)
	}
	cache, err := o.CacheConfig()
	if err != nil || cache.Host != "https://cache:6443" || cache.BearerToken != "secret" || cache.CertFile != "" {
		t.Errorf("the cache, with credentials in the file: %v, %v", cache, err)
	}
	if none, err := New("").CacheConfig(); none != nil || err != nil {
		t.Errorf("no cache: %v, %v", none, err)
	}
	o.Shard.ExternalLogicalClusterAdminKubeconfig = filepath.Join(t.TempDir(), "external")
	if err := os.WriteFile(o.Shard.ExternalLogicalClusterAdminKubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"proxy",
"clusters":[{"name":"proxy","cluster":{"server":"https://proxy:6443"}}],"users":[{"name":"me","user":{"client-certificate":"/not/mounted.crt","client-key":"/not/mounted.key"}}],
"contexts":[{"name":"proxy","context":{"cluster":"proxy","user":"me"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	proxy, err := o.ProxyConfig()
	if err != nil || proxy.Host != "https://proxy:6443" || !hasNoCredentials(proxy) {
		t.Errorf("the front proxy, with credentials whose files do not exist: %v, %v", proxy, err)
	}
	o.Shard.RootKubeconfig = filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(o.Shard.RootKubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","contexts":[{"name":"base","context":{}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := o.RootConfig(); err == nil || !strings.Contains(err.Error(), `has contexts "base", want one called "shard-base"`) {
		t.Errorf("a file without the context: %v", err)
	}
}
