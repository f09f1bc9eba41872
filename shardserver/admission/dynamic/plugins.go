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
	"k8s.io/utils/clock"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/dynamic/suspension"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Config configures the plug-ins. All fields are required unless noted.
type Config struct {
	// Registry reads configurations, namespaces and parameters.
	Registry *storage.Registry
	// Bound resolves resources that are bound from an export; nil means none.
	Bound *bindings.Index
	// Authorizer evaluates the authorization checks of CEL expressions, in the logical cluster of the request.
	Authorizer authorizer.UnconditionalAuthorizer
	// Custom reads parameters that are custom resources, in the logical cluster of its context and with the shard's
	// permissions: the registries of policies and bindings check that their author may read the parameters.
	Custom dynamic.Interface
	// Scheme and OpenAPI describe the compiled-in types.
	Scheme  *runtime.Scheme
	OpenAPI *common.OpenAPIV3Config
}

// Plugins creates the plug-ins, which share some of their caches.
type Plugins struct {
	config     Config
	namespaces *storage.Reader[*core.Namespace]
	schemas    *Schemas
	custom     definitions
	compilers  compilers
	// Suspensions tracks expressions that exceed their cost limit.
	Suspensions *suspension.Tracker
	// mutating and validating call webhooks.
	mutating, validating generic.Dispatcher

	mu      sync.Mutex
	indexes []indexWatch
	// webhookIndexes are the indexes of webhook configurations.
	webhookIndexes []*existenceIndex
}

// indexWatch is an existence index and the resource that it watches.
type indexWatch struct {
	presence *existenceIndex
	resource watchable
}

// New validates the configuration and returns Plugins.
func New(config Config) (*Plugins, error) {
	switch {
	case config.Registry == nil:
		return nil, errors.New("creating dynamic admission: no registry")
	case config.Authorizer == nil:
		return nil, errors.New("creating dynamic admission: no authorizer")
	case config.Custom == nil:
		return nil, errors.New("creating dynamic admission: no client for custom resources")
	case config.Scheme == nil || config.OpenAPI == nil:
		return nil, errors.New("creating dynamic admission: no scheme or OpenAPI of compiled-in types")
	}
	mutating, validating, err := newDispatchers()
	if err != nil {
		return nil, fmt.Errorf("creating dynamic admission: %w", err)
	}
	return &Plugins{
		mutating: mutating, validating: validating,
		config:     config,
		namespaces: storage.NewReader[*core.Namespace](config.Registry, namespaces),
		schemas:    NewSchemas(config.Registry, config.Bound, config.Scheme, config.OpenAPI),
		custom:     newDefinitions(config.Registry, config.Bound),
		compilers:  newCompilers(),

		Suspensions: suspension.NewTracker(clock.RealClock{}),
	}, nil
}

// Schemas returns the resolver for the types that logical clusters serve.
func (p *Plugins) Schemas() *Schemas { return p.schemas }

// Run maintains, until the context ends, the index of logical clusters that have configurations of the plug-ins created
// so far. Without it the plug-ins work the same, but read configurations for every request.
func (p *Plugins) Run(ctx context.Context) {
	p.mu.Lock()
	indexes := slices.Clone(p.indexes)
	p.mu.Unlock()
	var group sync.WaitGroup
	for _, f := range indexes {
		group.Go(func() { f.presence.run(ctx, f.resource) })
	}
	group.Wait()
}

// newExistenceIndex returns the index of a resource, which Run maintains, and which calls a function when the last object
// of a logical cluster is deleted.
func (p *Plugins) newExistenceIndex(resource watchable, onAbsent func(logicalcluster.Name)) *existenceIndex {
	p.mu.Lock()
	defer p.mu.Unlock()
	index := &existenceIndex{registry: p.config.Registry, resource: resource.Resource(), onAbsent: onAbsent}
	p.indexes = append(p.indexes, indexWatch{index, resource})
	return index
}

// newAllOperationsHandler handles the operations that webhooks and validating policies can intercept.
func newAllOperationsHandler() *admission.Handler {
	return admission.NewHandler(admission.Connect, admission.Create, admission.Delete, admission.Update)
}
