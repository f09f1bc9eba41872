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

// The Accept headers of requests for metadata only, for a watch and for a list.
const (
	acceptMetadata     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	acceptMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// resourceClient lists and watches one resource of one server. It implements cache.ListerWatcherWithContext.
type resourceClient struct {
	client   rest.Interface
	resource string
	// metadataOnly requests the metadata of objects only.
	metadataOnly bool
	// identity is that of the export of the resource; nil if it has none.
	identity *exportIdentity
}

// newResourceClient returns a client for <server>/clusters/<cluster>/apis/<group version>/<resource>.
func newResourceClient(config *rest.Config, cluster string, gv schema.GroupVersion, resource string) (resourceClient, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/clusters/" + cluster + "/apis"
	config.GroupVersion = &gv
	config.NegotiatedSerializer = newSerializer()
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.QPS = -1 // watches need no rate limit
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return resourceClient{}, fmt.Errorf("client for %s at %s: %w", resource, config.Host, err)
	}
	return resourceClient{client: client, resource: resource}, nil
}

// get returns a GET request for the resource. Over all logical clusters, an exported resource is
// "<resource>:<identity>".
func (c resourceClient) get(ctx context.Context, accept string, options metav1.ListOptions) (*rest.Request, error) {
	resource := c.resource
	if c.identity != nil {
		hash, err := c.identity.get(ctx)
		if err != nil {
			return nil, err
		}
		resource += ":" + hash
	}
	req := c.client.Get().Resource(resource).VersionedParams(&options, metav1.ParameterCodec)
	if c.metadataOnly {
		req = req.SetHeader("Accept", accept)
	}
	return req, nil
}

// ListWithContext implements cache.ListerWatcherWithContext. A server with a watch cache serves the latest list from
// there.
func (c resourceClient) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	req, err := c.get(ctx, acceptMetadataList, options)
	if err != nil {
		return nil, err
	}
	list, err := req.Do(ctx).Get()
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", c.resource, err)
	}
	return list, nil
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (c resourceClient) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	req, err := c.get(ctx, acceptMetadata, options)
	if err != nil {
		return nil, err
	}
	events, err := req.Watch(ctx)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", c.resource, err)
	}
	return events, nil
}
