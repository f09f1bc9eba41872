// Package virtual is the framework of virtual workspaces: APIs at URLs below /services/ that project logical clusters of
// this shard for an owner, such as an APIExport or a workspace type, instead of a tenant.
//
// A virtual workspace resolves its URLs, authorizes requests, and serves them from the storages of the process, without
// another HTTP request. Authentication, impersonation, audit and flow control are those of the shard's handler chain
// (wall W7), into which Registry plugs resolution (WithRequest), authorization (Authorizer) and serving (WithServing).
//
// This package must not know a particular virtual workspace; each has a package of its own below this one.
package virtual

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/healthz"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Prefix is the path prefix of all virtual workspaces.
const Prefix = "/services/"

// Request is a resolved URL of a virtual workspace.
type Request struct {
	// Owner are the path segments that name the owner, such as an initializer, or an export and its logical cluster.
	Owner []string
	// Cluster is the requested logical cluster or the wildcard; the zero Name if the URL has none.
	Cluster logicalcluster.Name
	// Path is the rest of the path, a Kubernetes API path that starts with "/".
	Path string

	workspace *Workspace // nil if the URL was not resolved
}

// Workspace is one kind of virtual workspace. All fields are required.
type Workspace struct {
	// Name is the path segment behind /services/.
	Name string
	// Resolve parses the path behind "/services/<name>/". It returns false for an invalid path.
	Resolve func(path string) (Request, bool)
	// Authorizer authorizes requests of users outside system:masters. The context carries the Request and its logical
	// cluster; the attributes are those of Request.Path.
	Authorizer authorizer.UnconditionalAuthorizer
	// Handler returns the handler of authorized requests. content serves a logical cluster without authorization; call it
	// with requests of InCluster or InClusterAs.
	Handler func(content http.Handler) http.Handler
	// IsOpen reports whether a long-running request to a logical cluster may continue after that has changed.
	IsOpen func(request Request, cluster *corev1alpha1.LogicalCluster) bool
	// Checks are its readiness checks.
	Checks []healthz.HealthChecker
	// AllowsIdentities means that resources may be named "<resource>:<identity>". Other workspaces return 404 for that.
	AllowsIdentities bool
	// ServesMoving means that requests to logical clusters that move to another shard are served, for the shards that move
	// them.
	ServesMoving bool
}

// Registry holds the virtual workspaces of a process.
type Registry struct {
	workspaces map[string]*Workspace
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{workspaces: map[string]*Workspace{}} }

// Register adds virtual workspaces. It must be called before the first request.
func (r *Registry) Register(workspaces ...*Workspace) error {
	for _, w := range workspaces {
		if r.workspaces[w.Name] != nil {
			return fmt.Errorf("virtual workspace %q exists twice", w.Name)
		}
		r.workspaces[w.Name] = w
	}
	return nil
}

// Checks returns the readiness checks of all virtual workspaces.
func (r *Registry) Checks() []healthz.HealthChecker {
	var checks []healthz.HealthChecker
	for _, w := range r.workspaces {
		checks = append(checks, w.Checks...)
	}
	return checks
}

// resolve parses a URL path below Prefix. It returns the zero Request for an unknown one.
func (r *Registry) resolve(path string) Request {
	name, rest, _ := strings.Cut(strings.TrimPrefix(path, Prefix), "/")
	w := r.workspaces[name]
	if w == nil {
		return Request{}
	}
	request, ok := w.Resolve(rest)
	if !ok {
		return Request{}
	}
	request.workspace = w
	return request
}

// NewPathResolver returns a Workspace.Resolve function for "<owner>/.../clusters/<*|name>/<path>" with the given number
// of owner segments. Workspace paths with several segments are not resolved.
func NewPathResolver(owners int) func(path string) (Request, bool) {
	return func(path string) (Request, bool) {
		segments := strings.SplitN(path, "/", owners+3)
		if len(segments) < owners+2 || segments[owners] != "clusters" {
			return Request{}, false
		}
		request := Request{Owner: segments[:owners], Path: "/"}
		if cluster := segments[owners+1]; cluster == logicalcluster.Wildcard.String() {
			request.Cluster = logicalcluster.Wildcard
		} else {
			var err error
			if request.Cluster, err = logicalcluster.ParseName(cluster); err != nil {
				return Request{}, false
			}
		}
		if len(segments) > owners+2 {
			request.Path += segments[owners+2]
		}
		return request, true
	}
}

// IsOpen reports whether the request may continue after its logical cluster has changed.
func (r Request) IsOpen(cluster *corev1alpha1.LogicalCluster) bool {
	return r.workspace == nil || r.workspace.IsOpen == nil || r.workspace.IsOpen(r, cluster)
}

// ServesMoving reports whether the virtual workspace serves logical clusters that move to another shard.
func (r Request) ServesMoving() bool { return r.workspace != nil && r.workspace.ServesMoving }

type requestKey struct{}

// WithCluster returns a context whose Request, and whose logical cluster, is another logical cluster of the same owner. The
// caller must know that the owner may access it.
func WithCluster(ctx context.Context, cluster logicalcluster.Name) context.Context {
	request, _ := From(ctx)
	request.Cluster = cluster
	return logicalcluster.With(context.WithValue(ctx, requestKey{}, request), cluster)
}

// From returns the Request of the context, and whether it was resolved to a virtual workspace.
func From(ctx context.Context) (Request, bool) {
	r, ok := ctx.Value(requestKey{}).(Request)
	return r, ok && r.workspace != nil
}
