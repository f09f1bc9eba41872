package main

import (
	"context"
	"net/http"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clusterAnnotation is the annotation that names the logical cluster, and so the workspace, of every object.
const clusterAnnotation = "kcp.io/cluster"

var databaseKind = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Database"}

// request identifies an object among those of all workspaces. Namespace and name alone would confuse tenants.
type request struct {
	Cluster string
	types.NamespacedName
}

// workspaces are those behind one URL of the export.
type workspaces struct {
	url    string
	config *rest.Config
	http   *http.Client // one connection pool for all workspaces
	mapper meta.RESTMapper
}

func newWorkspaces(config *rest.Config, url string) (*workspaces, error) {
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	// All workspaces serve the same API, so no discovery is needed.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(databaseKind, meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	return &workspaces{url: url, config: config, http: http, mapper: mapper}, nil
}

// at returns a configuration for one logical cluster, or for all of them ("*"), which can only be listed and watched.
func (w *workspaces) at(cluster string) *rest.Config {
	config := rest.CopyConfig(w.config)
	config.Host = w.url + "/clusters/" + cluster
	config.QPS = -1 // the server's priority and fairness applies
	return config
}

// client returns a client for one workspace. It is cheap to create, so it is not kept.
func (w *workspaces) client(cluster string) (client.Client, error) {
	return client.New(w.at(cluster), client.Options{HTTPClient: w.http, Mapper: w.mapper})
}

// allWorkspaces is the source of requests: one watch on the databases of all workspaces behind a URL. It stores no
// objects, because the controller reads the current object from the server.
type allWorkspaces struct {
	behind *workspaces
	group  *errgroup.Group // waits for the watch to end
	synced chan struct{}
	once   sync.Once
	queue  workqueue.TypedRateLimitingInterface[request]
}

// Start implements source.Source.
func (a *allWorkspaces) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	c, err := dynamic.NewForConfigAndClient(a.behind.at("*"), a.behind.http)
	if err != nil {
		return err
	}
	a.queue = queue
	resource := c.Resource(databaseKind.GroupVersion().WithResource("databases"))
	reflector := cache.NewReflectorWithOptions(newListWatch(resource), &unstructured.Unstructured{}, a,
		cache.ReflectorOptions{Name: "databases at " + a.behind.url})
	a.group.Go(func() error { reflector.RunWithContext(ctx); return nil })
	return nil
}

// listThenWatch makes the reflector list before it watches. By default it would read the initial objects from a watch
// and collect them by namespace and name, and of two objects with the same name in different workspaces it would lose
// one.
type listThenWatch struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is called by the reflector.
func (listThenWatch) IsWatchListSemanticsUnSupported() bool { return true }

func newListWatch(resource dynamic.ResourceInterface) cache.ListerWatcher {
	return listThenWatch{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := resource.List(ctx, options)
			if err != nil {
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return resource.Watch(ctx, options)
		},
	}}
}

// WaitForSync implements source.SyncingSource.
func (a *allWorkspaces) WaitForSync(ctx context.Context) error {
	select {
	case <-a.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Add is called by the reflector, as are the methods below.
func (a *allWorkspaces) Add(object any) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	a.queue.Add(request{
		Cluster:        accessor.GetAnnotations()[clusterAnnotation],
		NamespacedName: types.NamespacedName{Namespace: accessor.GetNamespace(), Name: accessor.GetName()},
	})
	return nil
}

// Update and Delete enqueue the same request.
func (a *allWorkspaces) Update(object any) error { return a.Add(object) }
func (a *allWorkspaces) Delete(object any) error { return a.Add(object) }

// Replace receives all existing objects, at the start and whenever a watch cannot be resumed. Objects deleted in
// between need no request: what the controller created for one is owned by it.
func (a *allWorkspaces) Replace(objects []any, _ string) error {
	for _, object := range objects {
		if err := a.Add(object); err != nil {
			return err
		}
	}
	a.once.Do(func() { close(a.synced) })
	return nil
}

// Resync is never called, because no resync period is set.
func (a *allWorkspaces) Resync() error { return nil }
