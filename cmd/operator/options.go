package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/internal/buildversion"
)

// defaultImage can be set when the binary is built.
var defaultImage string

// usage is printed before the flags.
const usage = `The operator runs kcp installations as described by RootShard, Shard, CacheServer, FrontProxy, VirtualWorkspace and
Kubeconfig objects, and rolls out changes in order, with health checks. It requires its CustomResourceDefinitions and cert-manager.

Usage:
  operator [flags]

Examples:
  # In a cluster (config/default does that), with several replicas and metrics
  operator --leader-elect --metrics-bind-address=:8443 --default-image=registry.example/atoll:v1

  # On a developer's machine, against the cluster of a kubeconfig
  operator --kubeconfig=kubeconfig --default-image=atoll:dev

Flags:
`

type options struct {
	metricsAddress string
	metricsSecure  bool
	metricsCertDir string
	probeAddress   string
	leaderElect    bool
	http2          bool
	image          string
	argoCD         string
	drillNamespace string
	version        bool
	zap            zap.Options
}

// newFlags returns the flags and what they set.
func newFlags() (*flag.FlagSet, *options) {
	o := &options{image: defaultImage}
	if fromEnv := os.Getenv("ATOLL_DEFAULT_IMAGE"); fromEnv != "" {
		o.image = fromEnv
	}
	fs := flag.NewFlagSet("operator", flag.ContinueOnError)
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), usage)
		fs.PrintDefaults()
	}
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", "0", "Address of the metrics endpoint, for example :8443. 0 turns it off.")
	fs.BoolVar(&o.metricsSecure, "metrics-secure", true, "Serve metrics over TLS, to clients that may read them.")
	fs.StringVar(&o.metricsCertDir, "metrics-cert-path", "", "Directory with tls.crt and tls.key for the metrics endpoint, reloaded when they change. Default: a self-signed certificate is generated at the start.")
	fs.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "Address of /healthz and /readyz. 0 turns them off.")
	fs.BoolVar(&o.leaderElect, "leader-elect", false, "Reconcile only while holding the lease, so that several replicas can run.")
	fs.BoolVar(&o.http2, "enable-http2", false, "Serve metrics over HTTP/2 too.")
	fs.StringVar(&o.image, "default-image", o.image, "repository:tag of the image that servers run where a spec names none. Default: the environment variable ATOLL_DEFAULT_IMAGE, else the image set at build time.")
	fs.StringVar(&o.argoCD, "argocd-namespace", "", "Namespace of Argo CD, in which Kubeconfigs with spec.argoCD are registered as clusters. Users who may create Kubeconfigs can add clusters there. Default: none are.")
	fs.StringVar(&o.drillNamespace, "restore-drill-namespace", "", "Name of the namespace that the operator creates for each drill of a RestoreDrill, and deletes. It needs the rights of config/restore-drill for that name. Default: there are no drills.")
	fs.Func("enabled-controller-groups", `For compatibility with kcp-operator, whose controllers are in two groups. The only value is "config,workload", in any order.`, validateControllerGroups)
	fs.Func("feature-gates", `Name=true|false pairs, for compatibility with kcp-operator. No feature can be enabled; any can be disabled.`, validateFeatureGates)
	fs.BoolVar(&o.version, "version", false, "Print the version and exit.")
	o.zap.BindFlags(fs)
	// Outside of a cluster the credentials are in a file.
	if kubeconfigFlag := flag.CommandLine.Lookup("kubeconfig"); kubeconfigFlag != nil {
		fs.Var(kubeconfigFlag.Value, kubeconfigFlag.Name, kubeconfigFlag.Usage)
	}
	return fs, o
}

func parseFlags(args []string) (*options, desired.Image, error) {
	fs, o := newFlags()
	if err := fs.Parse(args); err != nil {
		return nil, desired.Image{}, err
	}
	if o.version {
		fmt.Println("operator version", buildversion.Long())
		return nil, desired.Image{}, flag.ErrHelp // nothing to run
	}
	if fs.NArg() > 0 {
		return nil, desired.Image{}, fmt.Errorf("unexpected argument %q: there are only flags", strings.Join(fs.Args(), " "))
	}
	if err := o.checkCertificate(); err != nil {
		return nil, desired.Image{}, err
	}
	if problems := validation.IsDNS1123Label(o.argoCD); o.argoCD != "" && len(problems) > 0 {
		return nil, desired.Image{}, fmt.Errorf("--argocd-namespace: got %q, want the name of a namespace: %s", o.argoCD, problems[0])
	}
	if problems := validation.IsDNS1123Label(o.drillNamespace); o.drillNamespace != "" && len(problems) > 0 {
		return nil, desired.Image{}, fmt.Errorf("--restore-drill-namespace: got %q, want the name of a namespace: %s", o.drillNamespace, problems[0])
	}
	if o.image == "" {
		return nil, desired.Image{}, errors.New("--default-image is required: this binary has none built in")
	}
	image, err := desired.ParseImage(o.image)
	if err != nil {
		return nil, desired.Image{}, fmt.Errorf("--default-image: %w", err)
	}
	return o, image, nil
}

// validateControllerGroups accepts the value of existing deployments. kcp-operator can run its groups in two clusters,
// which communicate by compiled objects; this operator has none, so a single group cannot work.
func validateControllerGroups(value string) error {
	groups := strings.Split(value, ",")
	slices.Sort(groups)
	if groups = slices.Compact(groups); !slices.Equal(groups, []string{"config", "workload"}) {
		return errors.New("want config,workload: the controller groups of this operator cannot run separately")
	}
	return nil
}

// validateFeatureGates accepts gates that are disabled: there is no feature to enable.
func validateFeatureGates(value string) error {
	for pair := range strings.SplitSeq(value, ",") {
		name, state, _ := strings.Cut(pair, "=")
		switch on, err := strconv.ParseBool(state); {
		case pair == "":
		case err != nil:
			return fmt.Errorf("got %q, want name=false", pair)
		case on:
			return fmt.Errorf("there is no feature %q to enable", name)
		}
	}
	return nil
}

func (o *options) metricsOptions() metricsserver.Options {
	out := metricsserver.Options{BindAddress: o.metricsAddress, SecureServing: o.metricsSecure, CertDir: o.metricsCertDir}
	if o.metricsSecure {
		out.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	if !o.http2 {
		out.TLSOpts = append(out.TLSOpts, func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} })
	}
	return out
}

// checkCertificate fails early for missing files, for which the endpoint would generate a self-signed certificate.
func (o *options) checkCertificate() error {
	if o.metricsCertDir == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(filepath.Join(o.metricsCertDir, "tls.crt"), filepath.Join(o.metricsCertDir, "tls.key")); err != nil {
		return fmt.Errorf("--metrics-cert-path: %w", err)
	}
	return nil
}
