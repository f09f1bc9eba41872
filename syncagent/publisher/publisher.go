// Package publisher creates an APIResourceSchema for each PublishedResource, and adds the schemas to one APIExport, with the permission
// claims that the sync needs. It does not remove schemas and claims that other clients have added to the export.
package publisher

import (
	"context"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/dialects"
)

// eventSource is the source component of events.
const eventSource = "sync-agent"

// ReasonReconcilingError is the reason of events of PublishedResources that cannot be published.
const ReasonReconcilingError = "ReconcilingError"

// Options configure the controllers.
type Options struct {
	// Workspace is the configuration for the workspace of the export.
	Workspace *rest.Config
	// ExportName is the name of the APIExport. The export does not have to exist yet.
	ExportName string
	// AgentName is the value of labels and annotations.
	AgentName string
	// Publications reads the PublishedResources of the agent.
	Publications *dialects.Reader
	// WithoutSchemas and WithoutExport disable a controller.
	WithoutSchemas, WithoutExport bool
}

// Add adds the controllers. The cluster of the manager is the service cluster; its scheme must contain the types of apis.kcp.io/v1alpha1
// and of CustomResourceDefinitions.
func Add(mgr manager.Manager, options Options) error {
	if options.WithoutSchemas && options.WithoutExport {
		return nil
	}
	workspace, err := newWorkspace(mgr, options)
	if err != nil {
		return fmt.Errorf("connecting to the workspace of the APIExport: %w", err)
	}
	if err := mgr.Add(workspace); err != nil {
		return err
	}
	if !options.WithoutSchemas {
		if err := addSchemas(mgr, workspace, options); err != nil {
			return fmt.Errorf("adding the controller of APIResourceSchemas: %w", err)
		}
	}
	if !options.WithoutExport {
		if err := addExport(mgr, workspace, options); err != nil {
			return fmt.Errorf("adding the controller of the APIExport: %w", err)
		}
	}
	return nil
}

// newWorkspace returns the workspace of the export. Its cache contains only this export, and only the metadata of schemas.
func newWorkspace(mgr manager.Manager, options Options) (cluster.Cluster, error) {
	config := rest.CopyConfig(options.Workspace)
	config.QPS = -1 // the server's priority and fairness applies
	return cluster.New(config, func(o *cluster.Options) {
		o.Scheme, o.Logger = mgr.GetScheme(), mgr.GetLogger()
		o.Cache = cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&apisv1alpha1.APIExport{}: {Field: fields.OneTermEqualSelector("metadata.name", options.ExportName)},
			},
		}
	})
}

func addSchemas(mgr manager.Manager, workspace cluster.Cluster, options Options) error {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	definitions, err := newDefinitions(mgr)
	if err != nil {
		return err
	}
	r := &schemaReconciler{
		options: options, discovery: d, service: mgr.GetAPIReader(), workspace: workspace.GetClient(), schemas: workspace.GetAPIReader(),
		recorder: mgr.GetEventRecorder(eventSource),
	}
	c, err := newController("apiresourceschemas", mgr, r)
	if err != nil {
		return err
	}
	errs := []error{mgr.Add(definitions)}
	for _, kind := range options.Publications.Kinds() {
		errs = append(errs, c.Watch(source.Kind(mgr.GetCache(), kind, enqueueObject)))
	}
	return errors.Join(append(errs,
		c.Watch(source.Kind[client.Object](definitions, metadataOf(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")), r.enqueue(ofGroup))),
		c.Watch(source.Kind(workspace.GetCache(), metadataOf(apisv1alpha1.SchemeGroupVersion.WithKind("APIResourceSchema")), r.enqueue(hasName), deletions)),
	)...)
}

// deletions ignores updates: two agents with one workspace use the same names for the same content, and would overwrite each other's
// labels forever.
var deletions = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
}

// newDefinitions returns a cache of the names of definitions. The controller reads their schemas when it publishes them.
func newDefinitions(mgr manager.Manager) (cache.Cache, error) {
	return cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: func(object any) (any, error) {
			if definition, ok := object.(client.Object); ok {
				// kubectl stores whole definitions in an annotation.
				definition.SetAnnotations(nil)
				definition.SetManagedFields(nil)
			}
			return object, nil
		},
	})
}

func addExport(mgr manager.Manager, workspace cluster.Cluster, options Options) error {
	r := &exportReconciler{options: options, workspace: workspace.GetClient()}
	c, err := newController("apiexport", mgr, r)
	if err != nil {
		return err
	}
	enqueueExport := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: options.ExportName}}}
	})
	errs := []error{c.Watch(source.Kind[client.Object](workspace.GetCache(), &apisv1alpha1.APIExport{}, enqueueExport))}
	for _, kind := range options.Publications.Kinds() {
		errs = append(errs, c.Watch(source.Kind(mgr.GetCache(), kind, enqueueExport)))
	}
	return errors.Join(errs...)
}

func newController(name string, mgr manager.Manager, r reconcile.Reconciler) (controller.Controller, error) {
	skipNames := true // several agents may run in one process, for example in tests
	return controller.New(name, mgr, controller.Options{Reconciler: r, SkipNameValidation: &skipNames})
}

func metadataOf(gvk schema.GroupVersionKind) client.Object {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(gvk)
	return object
}

// enqueueObject enqueues a PublishedResource. The dialect is part of its key.
var enqueueObject = handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: dialects.Key(object)}}
})
