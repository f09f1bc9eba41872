package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/shortname"
)

// clients creates clients of workspaces for calls. Calls share only connections.
type clients struct {
	host, group string
	transport   http.RoundTripper
	response    int64
	timeout     time.Duration
}

func newClients(cfg Config) (*clients, error) {
	shared, err := rest.TransportFor(rest.AnonymousClientConfig(cfg.FrontProxy))
	if err != nil {
		return nil, fmt.Errorf("the front proxy: %w", err)
	}
	return &clients{host: strings.TrimSuffix(cfg.FrontProxy.Host, "/"), group: cfg.Group, transport: shared, response: cfg.Limits.Response, timeout: cfg.Limits.Timeout}, nil
}

// client is a client of a workspace with the token of a user.
type client struct {
	group     string
	objects   dynamic.Interface
	discovery rest.Interface
}

// in returns a client of a workspace, whose name callers must have validated.
func (c *clients) in(workspace, token string) (*client, error) {
	config := &rest.Config{
		Host: c.host + "/clusters/" + workspace, UserAgent: "infrastructure-mcp", QPS: -1, WarningHandler: rest.NoWarnings{},
	}
	web := &http.Client{
		Transport: &limitingTransport{transport.NewBearerAuthRoundTripper(token, c.transport), c.response}, Timeout: c.timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // a redirect must not send the token to another server
	}
	objects, err := dynamic.NewForConfigAndClient(config, web)
	if err != nil {
		return nil, err
	}
	documents, err := discovery.NewDiscoveryClientForConfigAndClient(config, web)
	if err != nil {
		return nil, err
	}
	return &client{c.group, objects, documents.RESTClient()}, nil
}

// templates returns a client of the catalogue.
func (c *client) templates() dynamic.ResourceInterface {
	return c.objects.Resource(schema.GroupVersionResource{Group: c.group, Version: infrastructurev1alpha1.Version, Resource: "templates"})
}

// kind is a kind of instances in a workspace.
type kind struct{ kind, resource, version string }

func (c *client) instances(k kind) dynamic.ResourceInterface {
	return c.objects.Resource(schema.GroupVersionResource{Group: c.group, Version: k.version, Resource: k.resource})
}

// kinds returns the kinds of instances in a workspace, sorted by resource. It uses discovery and not the catalogue, because the catalogue omits
// templates that are not ready or are being removed, whose instances may exist.
func (c *client) kinds(ctx context.Context) ([]kind, error) {
	var group metav1.APIGroup
	if err := c.discovery.Get().AbsPath("/apis/" + c.group).Do(ctx).Into(&group); err != nil {
		return nil, err
	}
	versions := []string{group.PreferredVersion.Version}
	for _, version := range group.Versions {
		if !slices.Contains(versions, version.Version) {
			versions = append(versions, version.Version)
		}
	}
	var kinds []kind
	for _, version := range versions {
		var resources metav1.APIResourceList
		if err := c.discovery.Get().AbsPath("/apis/" + c.group + "/" + version).Do(ctx).Into(&resources); err != nil {
			return nil, err
		}
		for _, r := range resources.APIResources {
			known := slices.ContainsFunc(kinds, func(k kind) bool { return k.resource == r.Name })
			if !known && r.Name != "templates" && !strings.Contains(r.Name, "/") && !r.Namespaced {
				kinds = append(kinds, kind{r.Kind, r.Name, version})
			}
		}
	}
	slices.SortFunc(kinds, func(a, b kind) int { return strings.Compare(a.resource, b.resource) })
	return kinds, nil
}

// kindOf returns the kind for the name of a kind, a resource, or a template.
func (c *client) kindOf(ctx context.Context, name string) (kind, error) {
	kinds, err := c.kinds(ctx)
	if err != nil {
		return kind{}, err
	}
	for _, matches := range []func(kind) bool{
		func(k kind) bool { return k.kind == name },
		func(k kind) bool { return k.resource == name || strings.EqualFold(k.kind, name) },
	} {
		if i := slices.IndexFunc(kinds, matches); i >= 0 {
			return kinds[i], nil
		}
	}
	// A user who has ordered an instance may know only the name of the template.
	if template, err := c.template(ctx, name); err == nil {
		return c.kindOfTemplate(template)
	}
	var known []string
	for _, k := range kinds {
		known = append(known, k.kind)
	}
	return kind{}, &argumentError{"kind", fmt.Sprintf("the workspace has no kind %q of instances; it has: %s", shorten(name), shortname.Truncate(orNone(known), maxMessage))}
}

// errTooLarge is the error for responses above the limit.
var errTooLarge = errors.New("the response is too large")

// limitingTransport bounds the size of responses.
type limitingTransport struct {
	next  http.RoundTripper
	limit int64
}

// RoundTrip implements http.RoundTripper.
func (t *limitingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(req)
	if err == nil {
		res.Body = &limitedBody{res.Body, t.limit}
	}
	return res, err
}

type limitedBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, errTooLarge
	}
	return n, err
}
