package options

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

func parseFlags(t *testing.T, args ...string) (*Options, error) {
	t.Helper()
	o := New()
	o.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	var sets cliflag.NamedFlagSets
	o.AddFlags(&sets)
	fs := pflag.NewFlagSet("cache-server", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		fs.AddFlagSet(set)
	}
	return o, fs.Parse(args)
}

func TestOperatorFlagsAreAccepted(t *testing.T) {
	if _, err := parseFlags(t,
		"--tls-cert-file=/etc/cache-server/tls/server/tls.crt", "--tls-private-key-file=/etc/cache-server/tls/server/tls.key",
		"--root-directory=", "--client-ca-file=/etc/cache-server/tls/ca/root/tls.crt", "--embedded-etcd-directory=/var/etcd",
		"--etcd-servers=https://etcd:2379", "--etcd-prefix=/cache", "--etcd-cafile=/etc/cache-server/etcd/ca.crt",
		"--etcd-certfile=/etc/cache-server/etcd/tls.crt", "--etcd-keyfile=/etc/cache-server/etcd/tls.key", "-v=4",
		"--authorization-always-allow-paths=/healthz,/metrics", "--synthetic-delay=1s", "--secure-port=8012",
		"--embedded-etcd-client-port=8010", "--embedded-etcd-peer-port=8011", "--embedded-etcd-wal-size-bytes=5000",
	); err != nil {
		t.Error(err)
	}
}

func TestComplete(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		err  string
	}{
		"no CA":                              {nil, "--client-ca-file: got nothing"},
		"a missing CA":                       {[]string{"--client-ca-file=/nowhere"}, "--client-ca-file: stat /nowhere"},
		"a parent without a name":            {[]string{"--client-ca-file=" + ca, "--parent-kubeconfig=" + ca}, "--cache-name: required"},
		"an invalid name":                    {[]string{"--client-ca-file=" + ca, "--cache-name=A"}, "--cache-name: got \"A\""},
		"an invalid parent kubeconfig":       {[]string{"--client-ca-file=" + ca, "--cache-name=a", "--parent-kubeconfig=" + ca}, "--parent-kubeconfig: "},
		"no shard timeout":                   {[]string{"--client-ca-file=" + ca, "--shard-silence=0s"}, "--shard-silence: got 0s"},
		"embedded and external etcd":         {[]string{"--client-ca-file=" + ca, "--etcd-servers=embedded,https://x:1"}, "--etcd-servers: got"},
		"an invalid etcd URL":                {[]string{"--client-ca-file=" + ca, "--etcd-servers=x"}, "--etcd-servers: got \"x\""},
		"certificates for the embedded etcd": {[]string{"--client-ca-file=" + ca, "--etcd-cafile=" + ca}, "are for an etcd outside"},
		"no directory for the embedded etcd": {[]string{"--client-ca-file=" + ca, "--root-directory="}, "--embedded-etcd-directory: required"},
		"a certificate without a key":        {[]string{"--client-ca-file=" + ca, "--etcd-servers=https://x:1", "--etcd-certfile=" + ca}, "must be given together"},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parseFlags(t, append([]string{"--root-directory=" + t.TempDir()}, tc.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := o.Complete(); err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("the error is %v, want %s", err, tc.err)
			}
		})
	}
	o, err := parseFlags(t, "--root-directory="+t.TempDir(), "--client-ca-file="+ca)
	if err != nil {
		t.Fatal(err)
	}
	config, err := o.Complete()
	if err != nil {
		t.Fatal(err)
	}
	if config.Embedded == nil || config.Embedded.Directory != filepath.Join(o.RootDirectory, "etcd-server") || config.Etcd.StorageConfig.Prefix != "/cache" {
		t.Errorf("etcd is %+v with prefix %s", config.Embedded, config.Etcd.StorageConfig.Prefix)
	}
}
