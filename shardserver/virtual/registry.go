// Package virtual is the ground on which virtual workspaces stand: the URLs below /services/, each a view on logical
// clusters of this shard that belongs to an owner (a workspace type, an export, ...) instead of to a tenant.
//
// A virtual workspace says what its URLs mean, who may use them, and serves them from the storages of the process.
// Nothing goes through HTTP again, and no header names the user on the way. Authentication, impersonation, audit and
// limits are those of the shard's one chain (wall W7): this package only tells the chain what a URL addresses
// (Set.WithRequest), whom to ask for permission (Set.Authorizer) and, below all that, who serves it (Set.WithServing).
//
// What a particular virtual workspace shows is not here but in a package of its own below this one.
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

// Prefix is where all virtual workspaces live.
const Prefix = "/services/"

// Request is what a URL of a virtual workspace addresses.
type Request struct {
	// Owner are the path segments that say whose view it is, such as an initializer, or an export and its cluster.
	Owner []string
	// Cluster is the logical cluster looked at, or the wildcard. It is the zero Name where the URL has none.
	Cluster logicalcluster.Name
	// Path is the Kubernetes path behind it; it starts with "/".
	Path string

	workspace *Workspace // nil when no virtual workspace knows the URL
}

// Workspace is one kind of virtual workspace. All fields are required.
type Workspace struct {
	// Name is the path segment behind /services/.
	Name string
	// Resolve reads what follows "/services/<name>/", and tells whether it makes sense.
	Resolve func(path string) (Request, bool)
	// Authorizer decides about requests of everybody but system:masters. The context carries the Request and its
	// logical cluster; the attributes are those of the path behind it.
	Authorizer authorizer.Authorizer
	// Handler serves what was authorized. content serves a logical cluster as if it had been asked directly, below
	// authorization: use it with InCluster.
	Handler func(content http.Handler) http.Handler
	// IsOpen tells whether a request to the content of a logical cluster may go on. It is asked about requests that last,
	// when the logical cluster changes.
	IsOpen func(request Request, cluster *corev1alpha1.LogicalCluster) bool
	// Checks are its checks of /readyz.
	Checks []healthz.HealthChecker
	// AllowsIdentities says that its resources may be called "<resource>:<identity>". Elsewhere that is nobody's name.
	AllowsIdentities bool
}

// Registry is the virtual workspaces of a process.
type Registry struct {
	byName map[string]*Workspace
}

// NewRegistry returns an empty set.
func NewRegistry() *Registry { return &Registry{byName: map[string]*Workspace{}} }

// Register takes a virtual workspace in. It must be called before the first request.
func (s *Registry) Register(workspaces ...*Workspace) error {
	for _, w := range workspaces {
		if s.byName[w.Name] != nil {
			return fmt.Errorf("virtual workspace %q exists twice", w.Name)
		}
		s.byName[w.Name] = w
	}
	return nil
}

// Checks returns the readiness checks of all.
func (s *Registry) Checks() []healthz.HealthChecker {
	var checks []healthz.HealthChecker
	for _, w := range s.byName {
		checks = append(checks, w.Checks...)
	}
	return checks
}

// resolve reads a URL path below Prefix.
func (s *Registry) resolve(path string) Request {
	name, rest, _ := strings.Cut(strings.TrimPrefix(path, Prefix), "/")
	w := s.byName[name]
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

// OwnerAndCluster is a Workspace.Resolve for "<owner>/.../clusters/<*|name>/<path>" with that many owner segments.
// Paths of more than one workspace name no logical cluster here.
func OwnerAndCluster(owners int) func(path string) (Request, bool) {
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

// IsOpen tells whether the view on the content of a logical cluster, which has changed, stays open for the request.
func (r Request) IsOpen(cluster *corev1alpha1.LogicalCluster) bool {
	return r.workspace == nil || r.workspace.IsOpen == nil || r.workspace.IsOpen(r, cluster)
}

type requestKey struct{}

// From returns what the request of the context addresses, and whether it goes to a virtual workspace at all.
func From(ctx context.Context) (Request, bool) {
	r, ok := ctx.Value(requestKey{}).(Request)
	return r, ok && r.workspace != nil
}
