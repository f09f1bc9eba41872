package dynamic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Config is what the plug-ins work with. All fields that do not say otherwise are required.
type Config struct {
	// Registry is where configurations, namespaces and parameters are read from.
	Registry *storage.Registry
	// Bound tells which resources are exported from elsewhere; nil means none.
	Bound *bindings.Index
	// Authorizer answers the access checks of CEL expressions, in the logical cluster of the request.
	Authorizer authorizer.Authorizer
	// Custom reads parameters that are custom resources, in the logical cluster of its context and with the power of
	// the shard: who writes a policy or a binding must be allowed to read the parameters, which its registry checks.
	Custom dynamic.Interface
	// Scheme and OpenAPI describe the types that are compiled in.
	Scheme  *runtime.Scheme
	OpenAPI *common.OpenAPIV3Config
}

// Plugins makes the plug-ins, which share some of what they keep.
type Plugins struct {
	config     Config
	namespaces *storage.Reader[*core.Namespace]
	schemas    *Schemas
	custom     definitions
	compilers  compilers
	// mutating and validating call webhooks.
	mutating, validating generic.Dispatcher

	mu       sync.Mutex
	followed []follower
}

// follower is a presence and what it follows.
type follower struct {
	presence *presence
	resource watchable
}

// New checks the configuration.
func New(config Config) (*Plugins, error) {
	switch {
	case config.Registry == nil:
		return nil, errors.New("creating dynamic admission: no registry")
	case config.Authorizer == nil:
		return nil, errors.New("creating dynamic admission: no authorizer")
	case config.Custom == nil:
		return nil, errors.New("creating dynamic admission: no client for custom resources")
	case config.Scheme == nil || config.OpenAPI == nil:
		return nil, errors.New("creating dynamic admission: no description of the types compiled in")
	}
	mutating, validating, err := newDispatchers()
	if err != nil {
		return nil, fmt.Errorf("creating dynamic admission: %w", err)
	}
	return &Plugins{
		mutating: mutating, validating: validating,
		config:     config,
		namespaces: storage.NewReader[*core.Namespace](config.Registry, namespaces),
		schemas:    NewSchemas(config.Registry, config.Scheme, config.OpenAPI),
		custom:     newDefinitions(config.Registry),
		compilers:  newCompilers(),
	}, nil
}

// Schemas returns what knows the types that logical clusters serve.
func (p *Plugins) Schemas() *Schemas { return p.schemas }

// Run follows, until the context ends, which logical clusters have configurations of the plug-ins made so far. Without
// it the plug-ins work the same, but look into every logical cluster they are called for.
func (p *Plugins) Run(ctx context.Context) {
	p.mu.Lock()
	followed := slices.Clone(p.followed)
	p.mu.Unlock()
	var group sync.WaitGroup
	for _, f := range followed {
		group.Go(func() { f.presence.run(ctx, f.resource) })
	}
	group.Wait()
}

// presenceOf returns what Run keeps informed about a resource.
func (p *Plugins) presenceOf(resource watchable) *presence {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := &presence{registry: p.config.Registry, resource: resource.Resource()}
	p.followed = append(p.followed, follower{known, resource})
	return known
}

// everything is what webhooks and validating policies can intercept.
func everything() *admission.Handler {
	return admission.NewHandler(admission.Connect, admission.Create, admission.Delete, admission.Update)
}
