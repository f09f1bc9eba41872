package sharedindex

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/atoll-dev/atoll/internal/etcddial"
)

// DefaultPrefix is the default prefix of all keys.
const DefaultPrefix = "/kcp-index"

// Options are the connection to the shared index. Without servers it is disabled.
type Options struct {
	Servers                   []string
	CAFile, CertFile, KeyFile string
	Prefix                    string
	// Compaction is the interval in which writers remove old revisions; 0 disables it.
	Compaction time.Duration
	// CheckInterval is the interval in which a writer checks whether it was replaced, and a reflector whether etcd
	// has lost data. It has no flag.
	CheckInterval time.Duration
}

// NewOptions returns the defaults: the shared index is disabled.
func NewOptions() *Options {
	return &Options{Prefix: DefaultPrefix, Compaction: 5 * time.Minute, CheckInterval: 10 * time.Second}
}

// Enabled reports whether there is a shared index.
func (o *Options) Enabled() bool { return len(o.Servers) > 0 }

// AddFlags binds the options. usage is a sentence about how the program uses the index.
func (o *Options) AddFlags(fs *pflag.FlagSet, usage string) {
	fs.StringSliceVar(&o.Servers, "shared-index-etcd-servers", o.Servers, "URLs of an etcd with the index of logical clusters and workspaces that shards and front proxies share. "+usage+" Empty: there is none.")
	fs.StringVar(&o.CAFile, "shared-index-etcd-cafile", o.CAFile, "CA of --shared-index-etcd-servers.")
	fs.StringVar(&o.CertFile, "shared-index-etcd-certfile", o.CertFile, "Client certificate for --shared-index-etcd-servers.")
	fs.StringVar(&o.KeyFile, "shared-index-etcd-keyfile", o.KeyFile, "Key of --shared-index-etcd-certfile.")
	fs.StringVar(&o.Prefix, "shared-index-prefix", o.Prefix, "Prefix of the keys of the shared index. Those of a shard lie below <prefix>/<shard name>/.")
}

// AddWriterFlags binds the options of writers.
func (o *Options) AddWriterFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.Compaction, "shared-index-compaction-interval", o.Compaction, "How often old revisions are removed from the etcd of the shared index. 0: never, for an etcd that does so itself.")
}

// Validate returns all errors.
func (o *Options) Validate() []error {
	var errs []error
	for _, server := range o.Servers {
		if u, err := url.Parse(server); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			errs = append(errs, fmt.Errorf("--shared-index-etcd-servers: got %q, want URLs such as https://index-0.index:2379", server))
		}
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		errs = append(errs, fmt.Errorf("--shared-index-etcd-certfile and --shared-index-etcd-keyfile: got one of them (%q, %q), expected both or neither", o.CertFile, o.KeyFile))
	}
	if !o.Enabled() && (o.CAFile != "" || o.CertFile != "") {
		errs = append(errs, errors.New("--shared-index-etcd-servers: got nothing, expected URLs for the given certificates"))
	}
	if o.Compaction < 0 {
		errs = append(errs, fmt.Errorf("--shared-index-compaction-interval: got %s, want 0 or more", o.Compaction))
	}
	if !strings.HasPrefix(o.Prefix, "/") || strings.HasSuffix(o.Prefix, "/") {
		errs = append(errs, fmt.Errorf("--shared-index-prefix: got %q, want one that starts with / and does not end with it", o.Prefix))
	}
	return errs
}

// Connect returns a client that connects in the background and reloads the certificate files. Callers must close it.
func (o *Options) Connect() (*clientv3.Client, error) {
	config := clientv3.Config{
		Endpoints: o.Servers, Logger: zap.NewNop(),
		DialTimeout: 10 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		DialOptions: []grpc.DialOption{etcddial.ConnectParams()},
	}
	if o.CAFile != "" || o.CertFile != "" {
		tls, err := transport.TLSInfo{TrustedCAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile}.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("reading the certificates of the shared index: %w", err)
		}
		config.TLS = tls
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the shared index: %w", err)
	}
	return client, nil
}
