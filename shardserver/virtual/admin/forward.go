package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

// forwardedHeaders are the headers of a request that the root shard receives. None is about the identity of the user: the shard connects as
// itself.
var forwardedHeaders = []string{"Accept", "Accept-Encoding", "Content-Type", "If-None-Match", "User-Agent"}

// ForwardConfig holds the dependencies of the virtual workspace of a shard that is not root. All fields are required.
type ForwardConfig struct {
	// Root is a client configuration for the root shard, with the credentials of this shard.
	Root *rest.Config
	// Serializer encodes errors.
	Serializer runtime.NegotiatedSerializer
	// Stopping ends when the server stops. Watches end then.
	Stopping context.Context
}

// NewForwarding returns the virtual workspace of a shard that is not root: it authorizes requests, and has the root shard answer them. All shards
// thus have the same content at the same resource versions. The root shard lets a shard read all Shards, and decide about its own only.
func NewForwarding(cfg ForwardConfig) (*virtual.Workspace, error) {
	target, _, err := rest.DefaultServerUrlFor(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("the address of the root shard: %w", err)
	}
	transport, err := rest.TransportFor(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("connecting to the root shard: %w", err)
	}
	handler := &forwarder{ForwardConfig: cfg, target: target, transport: transport}
	return &virtual.Workspace{
		Name:       name,
		Resolve:    resolve,
		Authorizer: groupAuthorizer{},
		Handler:    func(http.Handler) http.Handler { return handler },
		IsOpen:     func(virtual.Request, *corev1alpha1.LogicalCluster) bool { return true },
	}, nil
}

type forwarder struct {
	ForwardConfig
	target    *url.URL
	transport http.RoundTripper
}

// ServeHTTP implements http.Handler.
func (f *forwarder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !strings.HasPrefix(targetPath(req)+"/", prefix) {
		responsewriters.ErrorNegotiated(apierrors.NewNotFound(schema.GroupResource{}, ""), f.Serializer, schema.GroupVersion{}, w, req)
		return
	}
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	if info, ok := request.RequestInfoFrom(ctx); ok && info.Verb == "watch" {
		flowcontrol.WatchInitialized(ctx) // else a watch occupies its seats as long as it is open
		defer context.AfterFunc(f.Stopping, cancel)()
	}
	proxy := httputil.ReverseProxy{
		Transport:     f.transport,
		FlushInterval: -1, // the events of a watch are sent at once
		Rewrite:       f.rewrite,
		ErrorHandler:  f.fail,
	}
	proxy.ServeHTTP(w, req.WithContext(ctx))
}

func (f *forwarder) rewrite(r *httputil.ProxyRequest) {
	headers := http.Header{}
	for _, header := range forwardedHeaders {
		if values := r.In.Header.Values(header); len(values) > 0 {
			headers[header] = values
		}
	}
	r.Out.Header, r.Out.Host, r.Out.Trailer = headers, f.target.Host, nil
	r.Out.URL = &url.URL{Scheme: f.target.Scheme, Host: f.target.Host, Path: targetPath(r.In), RawQuery: r.In.URL.RawQuery}
}

// prefix is the path of the virtual workspace.
const prefix = virtual.Prefix + name + "/"

// targetPath returns the path on the root shard, without "..".
func targetPath(req *http.Request) string { return path.Join(prefix, req.URL.Path) }

// fail answers if the root shard does not.
func (f *forwarder) fail(w http.ResponseWriter, req *http.Request, err error) {
	if req.Context().Err() != nil {
		return
	}
	klog.FromContext(req.Context()).V(2).Info("The root shard does not answer a request to the admin workspace", "err", err)
	unavailable := apierrors.NewServiceUnavailable("the admin workspace is served by the root shard, which does not answer")
	responsewriters.ErrorNegotiated(unavailable, f.Serializer, schema.GroupVersion{}, w, req)
}
