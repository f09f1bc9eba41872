package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// Prefix is the path of caches. A standalone cache server also serves without it.
	Prefix = "/services/cache"
	// IncarnationHeader identifies the store of a cache in every response. The server rejects a watch with the header
	// of another store with 410, so that a watch never resumes at a resource version of a lost store.
	IncarnationHeader = "Kcp-Cache-Incarnation"

	// requestTimeout bounds all requests except watches.
	requestTimeout = time.Minute
	// maxError bounds the body of an error in bytes.
	maxError = 1 << 20
)

// Client reads and writes one cache as one shard. It is safe for concurrent use.
type Client struct {
	base  url.URL
	http  *http.Client
	shard string
	clock *clockSkew
}

// New returns a client that writes as the shard. The path of config.Host is cut off at "/clusters/" or "/services/", so
// that the kubeconfig of a shard that embeds its cache works. It opens no connection. shard may be empty for clients
// that only read.
func New(config *rest.Config, shard string) (*Client, error) {
	unlimited := rest.CopyConfig(config)
	unlimited.QPS, unlimited.RateLimiter, unlimited.Timeout = -1, nil, 0
	base, _, err := rest.DefaultServerUrlFor(unlimited)
	if err != nil {
		return nil, fmt.Errorf("address of the cache server: %w", err)
	}
	for _, end := range []string{"/clusters/", "/services/"} {
		base.Path, _, _ = strings.Cut(base.Path+"/", end)
	}
	base.Path = strings.TrimRight(base.Path, "/") + Prefix
	client, err := rest.HTTPClientFor(unlimited)
	if err != nil {
		return nil, fmt.Errorf("credentials for the cache server: %w", err)
	}
	return &Client{base: *base, http: client, shard: shard, clock: &clockSkew{}}, nil
}

// Address returns the URL of the cache.
func (c *Client) Address() string { return c.base.String() }

// ForShard returns the same client, with the same connections, writing as another shard.
func (c *Client) ForShard(shard string) *Client {
	return &Client{base: c.base, http: c.http, shard: shard, clock: c.clock}
}

// IsRefused returns whether an error of a write means that the cache will not accept this object in this state, however
// often it is written.
func IsRefused(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// CloseIdleConnections closes idle connections. Watches end with their contexts.
func (c *Client) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }

// List returns all objects of a resource of all shards and logical clusters, and the position at which a watch resumes.
func (c *Client) List(ctx context.Context, gvr schema.GroupVersionResource) ([]*Object, Position, error) {
	return c.list(ctx, gvr, "*", logicalcluster.Wildcard)
}

// ListScoped returns the objects of a resource of one shard, in a logical cluster or in all (logicalcluster.Wildcard).
func (c *Client) ListScoped(ctx context.Context, gvr schema.GroupVersionResource, shard string, cluster logicalcluster.Name) ([]*Object, Position, error) {
	return c.list(ctx, gvr, shard, cluster)
}

func (c *Client) list(ctx context.Context, gvr schema.GroupVersionResource, shard string, cluster logicalcluster.Name) ([]*Object, Position, error) {
	body, header, err := c.do(ctx, http.MethodGet, c.url(gvr, Key{Shard: shard, Cluster: cluster}, nil), nil)
	if err != nil {
		return nil, Position{}, fmt.Errorf("listing %s in the cache: %w", gvr.GroupResource(), err)
	}
	var list struct {
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, Position{}, fmt.Errorf("decoding the list of %s of the cache: %w", gvr.GroupResource(), err)
	}
	objects := make([]*Object, 0, len(list.Items))
	for _, raw := range list.Items {
		// Without a copy the smallest object would keep the bytes of all alive.
		object, err := parseObject(bytes.Clone(raw))
		if err != nil {
			return nil, Position{}, err
		}
		objects = append(objects, object)
	}
	return objects, Position{ResourceVersion: list.Metadata.ResourceVersion, Incarnation: header.Get(IncarnationHeader)}, nil
}

// Get returns one object of the shard of the key.
func (c *Client) Get(ctx context.Context, gvr schema.GroupVersionResource, key Key) (*Object, error) {
	return c.requestObject(ctx, http.MethodGet, gvr, key, nil)
}

// Create publishes an object of the client's shard in a logical cluster and returns it as stored. Kind and apiVersion
// may be missing where FindResource has the resource. The object must have no resource version. One that carries the
// annotation kcp.io/shard keeps its uid, generation and creation timestamp.
func (c *Client) Create(ctx context.Context, gvr schema.GroupVersionResource, cluster logicalcluster.Name, obj Publishable) (*Object, error) {
	key := Key{Shard: c.shard, Cluster: cluster, Namespace: obj.GetNamespace()}
	return c.write(ctx, http.MethodPost, gvr, key, obj)
}

// Update replaces an object of the client's shard. It must have the resource version of the cache; its uid, if it has
// one, must be that of the object in the cache. Otherwise the answer is a conflict.
func (c *Client) Update(ctx context.Context, gvr schema.GroupVersionResource, cluster logicalcluster.Name, obj Publishable) (*Object, error) {
	key := Key{Shard: c.shard, Cluster: cluster, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	return c.write(ctx, http.MethodPut, gvr, key, obj)
}

// Delete deletes an object at once, regardless of finalizers. Unless empty, uid is a precondition. If the shard of the
// key is empty, it is that of the client.
func (c *Client) Delete(ctx context.Context, gvr schema.GroupVersionResource, key Key, uid types.UID) error {
	if key.Shard == "" {
		key.Shard = c.shard
	}
	options := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}}
	if uid != "" {
		options.Preconditions = metav1.NewUIDPreconditions(string(uid))
	}
	body, err := json.Marshal(options)
	if err != nil {
		return fmt.Errorf("encoding delete options: %w", err)
	}
	if _, _, err := c.do(ctx, http.MethodDelete, c.url(gvr, key, nil), body); err != nil {
		return fmt.Errorf("deleting %s %s in the cache: %w", gvr.GroupResource(), key, err)
	}
	return nil
}

// Publishable is an object of a Go type in its stored version, or unstructured.
type Publishable interface {
	metav1.Object
	runtime.Object
}

func (c *Client) write(ctx context.Context, verb string, gvr schema.GroupVersionResource, key Key, obj Publishable) (*Object, error) {
	if c.shard == "" {
		return nil, errors.New("a client without a shard cannot write to the cache")
	}
	if obj.GetObjectKind().GroupVersionKind().Empty() {
		resource, ok := FindResource(gvr.GroupResource())
		if !ok {
			return nil, fmt.Errorf("%s %s has no kind and apiVersion", gvr.GroupResource(), obj.GetName())
		}
		obj = obj.DeepCopyObject().(Publishable)
		obj.GetObjectKind().SetGroupVersionKind(resource.GroupVersionKind())
	}
	body, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s: %w", gvr.GroupResource(), obj.GetName(), err)
	}
	return c.requestObject(ctx, verb, gvr, key, body)
}

func (c *Client) requestObject(ctx context.Context, verb string, gvr schema.GroupVersionResource, key Key, body []byte) (*Object, error) {
	responseBody, _, err := c.do(ctx, verb, c.url(gvr, key, nil), body)
	if err != nil {
		return nil, fmt.Errorf("%s %s %s in the cache: %w", verb, gvr.GroupResource(), key, err)
	}
	return parseObject(responseBody)
}

// url addresses a resource, or one object of it if the key has a name.
func (c *Client) url(gvr schema.GroupVersionResource, key Key, query url.Values) string {
	segments := []string{"shards", key.Shard, "clusters", key.Cluster.String()}
	if gvr.Group == "" {
		segments = append(segments, "api", gvr.Version)
	} else {
		segments = append(segments, "apis", gvr.Group, gvr.Version)
	}
	if key.Namespace != "" {
		segments = append(segments, "namespaces", key.Namespace)
	}
	segments = append(segments, gvr.Resource)
	if key.Name != "" {
		segments = append(segments, key.Name)
	}
	address := c.base
	address.Path += "/" + strings.Join(segments, "/")
	address.RawQuery = query.Encode()
	return address.String()
}

// do sends a request and reads the whole response. Failures are API errors.
func (c *Client) do(ctx context.Context, verb, address string, body []byte) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := c.send(ctx, verb, address, body, nil)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	responseBody, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the response: %w", err)
	}
	return responseBody, response.Header, nil
}

// send returns the response to a request if it is a success.
func (c *Client) send(ctx context.Context, verb, address string, body []byte, header http.Header) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, verb, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	request.Header.Set("Accept", runtime.ContentTypeJSON)
	request.Header.Set(MemberHeader, "true")
	if body != nil {
		request.Header.Set("Content-Type", runtime.ContentTypeJSON)
	}
	sent := time.Now()
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	c.clock.observe(response.Header, sent, time.Now())
	if response.StatusCode >= http.StatusOK && response.StatusCode < http.StatusMultipleChoices {
		return response, nil
	}
	defer response.Body.Close()
	responseBody, _ := io.ReadAll(io.LimitReader(response.Body, maxError))
	status := metav1.Status{}
	if err := json.Unmarshal(responseBody, &status); err == nil && status.Kind == "Status" && status.Status == metav1.StatusFailure {
		return nil, apierrors.FromObject(&status)
	}
	return nil, apierrors.NewGenericServerResponse(response.StatusCode, verb, schema.GroupResource{}, "", strings.TrimSpace(string(responseBody)), 0, true)
}
