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

// clusterAnnotation says on every object which logical cluster, that is whose workspace, it is from.
const clusterAnnotation = "kcp.io/cluster"

var databaseKind = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Database"}

// request is an object among those of all workspaces. Namespace and name alone would mix up tenants.
type request struct {
	Cluster string
	types.NamespacedName
}

// workspaces are those behind one URL of the export.
type workspaces struct {
	url    string
	config *rest.Config
	http   *http.Client // one pool of connections for all workspaces
	mapper meta.RESTMapper
}

func newWorkspaces(config *rest.Config, url string) (*workspaces, error) {
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	// All workspaces show the same API, so nobody has to be asked for it.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(databaseKind, meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	return &workspaces{url: url, config: config, http: http, mapper: mapper}, nil
}

// at returns a configuration for one logical cluster, or for all of them ("*"), which can only be listed and watched.
func (w *workspaces) at(cluster string) *rest.Config {
	config := rest.CopyConfig(w.config)
	config.Host = w.url + "/clusters/" + cluster
	config.QPS = -1 // the server shares itself out fairly
	return config
}

// client returns a client for one workspace. It costs nothing but memory for the moment, so it need not be kept.
func (w *workspaces) client(cluster string) (client.Client, error) {
	return client.New(w.at(cluster), client.Options{HTTPClient: w.http, Mapper: w.mapper})
}

// allWorkspaces is the source of requests: one watch on the databases of all workspaces behind a URL. It keeps no
// objects, because the controller reads what it is about to change from the server.
type allWorkspaces struct {
	behind *workspaces
	group  *errgroup.Group // waits for the watch to end
	synced chan struct{}
	once   sync.Once
	queue  workqueue.TypedRateLimitingInterface[request]
}

// Start is called by the controller.
func (s *allWorkspaces) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	c, err := dynamic.NewForConfigAndClient(s.behind.at("*"), s.behind.http)
	if err != nil {
		return err
	}
	s.queue = queue
	resource := c.Resource(databaseKind.GroupVersion().WithResource("databases"))
	reflector := cache.NewReflectorWithOptions(newListWatch(resource), &unstructured.Unstructured{}, s,
		cache.ReflectorOptions{Name: "databases at " + s.behind.url})
	s.group.Go(func() error { reflector.RunWithContext(ctx); return nil })
	return nil
}

// listThenWatch keeps the reflector from getting the first objects out of a watch, as it would otherwise do: it gathers
// those by namespace and name, and of two workspaces with the same names it would lose one.
type listThenWatch struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is how a reflector is told.
func (listThenWatch) IsWatchListSemanticsUnSupported() bool { return true }

func newListWatch(resource dynamic.ResourceInterface) cache.ListerWatcher {
	return listThenWatch{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return resource.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return resource.Watch(ctx, options)
		},
	}}
}

// WaitForSync is called by the controller.
func (s *allWorkspaces) WaitForSync(ctx context.Context) error {
	select {
	case <-s.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Add is called by the reflector, as are all below.
func (s *allWorkspaces) Add(object any) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	s.queue.Add(request{
		Cluster:        accessor.GetAnnotations()[clusterAnnotation],
		NamespacedName: types.NamespacedName{Namespace: accessor.GetNamespace(), Name: accessor.GetName()},
	})
	return nil
}

// Update and Delete ask for the same: to look at the object again.
func (s *allWorkspaces) Update(object any) error { return s.Add(object) }
func (s *allWorkspaces) Delete(object any) error { return s.Add(object) }

// Replace gets the objects that there are, at the start and whenever a watch could not go on. One that vanished in
// between needs nothing: what the controller made for it is owned by it.
func (s *allWorkspaces) Replace(objects []any, _ string) error {
	for _, object := range objects {
		if err := s.Add(object); err != nil {
			return err
		}
	}
	s.once.Do(func() { close(s.synced) })
	return nil
}

// Resync is called never: it was not asked for.
func (s *allWorkspaces) Resync() error { return nil }
