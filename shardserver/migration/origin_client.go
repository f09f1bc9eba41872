package migration

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

const (
	// maxErrorBytes bounds what is read of an error.
	maxErrorBytes = 64 << 10
	// maxChangesBytes bounds the list of objects of a large logical cluster, maxResponseBytes other responses: etcd refuses larger
	// values, and base64 adds a third.
	maxChangesBytes  = 256 << 20
	maxResponseBytes = 16 << 20
	// maxValueBytes is the size of the largest value in such a response.
	maxValueBytes = maxResponseBytes / 4 * 3
	// requestTimeout bounds one request with its response. Responses with many values take the longest.
	requestTimeout = 2 * time.Minute
)

// Connector connects to other shards, with the certificate of this shard.
type Connector struct {
	Shards endpoints.ShardLister
	// Config has the credentials and the CA, but no address.
	Config func() (*rest.Config, error)
}

// connect returns a client for a shard. The caller closes it.
func (c Connector) connect(ctx context.Context, shard string) (*peer, error) {
	object, err := c.Shards.Get(ctx, shard)
	if err != nil {
		return nil, fmt.Errorf("reading the address of shard %q: %w", shard, err)
	}
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	client, err := newClient(config)
	if err != nil {
		return nil, err
	}
	address := object.Spec.VirtualWorkspaceURL
	if address == "" {
		address = object.Spec.BaseURL
	}
	return &peer{http: client, address: strings.TrimSuffix(address, "/")}, nil
}

// newClient returns a client whose requests have a timeout. It follows no redirects, because the response of another shard would be
// accepted as that of the requested one.
func newClient(config *rest.Config) (*http.Client, error) {
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	client := *shared
	client.Timeout = requestTimeout
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client, nil
}

// peer is another shard.
type peer struct {
	http    *http.Client
	address string
}

func (p *peer) close() { p.http.CloseIdleConnections() }

// originClient sends the requests of one migration to the origin.
type originClient struct {
	*peer
	cluster   logicalcluster.Name
	migration controller.Request
	// following is what the origin remembers of this attempt to copy.
	following string
}

// at returns the path of an operation.
func (c *originClient) at(op operation) string { return operationPath(c.cluster, c.migration, op) }

// changes returns what has changed at the origin since a revision; nil if the origin is still reading all values.
func (c *originClient) changes(ctx context.Context, since int64) (*transfer.Changes, error) {
	response, err := postLimited[changesResponse](ctx, c.peer, c.at(opChanges), changesRequest{Following: c.following, Since: since}, maxChangesBytes)
	if errors.Is(err, errTooLarge) {
		return nil, fmt.Errorf("the list of the objects has more than %d MiB: delete objects of the logical cluster, or replace those with long names", maxChangesBytes>>20)
	}
	if err != nil {
		return nil, err
	}
	c.following = response.Following
	return response.Changes, nil
}

func (c *originClient) entries(ctx context.Context, keys []transfer.Key) (*entriesResponse, error) {
	response, err := post[entriesResponse](ctx, c.peer, c.at(opEntries), entriesRequest{Following: c.following, Keys: keys})
	if errors.Is(err, errTooLarge) && len(keys) > 0 { // a large object comes alone, as the first
		return nil, fmt.Errorf("an object of %s is larger than shards transfer, about %d MiB: make it smaller, or delete it", keys[0].Resource, maxValueBytes>>20)
	}
	return response, err
}

// keepFollowing makes the origin retain the state of its answers to this shard, until the caller stops it: while this shard reads or deletes
// much of a copy, it sends no other request for longer than the origin retains that state.
func (c *originClient) keepFollowing(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	origin, ended := *c, make(chan struct{}) // the field following is set again by each response
	go func() {
		defer close(ended)
		ticker := time.NewTicker(followingTimeout / 4)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				_, _ = origin.entries(ctx, nil) // the next request that needs the answer fails, too
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (c *originClient) pause(ctx context.Context) (*pauseResponse, error) {
	return post[pauseResponse](ctx, c.peer, c.at(opPause), nil)
}

func (c *originClient) resume(ctx context.Context) error {
	_, err := post[struct{}](ctx, c.peer, c.at(opResume), nil)
	return err
}

func (c *originClient) handOver(ctx context.Context, request handOverRequest) (*handOverResponse, error) {
	request.Following = c.following
	return post[handOverResponse](ctx, c.peer, c.at(opHandOver), request)
}

// post sends a request to a path of a peer.
func post[T any](ctx context.Context, p *peer, path string, body any) (*T, error) {
	return postLimited[T](ctx, p, path, body, maxResponseBytes)
}

// postLimited is post for a response of at most maxBytes.
func postLimited[T any](ctx context.Context, p *peer, path string, body any, maxBytes int64) (*T, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.address+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	response, err := p.http.Do(req)
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return nil, fmt.Errorf("%w: set --shard-virtual-workspace-ca-file to the CA of the origin's serving certificate", err)
	}
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, responseError(response)
	}
	out := new(T)
	limited := &io.LimitedReader{R: response.Body, N: maxBytes + 1}
	if err := json.NewDecoder(limited).Decode(out); limited.N == 0 {
		return nil, errTooLarge
	} else if err != nil {
		return nil, fmt.Errorf("decoding the response to %s: %w", path, err)
	}
	return out, nil
}

// responseError returns the message of a response that is no success.
func responseError(response *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
	if err != nil {
		return fmt.Errorf("the shard answers %s", response.Status)
	}
	status := &metav1.Status{}
	err = fmt.Errorf("the shard answers %s", response.Status)
	if json.Unmarshal(text, status) == nil && status.Message != "" {
		err = fmt.Errorf("%w: %s", err, status.Message)
	}
	if response.StatusCode == http.StatusTooManyRequests && status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		return &retryLaterError{err, min(time.Duration(status.Details.RetryAfterSeconds)*time.Second, maxPauseInterval)}
	}
	switch response.StatusCode {
	case http.StatusConflict:
		return &conflictError{err}
	case http.StatusNotFound:
		return &notFoundError{err}
	}
	return err
}

// errTooLarge is returned for a response that exceeds its limit.
var errTooLarge = errors.New("the response is too large")

// conflictError is the answer of a shard whose LogicalCluster is in another state.
type conflictError struct{ error }

// notFoundError is the answer of a shard that does not serve a path.
type notFoundError struct{ error }

// retryLaterError is a response after which the client has to repeat the request later.
type retryLaterError struct {
	error
	after time.Duration
}
