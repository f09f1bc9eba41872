package syncagent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/dialects"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/syncagent/publisher"
)

// defaultOrphanDelay is how long a copy has to be without a source before it counts as an orphan: a workspace may bind the export again
// at once.
const defaultOrphanDelay = 15 * time.Second

// defaultViewInterval is a compromise: each publication sends a request to each endpoint, although the permission may never be granted.
const defaultViewInterval = 10 * time.Minute

var scheme = newScheme()

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, dialects.AddToScheme, apisv1alpha1.AddToScheme, corev1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // two types are registered for one kind
		}
	}
	return scheme
}

// Config configures an agent.
type Config struct {
	*options.Completed
	Log logr.Logger
	// OrphanDelay is how long a copy has to be without a source before it counts as an orphan; 0 means the default.
	OrphanDelay time.Duration
	// ViewInterval is how often a synchronization that does not use the syncer's view checks whether the view is available; 0 means the
	// default.
	ViewInterval time.Duration
}

// dependencies are the clients and settings that all parts of an agent share.
type dependencies struct {
	config                    *options.Completed
	log                       logr.Logger
	orphanDelay, viewInterval time.Duration

	known      *knownEndpoints
	remembered *workspaces.Remembered
	// export is nil if the agent does not write it.
	export        *exportClient
	serviceConfig *rest.Config
	serviceHTTP   *http.Client
	// service reads and writes without a cache.
	service          client.Client
	serviceDynamic   dynamic.Interface
	serviceDiscovery *discovery.DiscoveryClient
	serviceWatches   *watches
	namespaces       *emptyNamespaces
	reader           *dialects.Reader
	recorder         events.EventRecorder
}

// Run runs an agent until the context ends. It returns an error at startup if a server does not respond, or if an object that a flag
// names does not exist.
func Run(ctx context.Context, config Config) error {
	if config.OrphanDelay == 0 {
		config.OrphanDelay = defaultOrphanDelay
	}
	if config.ViewInterval == 0 {
		config.ViewInterval = defaultViewInterval
	}
	export, err := check(ctx, &config.Config)
	if err != nil {
		return err
	}
	mgr, err := newManager(config)
	if err != nil {
		return err
	}
	kcp, err := newKcp(config.Completed)
	if err != nil {
		return err
	}
	if err := mgr.Add(kcp); err != nil {
		return err
	}
	if err := addControllers(mgr, kcp, config, export); err != nil {
		return err
	}
	config.Log.Info("Starting", "agent", config.AgentName, "endpointSlice", config.EndpointSlice, "export", export.name)
	return mgr.Start(ctx)
}

// newManager returns the manager, whose cluster is the service cluster.
func newManager(config Config) (manager.Manager, error) {
	service := rest.CopyConfig(config.Service)
	service.QPS = -1 // the server's priority and fairness applies
	health := config.HealthAddress
	if health == "" {
		health = "0"
	}
	mgr, err := ctrl.NewManager(service, ctrl.Options{
		Scheme: scheme, Logger: config.Log,
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
		o.Scheme = scheme
		o.Cache = cache.Options{ByObject: map[client.Object]cache.ByObject{
			&apisv1alpha1.APIExportEndpointSlice{}: {Field: fields.OneTermEqualSelector("metadata.name", config.EndpointSlice)},
		}}
	})
}

func addControllers(mgr manager.Manager, kcp cluster.Cluster, config Config, export *exportReference) error {
	exports, err := newCheckClient(export.config, apiExports)
	if err != nil {
		return err
	}
	reader, err := dialects.NewReader(dialects.Options{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Selector: config.Selector, Group: dialects.ServiceGroup(exports, export.name)})
	if err != nil {
		return err
	}
	if err := publisher.Add(mgr, publisher.Options{
		Workspace: export.config, ExportName: export.name, AgentName: config.AgentName, Publications: reader,
		WithoutSchemas: !config.Enabled(options.APIResourceSchemaController), WithoutExport: !config.Enabled(options.APIExportController),
	}); err != nil {
		return err
	}
	if !config.Enabled(options.SyncController) {
		return nil
	}
	d, err := newDependencies(mgr, config, reader)
	if err != nil {
		return err
	}
	if config.Enabled(options.APIExportController) {
		d.export = &exportClient{exports, export.name}
	}
	return addSync(mgr, kcp, newSynchronizations(d))
}

func newDependencies(mgr manager.Manager, config Config, reader *dialects.Reader) (*dependencies, error) {
	d := &dependencies{
		config: config.Completed, log: config.Log, orphanDelay: config.OrphanDelay, viewInterval: config.ViewInterval, known: newKnownEndpoints(config.Kcp),
		serviceConfig: mgr.GetConfig(), serviceHTTP: mgr.GetHTTPClient(), reader: reader, recorder: mgr.GetEventRecorder("sync-agent"),
	}
	var err error
	if d.service, err = client.New(d.serviceConfig, client.Options{HTTPClient: d.serviceHTTP, Scheme: scheme, Mapper: mgr.GetRESTMapper()}); err != nil {
		return nil, err
	}
	dynamicClient, err := dynamic.NewForConfigAndClient(d.serviceConfig, d.serviceHTTP)
	if err != nil {
		return nil, err
	}
	d.serviceDynamic = dynamicClient
	if d.serviceDiscovery, err = discovery.NewDiscoveryClientForConfigAndClient(d.serviceConfig, d.serviceHTTP); err != nil {
		return nil, err
	}
	metadataClient, err := metadata.NewForConfigAndClient(metadata.ConfigFor(d.serviceConfig), d.serviceHTTP)
	if err != nil {
		return nil, err
	}
	d.remembered = rememberedEndpoints(d.service, &config.Config)
	d.serviceWatches = newWatches(metadataClient)
	d.namespaces = newEmptyNamespaces(d, metadataClient)
	return d, nil
}

// addSync adds the controllers that watch PublishedResources and the slice.
func addSync(mgr manager.Manager, kcp cluster.Cluster, s *synchronizations) error {
	skipNames := true // several agents may run in one process, as in tests
	publications, err := controller.New("synchronizations", mgr, controller.Options{Reconciler: s, SkipNameValidation: &skipNames})
	if err != nil {
		return err
	}
	enqueue := handler.EnqueueRequestsFromMapFunc(s.requests)
	errs := []error{mgr.Add(s), mgr.Add(s.namespaces), publications.Watch(source.Func(s.setQueue))}
	for _, kind := range s.reader.Kinds() {
		errs = append(errs, publications.Watch(source.Kind(mgr.GetCache(), kind, enqueue)))
	}
	slices, err := controller.New("endpoints", mgr, controller.Options{Reconciler: &sliceReconciler{kcp.GetClient(), s}, SkipNameValidation: &skipNames})
	errs = append(errs, err)
	if err == nil {
		errs = append(errs, slices.Watch(source.Kind[client.Object](kcp.GetCache(), &apisv1alpha1.APIExportEndpointSlice{}, &handler.EnqueueRequestForObject{})))
	}
	return errors.Join(errs...)
}

// sliceReconciler passes the URLs of the slice to the synchronizations.
type sliceReconciler struct {
	client.Client
	synchronizations *synchronizations
}

// Reconcile implements reconcile.Reconciler. A deleted or invalid slice does not change the endpoints, because it is no proof that the
// export has no consumers.
func (r *sliceReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request.Name != r.synchronizations.config.EndpointSlice {
		return reconcile.Result{}, nil
	}
	slice := &apisv1alpha1.APIExportEndpointSlice{}
	err := r.Get(ctx, request.NamespacedName, slice)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if err != nil {
		r.synchronizations.setSliceProblem(fmt.Sprintf("there is no APIExportEndpointSlice %s", request.Name))
		return reconcile.Result{}, nil
	}
	urls, err := endpointsOf(slice)
	if err != nil {
		r.synchronizations.setSliceProblem(err.Error())
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, r.synchronizations.setEndpoints(ctx, urls)
}
