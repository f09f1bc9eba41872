package view

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/internal/workspaces"
)

// Client is the client interface that the syncer needs.
type Client interface {
	client.Reader
	client.Writer
	client.StatusClient
}

// NewClient returns a client for callers that use the name of a published resource in workspaces. It wraps a client for a URL that serves
// the resource under another name. States, events and other data that contain the name are therefore independent of the URL.
func NewClient(c Client, workspace, served workspaces.Resource) Client {
	if workspace.GroupVersionKind == served.GroupVersionKind {
		return c
	}
	return &renamingClient{c, kinds{workspace.GroupVersionKind, served.GroupVersionKind}}
}

// kinds are the kind of a resource in workspaces, and the kind under which it is served.
type kinds struct{ workspace, served schema.GroupVersionKind }

// call calls a function while an object has the served kind.
func (k kinds) call(object runtime.Object, call func() error) error {
	kind := object.GetObjectKind()
	if kind.GroupVersionKind() != k.workspace {
		return call()
	}
	kind.SetGroupVersionKind(k.served)
	defer kind.SetGroupVersionKind(k.workspace)
	return call()
}

type renamingClient struct {
	Client
	kinds
}

func (c *renamingClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return c.call(object, func() error { return c.Client.Get(ctx, key, object, options...) })
}

func (c *renamingClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	found, ok := list.(*unstructured.UnstructuredList)
	workspaceList := c.workspace.GroupVersion().WithKind(c.workspace.Kind + "List")
	if !ok || found.GroupVersionKind() != workspaceList {
		return c.Client.List(ctx, list, options...)
	}
	found.SetGroupVersionKind(c.served.GroupVersion().WithKind(c.served.Kind + "List"))
	defer found.SetGroupVersionKind(workspaceList)
	if err := c.Client.List(ctx, found, options...); err != nil {
		return err
	}
	for i := range found.Items {
		found.Items[i].SetGroupVersionKind(c.workspace)
	}
	return nil
}

func (c *renamingClient) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return c.call(object, func() error { return c.Client.Create(ctx, object, options...) })
}

func (c *renamingClient) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	return c.call(object, func() error { return c.Client.Update(ctx, object, options...) })
}

func (c *renamingClient) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return c.call(object, func() error { return c.Client.Patch(ctx, object, patch, options...) })
}

func (c *renamingClient) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return c.call(object, func() error { return c.Client.Delete(ctx, object, options...) })
}

func (c *renamingClient) Status() client.SubResourceWriter {
	return &renamingStatus{c.Client.Status(), c.kinds}
}

// renamingStatus is renamingClient for the status.
type renamingStatus struct {
	client.SubResourceWriter
	kinds
}

func (r *renamingStatus) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	return r.call(object, func() error { return r.SubResourceWriter.Update(ctx, object, options...) })
}

func (r *renamingStatus) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	return r.call(object, func() error { return r.SubResourceWriter.Patch(ctx, object, patch, options...) })
}
