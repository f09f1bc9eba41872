package services

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	kdpcorev1alpha1 "github.com/atoll-dev/atoll/api/kdp/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/kubeconfig"
)

// Options are the flags of the command.
type Options struct {
	Kubeconfig     string
	ServerURL      string
	ServerCAFile   string
	LeaderElection bool
	MetricsAddress string
	HealthAddress  string
}

// NewOptions returns the defaults.
func NewOptions() *Options { return &Options{MetricsAddress: "127.0.0.1:8085"} }

// AddFlags adds the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"kubeconfig of an administrator of the workspace with the Services; its server URL contains /clusters/ (required)")
	flags.StringVar(&o.ServerURL, "agent-server", o.ServerURL,
		"address at which agents reach the installation, such as https://kcp.example.com:6443; by default, that of the kubeconfig")
	flags.StringVar(&o.ServerCAFile, "agent-server-ca-file", o.ServerCAFile,
		"file with the certificate authorities of that address; by default, those of the kubeconfig")
	flags.BoolVar(&o.LeaderElection, "enable-leader-election", o.LeaderElection, "let one of several replicas work; the lease is in namespace default of the workspace")
	flags.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress, "host and port of /metrics; 0 switches it off")
	flags.StringVar(&o.HealthAddress, "health-address", o.HealthAddress, "host and port of /readyz and /healthz; off by default")
}

// NewCommand returns "sync-agent services".
func NewCommand() *cobra.Command {
	o := NewOptions()
	cmd := &cobra.Command{
		Use:   "services",
		Short: "Offer the Services of an organisation to its workspaces",
		Long: `Turns each Service (core.kdp.k8c.io) of a workspace into an APIExport of the same name, and into a Secret with a kubeconfig
for the agent that publishes resources in the API group of the Service.`,
		Example: `  # the definition of Services, in the workspace of the organisation
  kubectl apply -f config/sync-agent/kdp/core.kdp.k8c.io_services.yaml

  sync-agent services --kubeconfig=organisation.kubeconfig --agent-server=https://kcp.example.com:6443`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, server, err := o.Complete()
			if err != nil {
				return err
			}
			return Run(cmd.Context(), config, server, o)
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}

// Complete returns the configuration of clients for the workspace, and the address at which agents reach it.
func (o *Options) Complete() (*rest.Config, Server, error) {
	if o.Kubeconfig == "" {
		return nil, Server{}, errors.New("--kubeconfig is required")
	}
	config, err := kubeconfig.Load(o.Kubeconfig, "")
	if err != nil {
		return nil, Server{}, fmt.Errorf("--kubeconfig: %w", err)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, Server{}, fmt.Errorf("--kubeconfig: %w", err)
	}
	workspace, err := url.Parse(config.Host)
	if err != nil || !strings.Contains(workspace.Path, "/clusters/") {
		return nil, Server{}, fmt.Errorf("--kubeconfig: its server %q is no URL of a workspace, which contains /clusters/", config.Host)
	}
	server := Server{URL: config.Host, CA: config.CAData}
	if o.ServerURL != "" {
		external, err := url.Parse(o.ServerURL)
		if err != nil || external.Scheme != "https" || external.Host == "" || strings.Trim(external.Path, "/") != "" {
			return nil, Server{}, fmt.Errorf("--agent-server: got %q, expected https://<host>[:<port>]", o.ServerURL)
		}
		external.Path = workspace.Path
		server.URL = external.String()
	}
	if o.ServerCAFile != "" {
		if server.CA, err = os.ReadFile(o.ServerCAFile); err != nil {
			return nil, Server{}, fmt.Errorf("--agent-server-ca-file: %w", err)
		}
	}
	return config, server, nil
}

// Run runs the controller until the context ends.
func Run(ctx context.Context, config *rest.Config, server Server, o *Options) error {
	scheme := runtime.NewScheme()
	for _, register := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, rbacv1.AddToScheme, apisv1alpha1.AddToScheme, kdpcorev1alpha1.AddToScheme,
	} {
		if err := register(scheme); err != nil {
			return err
		}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         cacheOptions(),
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress:        o.HealthAddress,
		LeaderElection:                o.LeaderElection,
		LeaderElectionID:              "services." + kdpcorev1alpha1.GroupName,
		LeaderElectionNamespace:       corev1.NamespaceDefault,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	if _, err := mgr.GetRESTMapper().RESTMapping(kdpcorev1alpha1.SchemeGroupVersion.WithKind("Service").GroupKind()); err != nil {
		if meta.IsNoMatchError(err) {
			return fmt.Errorf("the workspace has no services.%s; apply their definition first", kdpcorev1alpha1.GroupName)
		}
		return fmt.Errorf("looking up services.%s in the workspace: %w", kdpcorev1alpha1.GroupName, err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := add(mgr, server); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// cacheOptions restricts the cache to Services and to the objects that the controller creates for them.
func cacheOptions() cache.Options {
	managed := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{kdpcorev1alpha1.ManagedLabelKey: "true"})}
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&apisv1alpha1.APIExport{}: managed, &corev1.ServiceAccount{}: managed, &corev1.Secret{}: managed,
		&rbacv1.ClusterRole{}: managed, &rbacv1.ClusterRoleBinding{}: managed,
	}}
}
