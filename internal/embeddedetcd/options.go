package embeddedetcd

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// InProcess is the value of --etcd-servers that runs etcd in the process.
const InProcess = "embedded"

// ServersUsage is the help of --etcd-servers.
const ServersUsage = `URLs of etcd 3.5 or newer, separated by commas, or "` + InProcess + `" to run etcd in this process.`

// noFsyncEnv is the environment variable that disables fsync of the embedded etcd. For tests only.
const noFsyncEnv = "UNSAFE_E2E_HACK_DISABLE_ETCD_FSYNC"

// NewConfig returns the defaults of the flags.
func NewConfig() Config {
	return Config{ClientPort: 2379, PeerPort: 2380, ECDSACurve: "P-384", UnsafeNoFsync: os.Getenv(noFsyncEnv) != ""}
}

// AddFlags binds the configuration to flags.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Directory, "embedded-etcd-directory", c.Directory, "Data directory. Default: <root directory>/etcd-server.")
	fs.IntVar(&c.ClientPort, "embedded-etcd-client-port", c.ClientPort, "Client port. 0 picks a free one.")
	fs.IntVar(&c.PeerPort, "embedded-etcd-peer-port", c.PeerPort, "Peer port. 0 picks a free one.")
	fs.StringSliceVar(&c.ListenMetricsURLs, "embedded-etcd-listen-metrics-urls", c.ListenMetricsURLs, "URLs to serve etcd's metrics on.")
	fs.Int64Var(&c.WALSizeBytes, "embedded-etcd-wal-size-bytes", c.WALSizeBytes, "Size of write-ahead log segments. 0: etcd's default.")
	fs.Int64Var(&c.QuotaBackendBytes, "embedded-etcd-quota-backend-bytes", c.QuotaBackendBytes, "Size at which etcd raises its space alarm. 0: etcd's default.")
	fs.BoolVar(&c.ForceNewCluster, "embedded-etcd-force-new-cluster", c.ForceNewCluster, "Start a new one-member cluster from the existing data.")
	fs.StringVar(&c.ECDSACurve, "embedded-etcd-ecdsa-curve", c.ECDSACurve, "Curve of the generated certificates: P-224, P-256, P-384 or P-521.")
}

// Complete reports whether --etcd-servers selects an embedded etcd, and defaults its directory to one below the root
// directory of the server. Errors contain the flag, its value and the expected value.
func (c *Config) Complete(transport storagebackend.TransportConfig, rootDirectory string) (embedded bool, err error) {
	servers := transport.ServerList
	if !slices.Contains(servers, InProcess) {
		for _, server := range servers {
			if u, err := url.Parse(server); err != nil || u.Host == "" {
				return false, fmt.Errorf("--etcd-servers: got %q, want URLs such as https://etcd-0.etcd:2379", server)
			}
		}
		return false, nil
	}
	switch {
	case len(servers) > 1:
		return false, fmt.Errorf("--etcd-servers: got %q, want either %q or URLs", servers, InProcess)
	case transport.TrustedCAFile != "" || transport.CertFile != "" || transport.KeyFile != "":
		return false, fmt.Errorf("--etcd-cafile, --etcd-certfile and --etcd-keyfile are for an etcd outside of this process: give its URLs in --etcd-servers")
	case c.Directory != "":
		return true, nil
	case rootDirectory == "":
		return false, fmt.Errorf("--embedded-etcd-directory: required when --root-directory is empty and --etcd-servers is %q", InProcess)
	}
	c.Directory = filepath.Join(rootDirectory, "etcd-server")
	return true, nil
}

// Connect configures an API server to store its objects in this etcd.
func (s *Server) Connect(transport *storagebackend.TransportConfig) {
	transport.ServerList = []string{s.Endpoint}
	transport.TrustedCAFile, transport.CertFile, transport.KeyFile = s.CAFile, s.CertFile, s.KeyFile
}
