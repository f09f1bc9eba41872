// Command operator turns RootShards, Shards, FrontProxies and what goes with them into running kcp installations.
package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/cacheserver"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/frontproxy"
	"github.com/atoll-dev/atoll/controllers/kubeconfig"
	"github.com/atoll-dev/atoll/controllers/rollout/gate"
	"github.com/atoll-dev/atoll/controllers/rootshard"
	"github.com/atoll-dev/atoll/controllers/shard"
	"github.com/atoll-dev/atoll/controllers/shardclient"
	"github.com/atoll-dev/atoll/controllers/virtualworkspace"
)

// leaderElectionID is that of existing installations, so that no two operators ever act at once.
const leaderElectionID = "239f9f9a.operator.kcp.io"

// defaultImage can be set when the binary is built.
var defaultImage string

type options struct {
	metricsAddress string
	metricsSecure  bool
	probeAddress   string
	leaderElect    bool
	http2          bool
	image          string
	zap            zap.Options
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "operator:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, desired.Image, error) {
	o := &options{image: defaultImage}
	if fromEnv := os.Getenv("ATOLL_DEFAULT_IMAGE"); fromEnv != "" {
		o.image = fromEnv
	}
	fs := flag.NewFlagSet("operator", flag.ContinueOnError)
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", "0", "Address of the metrics endpoint, for example :8443. 0 turns it off.")
	fs.BoolVar(&o.metricsSecure, "metrics-secure", true, "Serve metrics over TLS, to clients that may read them.")
	fs.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "Address of /healthz and /readyz. 0 turns them off.")
	fs.BoolVar(&o.leaderElect, "leader-elect", false, "Act only while holding the lease, so that several replicas can run.")
	fs.BoolVar(&o.http2, "enable-http2", false, "Serve metrics over HTTP/2 too.")
	fs.StringVar(&o.image, "default-image", o.image, "repository:tag of the image that servers run where a spec names none. Default: ATOLL_DEFAULT_IMAGE from the environment, else what was built in.")
	o.zap.BindFlags(fs)
	// Out of a cluster the operator takes its credentials from a file.
	if kubeconfigFlag := flag.CommandLine.Lookup("kubeconfig"); kubeconfigFlag != nil {
		fs.Var(kubeconfigFlag.Value, kubeconfigFlag.Name, kubeconfigFlag.Usage)
	}
	if err := fs.Parse(args); err != nil {
		return nil, desired.Image{}, err
	}
	if fs.NArg() > 0 {
		return nil, desired.Image{}, fmt.Errorf("unexpected argument %q: everything is set by flags", strings.Join(fs.Args(), " "))
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

func run(args []string) error {
	o, image, err := parse(args)
	if err != nil {
		return err
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&o.zap)))
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, certmanagerv1.AddToScheme, operatorv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("registering types: %w", err)
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	// An installation is some sixty objects; the default of 20 requests a second would stretch its start.
	config.QPS, config.Burst = 100, 200
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                o.metrics(),
		HealthProbeBindAddress: o.probeAddress,
		LeaderElection:         o.leaderElect,
		LeaderElectionID:       leaderElectionID,
		// The process ends with the manager, so the next one need not wait for the lease to run out.
		LeaderElectionReleaseOnCancel: true,
		// Secrets and ConfigMaps of the whole cluster do not belong into this process's memory: they are read when
		// needed, and watched by their metadata.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}}},
	})
	if err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	if err := requireCertManager(mgr.GetRESTMapper()); err != nil {
		return err
	}
	if err := addControllers(mgr, image); err != nil {
		return err
	}
	if err := errors.Join(mgr.AddHealthzCheck("healthz", healthz.Ping), mgr.AddReadyzCheck("readyz", healthz.Ping)); err != nil {
		return fmt.Errorf("setting up probes: %w", err)
	}
	ctrl.Log.Info("starting", "defaultImage", image.String())
	return mgr.Start(ctrl.SetupSignalHandler())
}

func addControllers(mgr ctrl.Manager, image desired.Image) error {
	cluster := apply.Cluster{Client: mgr.GetClient()}
	clients := shardclient.New(cluster)
	cluster.Gate = gate.New(cluster, clients, time.Now)
	recorder := mgr.GetEventRecorder("atoll-operator")
	for name, add := range map[string]func(ctrl.Manager) error{
		"CacheServer": (&cacheserver.Reconciler{Cluster: cluster, Recorder: recorder, Image: image}).SetupWithManager,
		"RootShard":   (&rootshard.Reconciler{Cluster: cluster, Recorder: recorder, Image: image}).SetupWithManager,
		"Shard": (&shard.Reconciler{
			Cluster: cluster, Recorder: recorder, Image: image, Shards: clients, Now: time.Now,
		}).SetupWithManager,
		"VirtualWorkspace": (&virtualworkspace.Reconciler{Cluster: cluster, Recorder: recorder, Image: image}).SetupWithManager,
		"FrontProxy":       (&frontproxy.Reconciler{Cluster: cluster, Recorder: recorder, Image: image}).SetupWithManager,
		"Kubeconfig":       (&kubeconfig.Reconciler{Cluster: cluster, Recorder: recorder, Now: time.Now}).SetupWithManager,
	} {
		if err := add(mgr); err != nil {
			return fmt.Errorf("adding the %s controller: %w", name, err)
		}
	}
	return nil
}

func (o *options) metrics() metricsserver.Options {
	out := metricsserver.Options{BindAddress: o.metricsAddress, SecureServing: o.metricsSecure}
	if o.metricsSecure {
		out.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	if !o.http2 {
		out.TLSOpts = append(out.TLSOpts, func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} })
	}
	return out
}

// requireCertManager says what is missing before the watches fail with less clear words.
func requireCertManager(mapper meta.RESTMapper) error {
	for _, kind := range []string{certmanagerv1.CertificateKind, certmanagerv1.IssuerKind} {
		_, err := mapper.RESTMapping(certmanagerv1.SchemeGroupVersion.WithKind(kind).GroupKind(), certmanagerv1.SchemeGroupVersion.Version)
		if meta.IsNoMatchError(err) {
			return errors.New("cert-manager is not installed (kind " + kind + " is unknown): install it, and this operator starts by itself")
		}
		if err != nil {
			return fmt.Errorf("looking for cert-manager: %w", err)
		}
	}
	return nil
}
