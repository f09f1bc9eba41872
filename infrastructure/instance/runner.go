package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/workspaces"
)

const (
	// workers is the number of instances of a backend that are reconciled concurrently.
	workers = 10
	// workersOfTenant is the maximum number of workers for one logical cluster. It limits the effect on other tenants of slow
	// reconciliations, such as those that wait for a webhook on Secrets in the workspace.
	workersOfTenant = 2
	// workspaceTimeout bounds a request for a Secret or event in a workspace, which may wait for a webhook of the tenant.
	workspaceTimeout = 2 * time.Second
	// reconcileTimeout bounds one reconciliation of an instance.
	reconcileTimeout = 2 * time.Minute
	// minRetry and maxRetry bound the delay after an error.
	minRetry, maxRetry = 200 * time.Millisecond, time.Minute
)

// Options configure Run. All fields are required unless they have a default.
type Options struct {
	// Backend is the name of the backend; Group is the API group of the provider; Export is the name of its APIExport and endpoint slice.
	Backend, Group, Export string
	// Workspace is the client configuration of the provider's workspace.
	Workspace *rest.Config
	Handler   Handler
	// Changed delivers instances to reconcile because one of their objects has changed.
	Changed <-chan Identity
	// SweepInterval is how often the backend checks for deleted workspaces.
	SweepInterval time.Duration
	Log           logr.Logger
}

// runner serves the instances of one backend.
type runner struct {
	Options
	templates ctrlcache.Cache // of the provider's workspace
	provider  client.Client   // of the provider's workspace, uncached
	// operatorEvents records events in the provider's workspace.
	operatorEvents *workspaces.Recorder
	controller     *workspaces.Controller[request]

	kinds  workspaces.Running[kindKey, *kind] // those of exported Templates of the backend, at URLs of the slices
	shards workspaces.Running[string, *shard] // by URL

	mu        sync.Mutex
	connected map[string]bool     // URLs of the slices; nil until they are read
	complete  bool                // whether all slices that should exist do
	offers    map[string]*offered // Templates of the backend, by name
	running   background.Group
}

// kindKey identifies a version of a kind behind a URL.
type kindKey struct {
	url string
	gvr schema.GroupVersionResource
}

// Run serves instances until the context ends.
func Run(ctx context.Context, o Options) error {
	templates, provider, err := newClients(o.Workspace, o.Group)
	if err != nil {
		return err
	}
	r := &runner{Options: o, templates: templates, provider: provider, operatorEvents: workspaces.NewRecorder(fieldManager, nil)}
	started := make(chan struct{})
	if r.controller, err = workspaces.NewController(workspaces.ControllerOptions[request]{
		Name: "instances", Reconciler: r, ClusterOf: func(req request) string { return req.cluster },
		Workers: workers, WorkersOfCluster: workersOfTenant, Timeout: reconcileTimeout, MinRetry: minRetry, MaxRetry: maxRetry,
		Log: o.Log.WithValues("backend", o.Backend),
		LogValues: func(req request) []any {
			return []any{"resource", req.gvr.Resource, "cluster", req.cluster, "name", req.name}
		},
		OnStart: func() { close(started) },
	}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	counted.add(r)
	defer r.end()
	defer r.running.Wait()
	defer cancel(nil)
	connected.WithLabelValues(o.Backend).Set(0)
	r.running.Go(func() { r.operatorEvents.Run(ctx) })
	r.running.Go(func() {
		select {
		case <-started:
			if templates.WaitForCacheSync(ctx) {
				r.watch(ctx)
			}
		case <-ctx.Done():
		}
	})
	r.running.Go(func() {
		if err := templates.Start(ctx); err != nil {
			cancel(fmt.Errorf("watching the workspace of the provider: %w", err))
		}
	})
	r.running.Go(func() { r.forwardChanges(ctx) })
	r.running.Go(func() { r.sweepRegularly(ctx) })
	if err := r.controller.Start(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// newClients returns a cache of Templates and endpoint slices, and a client of the same workspace.
func newClients(workspace *rest.Config, group string) (ctrlcache.Cache, client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		infrastructurev1alpha1.AddGroupToScheme(group), apisv1alpha1.AddToScheme, apisv1alpha2.AddToScheme, corev1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	templates, err := ctrlcache.New(workspace, ctrlcache.Options{Scheme: scheme, DefaultTransform: ctrlcache.TransformStripManagedFields()})
	if err != nil {
		return nil, nil, fmt.Errorf("building the cache of templates: %w", err)
	}
	provider, err := client.New(workspace, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, fmt.Errorf("building the client of the workspace of the provider: %w", err)
	}
	return templates, provider, nil
}

// forwardChanges enqueues the instances that the backend reports.
func (r *runner) forwardChanges(ctx context.Context) {
	for {
		select {
		case changed := <-r.Changed:
			for _, k := range r.ofTemplate(changed.Template) {
				if k.get(changed.Cluster.String(), changed.Name) != nil {
					r.controller.Add(request{k.url, k.gvr, changed.Cluster.String(), changed.Name})
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

func (r *runner) ofTemplate(name string) []*kind {
	return slices.DeleteFunc(r.kinds.All(), func(k *kind) bool { return k.template().Name != name })
}

// isServed reports whether this backend serves the instances of a Template.
func (r *runner) isServed(t *infrastructurev1alpha1.Template) bool {
	return t.Status.Backend.Name == r.Backend && t.Status.Registered.SchemaInAPIExport
}
