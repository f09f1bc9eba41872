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

// pageSize is the number of objects in a page of a list.
const pageSize = 500

// The Accept headers of requests for metadata only, for a watch and for a list.
const (
	acceptMetadata     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	acceptMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// resourceClient lists and watches one resource of one server.
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
	config.NegotiatedSerializer = newCodecs().WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.QPS = -1 // watches need no rate limit
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return resourceClient{}, fmt.Errorf("client for %s at %s: %w", resource, config.Host, err)
	}
	return resourceClient{client: client, resource: resource}, nil
}

// get returns a GET request for the resource. Over all logical clusters, an exported resource is "<resource>:<identity>".
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

// listPage returns one page of the latest list, which a server with a watch cache serves from there.
func (c resourceClient) listPage(ctx context.Context, token string) (runtime.Object, error) {
	req, err := c.get(ctx, acceptMetadataList, metav1.ListOptions{Limit: pageSize, Continue: token})
	if err != nil {
		return nil, err
	}
	return req.Do(ctx).Get()
}

// watch opens a watch after a resource version, which the server ends after about the given time.
func (c resourceClient) watch(ctx context.Context, version string, seconds int64) (watch.Interface, error) {
	req, err := c.get(ctx, acceptMetadata, metav1.ListOptions{
		Watch: true, ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return nil, err
	}
	return req.Watch(ctx)
}
