package dynamic

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// errRemoteParams is the error for a policy of another shard that has parameters: shards publish policies, but not
// the objects that they reference. The policy's failurePolicy decides about the request.
var errRemoteParams = errors.New("the parameters of the policy are in a workspace of another shard and cannot be read here")

// paramInformer returns an informer for the parameters of a policy in the context's logical cluster, and their scope.
// It fails if the logical cluster does not serve the kind in this version, or is on another shard.
func (p *Plugins) paramInformer(ctx context.Context, kind schema.GroupVersionKind) (informers.GenericInformer, meta.RESTScope, error) {
	cluster, err := clusterOf(ctx)
	if err != nil {
		return nil, nil, err
	}
	if local, err := p.config.Registry.IsLocal(ctx, cluster); err != nil || !local {
		return nil, nil, errors.Join(errRemoteParams, err)
	}
	resource, err := p.config.Registry.ResolveKind(ctx, kind.GroupKind())
	if err != nil {
		return nil, nil, fmt.Errorf("finding the resource of paramKind %v: %w", kind, err)
	}
	if resource == nil {
		return nil, nil, newParamKindNotFound(kind)
	}
	scope := meta.RESTScopeRoot
	if resource.Namespaced {
		scope = meta.RESTScopeNamespace
	}
	if compiled, err := p.config.Registry.Get(resource.GVR.GroupResource()); err == nil && compiled == resource {
		if resource.Kind.Version != kind.Version {
			return nil, nil, newParamKindNotFound(kind)
		}
		reader := storage.NewReader[runtime.Object](p.config.Registry, resource.GVR.GroupResource())
		return paramReader{compiledParams{ctx: ctx, reader: reader, convert: p.config.Scheme, version: kind.GroupVersion()}}, scope, nil
	}
	served, err := p.custom.isServed(ctx, resource.GVR.GroupResource(), kind.Version)
	if err != nil {
		return nil, nil, err
	}
	if !served {
		return nil, nil, newParamKindNotFound(kind)
	}
	client := p.config.Custom.Resource(resource.GVR.GroupResource().WithVersion(kind.Version))
	return paramReader{customParams{ctx: ctx, all: client, client: client}}, scope, nil
}

func newParamKindNotFound(kind schema.GroupVersionKind) error {
	return fmt.Errorf("failed to find resource referenced by paramKind: '%v'", kind)
}

// paramReader adapts a lister to the informer interface of upstream. It reads on demand.
type paramReader struct{ lister cache.GenericLister }

func (paramReader) Informer() cache.SharedIndexInformer { return syncedInformer{} }
func (r paramReader) Lister() cache.GenericLister       { return r.lister }

// compiledParams reads objects of a compiled-in type from the watch cache.
type compiledParams struct {
	// ctx is that of the request, because upstream's lister interface has no context parameter.
	ctx       context.Context
	reader    *storage.Reader[runtime.Object]
	convert   *runtime.Scheme
	version   schema.GroupVersion
	namespace string
}

func (c compiledParams) ByNamespace(namespace string) cache.GenericNamespaceLister {
	c.namespace = namespace
	return c
}

func (c compiledParams) Get(name string) (runtime.Object, error) {
	found, err := c.reader.Get(c.ctx, c.namespace, name)
	if err != nil {
		return nil, err
	}
	return c.convert.ConvertToVersion(found, c.version)
}

func (c compiledParams) List(selector labels.Selector) ([]runtime.Object, error) {
	found, err := c.reader.List(c.ctx, c.namespace, selector)
	if err != nil {
		return nil, err
	}
	converted := make([]runtime.Object, len(found))
	for i, one := range found {
		if converted[i], err = c.convert.ConvertToVersion(one, c.version); err != nil {
			return nil, err
		}
	}
	return converted, nil
}

// customParams reads custom resources through the shard's API, which converts them to the version of the policy. It
// reads with resource version 0, from the watch cache.
type customParams struct {
	// ctx is that of the request, because upstream's lister interface has no context parameter.
	ctx    context.Context
	all    dynamic.NamespaceableResourceInterface
	client dynamic.ResourceInterface
}

func (c customParams) ByNamespace(namespace string) cache.GenericNamespaceLister {
	c.client = c.all.Namespace(namespace)
	return c
}

func (c customParams) Get(name string) (runtime.Object, error) {
	found, err := c.client.Get(c.ctx, name, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (c customParams) List(selector labels.Selector) ([]runtime.Object, error) {
	found, err := c.client.List(c.ctx, metav1.ListOptions{ResourceVersion: "0", LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	all := make([]runtime.Object, len(found.Items))
	for i := range found.Items {
		all[i] = &found.Items[i]
	}
	return all, nil
}
