package connection

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// The resources that plugins read and write. All are cluster-scoped.
var (
	Workspaces         = schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"}
	LogicalClusters    = schema.GroupVersionResource{Group: "core.kcp.io", Version: "v1alpha1", Resource: "logicalclusters"}
	APIBindings        = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apibindings"}
	APIExports         = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apiexports"}
	APIResourceSchemas = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha1", Resource: "apiresourceschemas"}
)

// homeTimeout bounds the wait for a home workspace that the first request creates. It is the server's own timeout.
const homeTimeout = time.Minute

// Installation creates clients for the logical clusters of one base URL. They share one connection pool.
type Installation struct {
	Location

	config *rest.Config
	http   *http.Client
}

func newInstallation(location Location, config *rest.Config) (*Installation, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // one command: priority and fairness of the server suffice
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to %s: %w", location.Base, err)
	}
	return &Installation{Location: location, config: config, http: client}, nil
}

func (i *Installation) configFor(path logicalcluster.Path) *rest.Config {
	config := rest.CopyConfig(i.config)
	config.Host = i.URLFor(path)
	return config
}

// Client returns a client for one logical cluster.
func (i *Installation) Client(path logicalcluster.Path) (dynamic.Interface, error) {
	client, err := dynamic.NewForConfigAndClient(i.configFor(path), i.http)
	if err != nil {
		return nil, fmt.Errorf("making a client for workspace %q: %w", path, err)
	}
	return client, nil
}

// AdminClient returns a client for the admin workspace.
func (i *Installation) AdminClient() (dynamic.Interface, error) {
	config := rest.CopyConfig(i.config)
	config.Host = i.AdminURL()
	client, err := dynamic.NewForConfigAndClient(config, i.http)
	if err != nil {
		return nil, fmt.Errorf("making a client for the admin workspace: %w", err)
	}
	return client, nil
}

// Resource returns a client for one cluster-scoped resource of one logical cluster.
func (i *Installation) Resource(path logicalcluster.Path, resource schema.GroupVersionResource) (dynamic.ResourceInterface, error) {
	return i.Namespaced(path, resource, "")
}

// Namespaced returns a client for one resource in a namespace of one logical cluster, "" for a resource without.
func (i *Installation) Namespaced(path logicalcluster.Path, resource schema.GroupVersionResource, namespace string) (dynamic.ResourceInterface, error) {
	client, err := i.Client(path)
	if err != nil {
		return nil, err
	}
	if namespace == "" {
		return client.Resource(resource), nil
	}
	return client.Resource(resource).Namespace(namespace), nil
}

// Get reads one object of a logical cluster. Errors wrap the server's status, so that apierrors.IsNotFound and similar
// functions work.
func (i *Installation) Get(ctx context.Context, path logicalcluster.Path, resource schema.GroupVersionResource, name string) (*unstructured.Unstructured, error) {
	client, err := i.Resource(path, resource)
	if err != nil {
		return nil, err
	}
	object, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("getting %s %q in workspace %q: %w", resource.Resource, name, path, err)
	}
	return object, nil
}

// List reads all objects of a resource in a logical cluster, page by page. Errors are wrapped as in Get.
func (i *Installation) List(ctx context.Context, path logicalcluster.Path, resource schema.GroupVersionResource) ([]unstructured.Unstructured, error) {
	client, err := i.Resource(path, resource)
	if err != nil {
		return nil, err
	}
	var objects []unstructured.Unstructured
	page := metav1.ListOptions{Limit: 500}
	for {
		list, err := client.List(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("listing %s in workspace %q: %w", resource.Resource, path, err)
		}
		objects = append(objects, list.Items...)
		if page.Continue = list.GetContinue(); page.Continue == "" {
			return objects, nil
		}
	}
}

// Metrics reads the usage of a logical cluster, in the text format of Prometheus. Errors are the server's status.
func (i *Installation) Metrics(ctx context.Context, path logicalcluster.Path) ([]byte, error) {
	return i.get(ctx, path, "/metrics", nil)
}

// AuditEvents reads the latest audit events of a logical cluster, an EventList in JSON. Errors are the server's status.
func (i *Installation) AuditEvents(ctx context.Context, path logicalcluster.Path, query url.Values) ([]byte, error) {
	return i.get(ctx, path, "/audit", query)
}

// get reads a path of a logical cluster that is no resource.
func (i *Installation) get(ctx context.Context, path logicalcluster.Path, at string, query url.Values) ([]byte, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(i.configFor(path), i.http)
	if err != nil {
		return nil, fmt.Errorf("making a client for workspace %q: %w", path, err)
	}
	get := client.RESTClient().Get().AbsPath(at)
	for name, values := range query {
		for _, value := range values {
			get = get.Param(name, value)
		}
	}
	result := get.Do(ctx)
	if err := result.Error(); err != nil { // unlike that of Raw, it has the message of the server
		return nil, err
	}
	return result.Raw()
}

// IsAdminReachable reports whether the user may enter the admin workspace: whether the server serves it, and lets the user
// read it.
func (i *Installation) IsAdminReachable() (bool, error) {
	config := rest.CopyConfig(i.config)
	config.Host = i.AdminURL()
	client, err := discovery.NewDiscoveryClientForConfigAndClient(config, i.http)
	if err != nil {
		return false, fmt.Errorf("making a client for the admin workspace: %w", err)
	}
	_, err = client.ServerGroups()
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("asking the admin workspace for its APIs: %w", err)
	}
	return true, nil
}

// IsReachable reports whether the user may enter a logical cluster, derived from its API discovery: a 403, or a response
// without any API group, means false. Every other failure is an error.
func (i *Installation) IsReachable(path logicalcluster.Path) (bool, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(i.configFor(path), i.http)
	if err != nil {
		return false, fmt.Errorf("making a client for workspace %q: %w", path, err)
	}
	groups, err := client.ServerGroups()
	switch {
	case apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("asking workspace %q for its APIs: %w", path, err)
	}
	return len(groups.Groups) > 0, nil
}

// PreferredResource returns a resource in the version of its group that a logical cluster prefers. The given resource must be
// in the newest version that the plugins support; a group that the cluster does not serve is an error.
func (i *Installation) PreferredResource(path logicalcluster.Path, resource schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(i.configFor(path), i.http)
	if err != nil {
		return resource, fmt.Errorf("making a client for workspace %q: %w", path, err)
	}
	groups, err := client.ServerGroups()
	if err != nil {
		return resource, fmt.Errorf("asking workspace %q for its APIs: %w", path, err)
	}
	for _, group := range groups.Groups {
		if group.Name == resource.Group {
			resource.Version = group.PreferredVersion.Version
			return resource, nil
		}
	}
	return resource, fmt.Errorf("workspace %q does not serve the API group %s", path, resource.Group)
}

// Home returns the path of the user's home workspace. The request for it creates it, and the server responds with "too
// many requests" until it is ready.
func (i *Installation) Home(ctx context.Context) (logicalcluster.Path, error) {
	var home *unstructured.Unstructured
	err := wait.PollUntilContextTimeout(ctx, time.Second, homeTimeout, true, func(ctx context.Context) (done bool, err error) {
		home, err = i.Get(ctx, logicalcluster.Root.Path(), Workspaces, "~")
		if apierrors.IsTooManyRequests(err) {
			return false, nil
		}
		return err == nil, err
	})
	if wait.Interrupted(err) {
		return logicalcluster.Path{}, fmt.Errorf("the home workspace was not ready within %s", homeTimeout)
	}
	if err != nil {
		return logicalcluster.Path{}, err
	}
	homeURL, _, err := unstructured.NestedString(home.Object, "spec", "URL")
	if err != nil {
		return logicalcluster.Path{}, fmt.Errorf("reading the URL of the home workspace: %w", err)
	}
	location, err := ParseLocation(homeURL)
	if err != nil {
		return logicalcluster.Path{}, fmt.Errorf("the home workspace has the URL %q, which names no workspace", homeURL)
	}
	return location.Path, nil
}
