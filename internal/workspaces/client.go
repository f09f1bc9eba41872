package workspaces

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Clients is the client of all workspaces of an endpoint.
type Clients struct{ client client.Client }

// Client returns a client whose requests go to one logical cluster. It has two words, so callers create it for each use and do not cache
// it.
func (c *Clients) Client(cluster logicalcluster.Name) client.Client {
	return &workspaceClient{c.client, cluster}
}

// workspaceClient adds the logical cluster to the context of every request.
type workspaceClient struct {
	client.Client
	cluster logicalcluster.Name
}

func (c *workspaceClient) in(ctx context.Context) context.Context {
	return logicalcluster.With(ctx, c.cluster)
}

func (c *workspaceClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return c.Client.Get(c.in(ctx), key, object, options...)
}

func (c *workspaceClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.Client.List(c.in(ctx), list, options...)
}

func (c *workspaceClient) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return c.Client.Create(c.in(ctx), object, options...)
}

func (c *workspaceClient) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	return c.Client.Update(c.in(ctx), object, options...)
}

func (c *workspaceClient) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return c.Client.Patch(c.in(ctx), object, patch, options...)
}

func (c *workspaceClient) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	return c.Client.Apply(c.in(ctx), object, options...)
}

func (c *workspaceClient) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return c.Client.Delete(c.in(ctx), object, options...)
}

func (c *workspaceClient) DeleteAllOf(ctx context.Context, object client.Object, options ...client.DeleteAllOfOption) error {
	return c.Client.DeleteAllOf(c.in(ctx), object, options...)
}

func (c *workspaceClient) Status() client.SubResourceWriter { return c.SubResource("status") }

func (c *workspaceClient) SubResource(name string) client.SubResourceClient {
	return &subresourceClient{c.Client.SubResource(name), c.cluster}
}

// subresourceClient is workspaceClient for subresources.
type subresourceClient struct {
	client.SubResourceClient
	cluster logicalcluster.Name
}

func (c *subresourceClient) in(ctx context.Context) context.Context {
	return logicalcluster.With(ctx, c.cluster)
}

func (c *subresourceClient) Get(ctx context.Context, object, subresource client.Object, options ...client.SubResourceGetOption) error {
	return c.SubResourceClient.Get(c.in(ctx), object, subresource, options...)
}

func (c *subresourceClient) Create(ctx context.Context, object, subresource client.Object, options ...client.SubResourceCreateOption) error {
	return c.SubResourceClient.Create(c.in(ctx), object, subresource, options...)
}

func (c *subresourceClient) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	return c.SubResourceClient.Update(c.in(ctx), object, options...)
}

func (c *subresourceClient) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	return c.SubResourceClient.Patch(c.in(ctx), object, patch, options...)
}

func (c *subresourceClient) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
	return c.SubResourceClient.Apply(c.in(ctx), object, options...)
}
