package infrastructure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/catalogue"
	"github.com/atoll-dev/atoll/infrastructure/seed"
	"github.com/atoll-dev/atoll/infrastructure/template"
	"github.com/atoll-dev/atoll/infrastructure/template/removal"
	"github.com/atoll-dev/atoll/infrastructure/web"
)

const (
	// leaseName is the name of the lease that replicas share.
	leaseName = "infrastructure-provider"
	// ensureInterval is how often the provider reconciles its own workspace.
	ensureInterval = 5 * time.Minute
	// cleanInterval is how often the provider removes what Templates do not use.
	cleanInterval = 30 * time.Second
	// schemaGrace is how long the provider retains a schema without bindings.
	schemaGrace = 10 * time.Minute
)

// Config configures a provider.
type Config struct {
	// Workspace is the client configuration of the provider's workspace.
	Workspace *rest.Config
	Catalogue catalogue.Options
	Backends  *backend.Registry
	Instances template.Instances
	// Shipped are the Templates that the provider creates and updates in its workspace; if nil, it creates and deletes none.
	Shipped []infrastructurev1alpha1.Template
	// LeaderElectionNamespace is the namespace, in the provider's workspace, of the lease that replicas share; empty means one replica.
	LeaderElectionNamespace string
	// MetricsAddress and HealthAddress are the addresses that the manager serves metrics and health checks on; "0" means none.
	MetricsAddress, HealthAddress string
	// Web serves the portal and the MCP server on every replica; nil means none.
	Web *web.Server
	Log logr.Logger
}

// NewScheme returns the types that the provider reads and writes, with Templates in an API group.
func NewScheme(group string) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, apisv1alpha1.AddToScheme, apisv1alpha2.AddToScheme, cachev1alpha1.AddToScheme, corev1alpha1.AddToScheme,
		infrastructurev1alpha1.AddGroupToScheme(group),
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// Run serves the catalogue until the context ends. It returns an error if it cannot, or if a backend returns early.
func Run(ctx context.Context, cfg Config) error {
	ctrl.SetLogger(cfg.Log)
	scheme := NewScheme(cfg.Catalogue.Group)
	direct, err := client.New(cfg.Workspace, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connecting to the workspace of the provider: %w", err)
	}
	holder := &removal.Protection{Client: direct, Live: direct, Group: cfg.Catalogue.Group, Export: cfg.Catalogue.Export}
	if cfg.LeaderElectionNamespace != "" {
		holder.Lease = client.ObjectKey{Namespace: cfg.LeaderElectionNamespace, Name: leaseName}
	}
	cfg.Log.Info("Bringing up the catalogue", "group", cfg.Catalogue.Group, "export", cfg.Catalogue.Export)
	if err := catalogue.Ensure(ctx, direct, cfg.Catalogue); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		// If the workspace is being deleted, its CRDs may be gone already, and objects that depend on them may still have finalizers.
		_, released := holder.Reconcile(ctx, ctrl.Request{})
		return fmt.Errorf("bringing up the catalogue: %w", errors.Join(err, released))
	}
	skipNames := true // each test runs a provider of that name
	mgr, err := ctrl.NewManager(cfg.Workspace, manager.Options{
		Scheme: scheme, Logger: cfg.Log,
		Cache:                         cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Controller:                    config.Controller{SkipNameValidation: &skipNames},
		Metrics:                       metricsserver.Options{BindAddress: cfg.MetricsAddress},
		HealthProbeBindAddress:        cfg.HealthAddress,
		LeaderElection:                cfg.LeaderElectionNamespace != "",
		LeaderElectionNamespace:       cfg.LeaderElectionNamespace,
		LeaderElectionID:              leaseName,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("building the manager: %w", err)
	}
	for _, add := range []func(string, healthz.Checker) error{mgr.AddHealthzCheck, mgr.AddReadyzCheck} {
		if err := add("ping", healthz.Ping); err != nil {
			return err
		}
	}
	templates := &template.Reconciler{
		Client: mgr.GetClient(), Live: direct, Group: cfg.Catalogue.Group, Export: cfg.Catalogue.Export,
		Selector: cfg.Catalogue.Selector, Backends: cfg.Backends, Instances: cfg.Instances, Events: mgr.GetEventRecorder("infrastructure-provider"),
	}
	if err := templates.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("adding the controller of templates: %w", err)
	}
	holder.Client = mgr.GetClient()
	if err := holder.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("adding the controller of what templates need: %w", err)
	}
	catalogues := &catalogue.Reconciler{Client: direct, Options: cfg.Catalogue, Instances: cfg.Instances}
	if err := catalogues.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("adding the controller of catalogues: %w", err)
	}
	cleaner := &removal.Cleaner{
		Client: direct, Group: cfg.Catalogue.Group, Export: cfg.Catalogue.Export, Instances: cfg.Instances, Events: templates.Events,
		Grace: schemaGrace, Log: cfg.Log,
	}
	tasks := []manager.Runnable{
		repair(direct, cfg),
		regularly("remove what templates no longer need", cfg.Log, cleanInterval, cleaner.Clean),
		regularly("retire versions of templates", cfg.Log, cleanInterval, cleaner.Retire),
	}
	if cfg.Shipped != nil {
		tasks = append(tasks, createShipped(direct, cfg))
	}
	if cfg.Web != nil {
		if err := mgr.Add(cfg.Web); err != nil {
			return err
		}
	}
	for _, name := range cfg.Backends.Names() {
		b, _ := cfg.Backends.Get(name)
		tasks = append(tasks, run(b, cfg))
	}
	for _, task := range tasks {
		if err := mgr.Add(task); err != nil {
			return err
		}
	}
	return mgr.Start(ctx)
}

// run returns a leader-only runnable for a backend. A backend that returns early ends the process, so that it restarts.
func run(b backend.Backend, cfg Config) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		err := b.Run(ctx, rest.CopyConfig(cfg.Workspace))
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("backend %q ended: %w", b.Name(), err)
	})
}

// repair returns a leader-only runnable that repairs the provider's workspace.
func repair(c client.Client, cfg Config) manager.Runnable {
	return regularly("repair the catalogue", cfg.Log, ensureInterval, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, ensureInterval) // Ensure waits for servers
		defer cancel()
		return catalogue.Ensure(ctx, c, cfg.Catalogue)
	})
}

// createShipped returns a leader-only runnable that reconciles the shipped Templates.
func createShipped(c client.Client, cfg Config) manager.Runnable {
	seeder := &seed.Seeder{Client: c, Group: cfg.Catalogue.Group, Templates: cfg.Shipped, Instances: cfg.Instances, Log: cfg.Log}
	return regularly("ship templates", cfg.Log, ensureInterval, seeder.Ensure)
}

// regularly returns a leader-only runnable that calls do at intervals.
func regularly(what string, log logr.Logger, interval time.Duration, do func(context.Context) error) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				log.Error(err, "Failed to "+what+", will retry")
			}
		}, interval, 0.1, true)
		return nil
	})
}
