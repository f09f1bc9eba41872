package shards

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// pageSize bounds what is decoded at a time while a shard is listed.
const pageSize = 500

// What a server is asked to send of objects whose metadata is all that is read, of one and of a list.
const (
	metadataOnly     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	listMetadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// source is one resource at one server: where objects come from.
type source struct {
	client   rest.Interface
	resource string
	// metadata asks for no more than the objects' metadata.
	metadata bool
	// identity names the export that the resource comes from; nil for what needs none.
	identity *identity
}

// newSource prepares a client for <server>/clusters/<cluster>/apis/<group version>/<resource>.
func newSource(config *rest.Config, cluster string, gv schema.GroupVersion, resource string) (source, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/clusters/" + cluster + "/apis"
	config.GroupVersion = &gv
	config.NegotiatedSerializer = newCodecs().WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.QPS = -1 // a long watch needs no limit
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return source{}, fmt.Errorf("client for %s at %s: %w", resource, config.Host, err)
	}
	return source{client: client, resource: resource}, nil
}

// request begins a GET of the resource as a request over all logical clusters names it, "<resource>:<identity>".
func (s source) request(ctx context.Context, accept string, options metav1.ListOptions) (*rest.Request, error) {
	resource := s.resource
	if s.identity != nil {
		hash, err := s.identity.get(ctx)
		if err != nil {
			return nil, err
		}
		resource += ":" + hash
	}
	req := s.client.Get().Resource(resource).VersionedParams(&options, metav1.ParameterCodec)
	if s.metadata {
		req = req.SetHeader("Accept", accept)
	}
	return req, nil
}

// page reads one page of the latest list. A server with a watch cache answers it from there.
func (s source) page(ctx context.Context, token string) (runtime.Object, error) {
	req, err := s.request(ctx, listMetadataOnly, metav1.ListOptions{Limit: pageSize, Continue: token})
	if err != nil {
		return nil, err
	}
	return req.Do(ctx).Get()
}

// watch opens a watch of what happens after the version. The server ends it after about the given time.
func (s source) watch(ctx context.Context, version string, seconds int64) (watch.Interface, error) {
	req, err := s.request(ctx, metadataOnly, metav1.ListOptions{
		Watch: true, ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return nil, err
	}
	return req.Watch(ctx)
}
