package sync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/dialects"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/syncagent/servers"
)

// defaultOrphanDelay is how long a copy has to be without a source before it counts as an orphan: a workspace may bind the export again
// at once.
const defaultOrphanDelay = 15 * time.Second

// defaultViewInterval is a compromise: each publication sends a request to each endpoint, although the permission may never be granted.
const defaultViewInterval = 10 * time.Minute

// Options configure the sync of objects.
type Options struct {
	Config *options.Completed
	Log    logr.Logger
	// OrphanDelay is how long a copy has to be without a source before it counts as an orphan; 0 means the default.
	OrphanDelay time.Duration
	// ViewInterval is how often a publication that is not read from the syncer's view checks whether the view is available; 0 means the default.
	ViewInterval time.Duration
	// Reader reads the publications.
	Reader *dialects.Reader
	// Export is nil if the agent does not write it.
	Export *ExportClient
}

// shared are the clients and settings that all parts of the agent share.
type shared struct {
	config                    *options.Completed
	log                       logr.Logger
	orphanDelay, viewInterval time.Duration

	known *workspaces.Known
	views *views
	// export is nil if the agent does not write it.
	export        *ExportClient
	serviceConfig *rest.Config
	serviceHTTP   *http.Client
	// service reads and writes without a cache.
	service          client.Client
	serviceDynamic   dynamic.Interface
	serviceDiscovery *discovery.DiscoveryClient
	serviceWatches   *workspaces.SharedWatches
	namespaces       *emptyNamespaces
	reader           *dialects.Reader
	recorder         events.EventRecorder
}

func newShared(mgr manager.Manager, o Options) (*shared, error) {
	d := &shared{
		config: o.Config, log: o.Log, orphanDelay: cmp.Or(o.OrphanDelay, defaultOrphanDelay), viewInterval: cmp.Or(o.ViewInterval, defaultViewInterval),
		export: o.Export, views: &views{config: o.Config.Kcp, byURL: map[string]*workspaces.Endpoint{}},
		serviceConfig: mgr.GetConfig(), serviceHTTP: mgr.GetHTTPClient(), reader: o.Reader, recorder: mgr.GetEventRecorder("sync-agent"),
	}
	var err error
	if d.service, err = client.New(d.serviceConfig, client.Options{HTTPClient: d.serviceHTTP, Scheme: servers.Scheme, Mapper: mgr.GetRESTMapper()}); err != nil {
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
	d.known = workspaces.NewKnown(o.Config.Kcp, servers.Remembered(d.service, &o.Config.Config))
	d.serviceWatches = workspaces.NewSharedWatches(metadataClient)
	d.namespaces = newEmptyNamespaces(d, metadataClient)
	return d, nil
}

// AddToManager adds the controllers that watch PublishedResources and the slice.
func AddToManager(mgr manager.Manager, kcp cluster.Cluster, o Options) error {
	d, err := newShared(mgr, o)
	if err != nil {
		return err
	}
	s := newController(d)
	skipNames := true // several agents may run in one process, as in tests
	publications, err := controller.New("synchronizations", mgr, controller.Options{Reconciler: s, SkipNameValidation: &skipNames})
	if err != nil {
		return err
	}
	enqueue := handler.EnqueueRequestsFromMapFunc(s.requests)
	errs := []error{mgr.Add(s), mgr.Add(d.namespaces), publications.Watch(source.Func(s.setQueue))}
	for _, kind := range d.reader.Kinds() {
		errs = append(errs, publications.Watch(source.Kind(mgr.GetCache(), kind, enqueue)))
	}
	slices, err := controller.New("endpoints", mgr, controller.Options{Reconciler: &sliceReconciler{kcp.GetClient(), s}, SkipNameValidation: &skipNames})
	errs = append(errs, err)
	if err == nil {
		errs = append(errs, slices.Watch(source.Kind[client.Object](kcp.GetCache(), &apisv1alpha1.APIExportEndpointSlice{}, &handler.EnqueueRequestForObject{})))
	}
	return errors.Join(errs...)
}

// sliceReconciler passes the URLs of the slice to the controller of publications.
type sliceReconciler struct {
	client     client.Client
	controller *Controller
}

// Reconcile implements reconcile.Reconciler. A deleted or invalid slice does not change the endpoints, because it is no proof that the
// export has no consumers.
func (r *sliceReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request.Name != r.controller.shared.config.EndpointSlice {
		return reconcile.Result{}, nil
	}
	slice := &apisv1alpha1.APIExportEndpointSlice{}
	err := r.client.Get(ctx, request.NamespacedName, slice)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if err != nil {
		r.controller.setSliceProblem(fmt.Sprintf("there is no APIExportEndpointSlice %s", request.Name))
		return reconcile.Result{}, nil
	}
	urls, err := workspaces.EndpointURLs(slice)
	if err != nil {
		r.controller.setSliceProblem(err.Error())
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, r.controller.setEndpoints(ctx, urls)
}
