package instance

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// claimed contains the types of the objects that the platform writes into workspaces of tenants.
var claimed = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	return scheme
}()

// bindings is the resource of APIBindings, which the virtual workspace of every export serves.
var bindings = apisv1alpha2.SchemeGroupVersion.WithResource("apibindings")

// shard is the connection that all kinds behind a URL share, while the endpoint slice contains the URL.
type shard struct {
	dynamic    dynamic.Interface
	workspaces *workspaces.Clients
	events     *workspaces.Recorder
}

// fieldManager is the field manager of the platform's writes in workspaces of tenants. It does not depend on the name of the binary.
const fieldManager = "infrastructure-provider"

// endpointAt returns the endpoint at a URL of the export.
func endpointAt(workspace *rest.Config, url string) (*workspaces.Endpoint, error) {
	workspace = rest.CopyConfig(workspace)
	workspace.UserAgent = fieldManager
	return workspaces.NewEndpoint(workspace, url)
}

// startShard connects to a URL, and watches objects of tenants that instances depend on: Secrets with connections, and bindings of the
// export. It runs one watch of each for all workspaces, and caches no objects.
func (r *runner) startShard(ctx context.Context, url string) error {
	at, err := endpointAt(r.Workspace, url)
	if err != nil {
		return err
	}
	s := &shard{events: workspaces.NewRecorder(fieldManager, map[string]string{LabelEvent(r.Group): "true"})}
	if s.dynamic, err = at.Dynamic(); err != nil {
		return fmt.Errorf("connecting to %s: %w", url, err)
	}
	if s.workspaces, err = at.WithTimeout(workspaceTimeout).Clients(claimed, workspaces.Secrets, workspaces.Events); err != nil {
		return err
	}
	objects, err := at.Metadata()
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", url, err)
	}
	secrets := workspaces.NewWatch(objects.Resource(workspaces.Secrets.GroupVersionResource()), LabelConnection(r.Group)+"=true",
		func(secret *metav1.PartialObjectMetadata) { r.enqueueOwner(url, secret) }, func() { r.enqueueShard(url) })
	bound := workspaces.NewWatch(objects.Resource(bindings), "",
		func(binding *metav1.PartialObjectMetadata) { r.enqueueCluster(url, logicalcluster.Of(binding)) }, func() {})
	r.shards.Start(ctx, url, s, s.events.Run, secrets.Run, bound.Run)
	return nil
}

// at returns the kinds behind a URL.
func (r *runner) at(url string) []*kind {
	return slices.DeleteFunc(r.kinds.All(), func(k *kind) bool { return k.url != url })
}

// enqueueOwner enqueues the instance that a Secret belongs to.
func (r *runner) enqueueOwner(url string, secret *metav1.PartialObjectMetadata) {
	cluster := logicalcluster.Of(secret).String()
	for _, owner := range secret.OwnerReferences {
		version, err := schema.ParseGroupVersion(owner.APIVersion)
		if err != nil || version.Group != r.Group {
			continue
		}
		for _, k := range r.at(url) {
			if k.template().Spec.InstanceCRD.Kind == owner.Kind && k.get(cluster, owner.Name) != nil {
				r.controller.Add(request{k.url, k.gvr, cluster, owner.Name})
			}
		}
	}
}

// enqueueCluster enqueues the instances of a logical cluster.
func (r *runner) enqueueCluster(url string, cluster logicalcluster.Name) {
	for _, k := range r.at(url) {
		for _, found := range k.informer.InCluster(cluster.String()) {
			r.controller.Add(request{k.url, k.gvr, found.Cluster, found.Name})
		}
	}
}

// enqueueShard enqueues the instances behind a URL.
func (r *runner) enqueueShard(url string) {
	for _, k := range r.at(url) {
		k.enqueueAll(r)
	}
}
