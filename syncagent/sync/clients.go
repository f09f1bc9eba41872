package sync

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/internal/expression"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/syncer"
)

// storeClient is a client whose writes of one resource are visible in the store of an informer immediately.
type storeClient struct {
	client.Client
	resource workspaces.Resource
	store    *workspaces.Store
}

func (c *storeClient) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	return c.wrote(object, c.Client.Update(ctx, object, options...))
}

func (c *storeClient) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return c.wrote(object, c.Client.Patch(ctx, object, patch, options...))
}

func (c *storeClient) Status() client.SubResourceWriter {
	return &storeStatusWriter{c.Client.Status(), c}
}

// wrote adds the response to a write to the store.
func (c *storeClient) wrote(object client.Object, err error) error {
	if u, ok := object.(*unstructured.Unstructured); ok && err == nil && u.GroupVersionKind() == c.resource.GroupVersionKind {
		c.store.Wrote(u)
	}
	return err
}

// storeStatusWriter is storeClient for the status.
type storeStatusWriter struct {
	client.SubResourceWriter
	client *storeClient
}

func (w *storeStatusWriter) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	return w.client.wrote(object, w.SubResourceWriter.Update(ctx, object, options...))
}

func (w *storeStatusWriter) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	return w.client.wrote(object, w.SubResourceWriter.Patch(ctx, object, patch, options...))
}

// workspaceClient is the client of one logical cluster that reads primary objects from the store of their informer.
type workspaceClient struct {
	client.Client
	cluster  logicalcluster.Name
	resource workspaces.Resource
	store    *workspaces.Store
}

// newWorkspaceClient returns a client whose reads and writes of a resource use a store.
func newWorkspaceClient(inner client.Client, cluster logicalcluster.Name, resource workspaces.Resource, store *workspaces.Store) *workspaceClient {
	return &workspaceClient{Client: &storeClient{inner, resource, store}, cluster: cluster, resource: resource, store: store}
}

func (c *workspaceClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	u, ok := object.(*unstructured.Unstructured)
	if !ok || u.GroupVersionKind() != c.resource.GroupVersionKind {
		return c.Client.Get(ctx, key, object, options...)
	}
	found := c.store.Get(workspaces.Key{Cluster: c.cluster.String(), Namespace: key.Namespace, Name: key.Name})
	if found == nil {
		return apierrors.NewNotFound(c.resource.GroupVersionResource().GroupResource(), key.Name)
	}
	u.Object = found.Object
	return nil
}

// copies finds copies in the store of their informer.
type copies struct{ *workspaces.Store }

// Find implements syncer.Copies.
func (c copies) Find(_ context.Context, source syncer.Source) ([]unstructured.Unstructured, error) {
	var found []unstructured.Unstructured
	for _, key := range c.ByIndex(indexOfSource(source.Cluster.String(), source.Namespace, source.Name)) {
		if object := c.Get(key); object != nil {
			found = append(found, *object)
		}
	}
	return found, nil
}

// indexOfSource returns the index key that a primary object and its copy share.
func indexOfSource(cluster, namespace, name string) workspaces.IndexKey {
	namespaceHash := ""
	if namespace != "" {
		namespaceHash = expression.SHA1Hex(namespace)
	}
	return workspaces.NewIndexKey(cluster, namespaceHash, expression.SHA1Hex(name))
}

// indexPrimary is the index of informers of primary objects.
func indexPrimary(object *unstructured.Unstructured) workspaces.IndexKey {
	return indexOfSource(logicalcluster.Of(object).String(), object.GetNamespace(), object.GetName())
}

// indexCopy is the index of informers of copies. It needs the labels only, because the syncer can repair missing annotations.
func indexCopy(object *unstructured.Unstructured) workspaces.IndexKey {
	labels := object.GetLabels()
	if labels[publication.LabelRemoteCluster] == "" || labels[publication.LabelRemoteNameHash] == "" {
		return workspaces.IndexKey{}
	}
	return workspaces.NewIndexKey(labels[publication.LabelRemoteCluster], labels[publication.LabelRemoteNamespaceHash], labels[publication.LabelRemoteNameHash])
}
