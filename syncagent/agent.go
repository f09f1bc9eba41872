package syncagent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/dialects"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/syncagent/publisher"
	"github.com/atoll-dev/atoll/syncagent/servers"
	publicationsync "github.com/atoll-dev/atoll/syncagent/sync"
)

// Config configures an agent.
type Config struct {
	Options *options.Completed
	Log     logr.Logger
	// OrphanDelay is how long a copy has to be without a source before it counts as an orphan; 0 means the default.
	OrphanDelay time.Duration
	// ViewInterval is how often the agent, where it does not use the syncer's view checks whether the view is available; 0 means the
	// default.
	ViewInterval time.Duration
}

// Run runs an agent until the context ends. It returns an error at startup if a server does not respond, or if an object that a flag
// names does not exist.
func Run(ctx context.Context, config Config) error {
	export, err := servers.Check(ctx, &config.Options.Config)
	if err != nil {
		return err
	}
	mgr, err := newManager(config.Options, config.Log)
	if err != nil {
		return err
	}
	kcp, err := newKcp(config.Options)
	if err != nil {
		return err
	}
	if err := mgr.Add(kcp); err != nil {
		return err
	}
	if err := addControllers(mgr, kcp, config, export); err != nil {
		return err
	}
	config.Log.Info("Starting", "agent", config.Options.AgentName, "endpointSlice", config.Options.EndpointSlice, "export", export.Name)
	return mgr.Start(ctx)
}

// newManager returns the manager, whose cluster is the service cluster.
func newManager(config *options.Completed, log logr.Logger) (manager.Manager, error) {
	service := rest.CopyConfig(config.Service)
	service.QPS = -1 // the server's priority and fairness applies
	health := config.HealthAddress
	if health == "" {
		health = "0"
	}
	mgr, err := ctrl.NewManager(service, ctrl.Options{
		Scheme: servers.Scheme, Logger: log,
		Metrics: metricsserver.Options{BindAddress: config.MetricsAddress}, HealthProbeBindAddress: health,
		LeaderElection: config.LeaderElection, LeaderElectionID: "syncagent." + config.AgentName, LeaderElectionNamespace: config.Namespace,
		LeaderElectionResourceLock: "leases",
		// The process ends with the manager, so the next leader does not have to wait for the lease to expire.
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return nil, fmt.Errorf("setting up: %w", err)
	}
	return mgr, errors.Join(mgr.AddHealthzCheck("healthz", healthz.Ping), mgr.AddReadyzCheck("readyz", healthz.Ping))
}

// newKcp returns the cluster of the slice's workspace. Its cache contains this slice only.
func newKcp(config *options.Completed) (cluster.Cluster, error) {
	return cluster.New(config.Kcp, func(o *cluster.Options) {
		o.Scheme = servers.Scheme
		o.Cache = cache.Options{ByObject: map[client.Object]cache.ByObject{
			&apisv1alpha1.APIExportEndpointSlice{}: {Field: fields.OneTermEqualSelector("metadata.name", config.EndpointSlice)},
		}}
	})
}

func addControllers(mgr manager.Manager, kcp cluster.Cluster, config Config, export *servers.Export) error {
	completed := config.Options
	exports, err := servers.NewClient(export.Config, servers.APIExports)
	if err != nil {
		return err
	}
	reader, err := dialects.NewReader(dialects.Options{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Selector: completed.Selector, Group: dialects.ServiceGroup(exports, export.Name)})
	if err != nil {
		return err
	}
	if err := publisher.Add(mgr, publisher.Options{
		Workspace: export.Config, ExportName: export.Name, AgentName: completed.AgentName, Publications: reader,
		WithoutSchemas: !completed.Enabled(options.APIResourceSchemaController), WithoutExport: !completed.Enabled(options.APIExportController),
	}); err != nil {
		return err
	}
	if !completed.Enabled(options.SyncController) {
		return nil
	}
	sync := publicationsync.Options{Config: completed, Log: config.Log, OrphanDelay: config.OrphanDelay, ViewInterval: config.ViewInterval, Reader: reader}
	if completed.Enabled(options.APIExportController) {
		sync.Export = &publicationsync.ExportClient{Client: exports, Name: export.Name}
	}
	return publicationsync.AddToManager(mgr, kcp, sync)
}
