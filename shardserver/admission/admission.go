// Package admission implements the rules for writes on a shard beyond the schema of an object: one small plug-in per
// rule set, chained in the order that kcp documents. Each plug-in evaluates the logical cluster of the request only.
// Plug-ins that keep state per logical cluster (quota, the limit of objects) document its owner.
//
// Rules about a single object that depend neither on the user nor on other objects are validation and belong to the
// object's registry. Webhooks and admission policies, which tenants configure, are in package dynamic.
package admission

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	quotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/atoll-dev/atoll/shardserver/admission/dynamic"
	"github.com/atoll-dev/atoll/shardserver/apiexport/binding"
	"github.com/atoll-dev/atoll/shardserver/apiexport/claims"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/etcdkeys"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/objectcount"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/quota"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// Config configures the plug-ins. Fields are required unless their comment describes their absence.
type Config struct {
	// Registry reads logical clusters, namespaces, workspaces and types.
	Registry *storage.Registry
	// Types resolves references to workspace types and paths.
	Types *workspacetype.Resolver
	// Exports resolves the exports that bindings and endpoint slices refer to.
	Exports *apiindex.Resolver
	// Authorizer is the complete authorization chain of the shard.
	Authorizer authorizer.UnconditionalAuthorizer
	// WithDeepSAR returns a context in which Authorizer does not require access to the workspace itself, but only the
	// permission on the object: users may use a type, or bind an export, of a workspace that they cannot access.
	WithDeepSAR func(context.Context) context.Context
	// Dynamic creates the plug-ins of webhooks and admission policies.
	Dynamic *dynamic.Plugins
	// InFlight are the requests that were charged to quotas, shared with the controller that counts quota usage; nil
	// without one.
	InFlight *quota.InFlight
	// Reserver reserves resources for definitions; it may be nil only if the plug-in that uses it is not enabled.
	Reserver *binding.Reserver
	// Counts are the numbers and sizes of objects for the limits of logical clusters; nil disables the limits.
	Counts *objectcount.Tracker
	// Space returns the space that etcd has left; it may be nil only without Counts.
	Space func() etcdkeys.Space
	// Claims returns the labels of permission claims for objects; nil if there are no claims.
	Claims *claims.Index
	// Mounts permits workspaces that are mounts of other servers.
	Mounts bool
	// MigrationRefusal is the reason why this shard accepts no migrations of logical clusters, or "".
	MigrationRefusal string
	// LimitedResources are the resources whose objects can be created only if a quota limits their number; may be empty.
	LimitedResources []quotaapi.LimitedResource
	// Enabled and Disabled name plug-ins that are enabled or disabled in addition to the defaults.
	Enabled, Disabled sets.Set[string]
}

// resourceQuotaName is the plug-in that has a configuration.
const resourceQuotaName = "KCPKubeResourceQuota"

// plugin is one entry of the chain.
type plugin struct {
	name string
	new  func(Config) admission.Interface
}

// disabledByDefault are the plug-ins that run only if they are enabled.
var disabledByDefault = sets.New("apis.kcp.io/ReservedMetadata", noOverlappingGVRName)

// plugins lists all plug-ins in the order in which they run.
var plugins = []plugin{
	{"CertificateApproval", newCertificateApproval},
	{"CertificateSigning", newCertificateSigning},
	{"CertificateSubjectRestriction", newCertificateSubjectRestriction},
	{"WorkspaceNamespaceLifecycle", newNamespaceLifecycle},
	{"tenancy.kcp.io/APIResourceSchema", forCompiledInKinds(newAPIResourceSchema)}, // the name is kept for compatibility
	{"tenancy.kcp.io/Workspace", forCompiledInKinds(newWorkspace)},
	{"tenancy.kcp.io/LogicalClusterDeletionFinalizer", forCompiledInKinds(newLogicalClusterFinalizer)},
	{"tenancy.kcp.io/Shard", forCompiledInKinds(newShard)},
	{"tenancy.kcp.io/WorkspaceType", forCompiledInKinds(newWorkspaceType)},
	{"tenancy.kcp.io/WorkspaceTypeExists", forCompiledInKinds(newWorkspaceTypeExists)},
	{"core.kcp.io/LogicalCluster", forCompiledInKinds(newLogicalCluster)},
	{"migration.kcp.io/LogicalClusterMigration", newRefuseMigrations},
	{"apis.kcp.io/APIExport", forCompiledInKinds(newAPIExport)},
	{"apis.kcp.io/APIBinding", forCompiledInKinds(newAPIBinding)},
	{"apis.kcp.io/APIBindingDeletionFinalizer", forCompiledInKinds(newAPIBindingFinalizer)},
	{"apis.kcp.io/APIExportEndpointSlice", forCompiledInKinds(newAPIExportEndpointSlice)},
	{"apis.kcp.io/MutatingWebhook", func(c Config) admission.Interface { return c.Dynamic.MutatingWebhook() }},
	{"KCPMutatingAdmissionPolicy", func(c Config) admission.Interface { return c.Dynamic.MutatingPolicy() }},
	{"KCPValidatingAdmissionPolicy", func(c Config) admission.Interface { return c.Dynamic.ValidatingPolicy() }},
	{"apis.kcp.io/ValidatingWebhook", func(c Config) admission.Interface { return c.Dynamic.ValidatingWebhook() }},
	{"apis.kcp.io/ReservedCRDAnnotations", newReservedCRDAnnotations},
	{"kcp.io/ReservedCRDGroups", newReservedCRDGroups},
	{"kcp.io/ExpressionCost", newExpressionCost},
	{noOverlappingGVRName, newCRDNoOverlapping},
	{"apis.kcp.io/ReservedNames", forCompiledInKinds(newReservedNames)},
	{"apis.kcp.io/ReservedMetadata", newReservedMetadata},
	{"apis.kcp.io/PermissionClaims", newPermissionClaims},
	{"kcp.io/PathAnnotation", newPathAnnotation},
	{"kcp.io/MetadataLimits", newMetadataLimits},
	{"kcp.io/WebhookLimit", newWebhookLimit},
	{"sharding.kcp.io/PublishedSize", forCompiledInKinds(newPublishedSize)},
	{"core.kcp.io/LogicalClusterObjectCountLimit", newObjectLimit},
	{"core.kcp.io/LogicalClusterByteLimit", newByteLimit},
	{resourceQuotaName, newResourceQuota},
	{"apis.kcp.io/ClusterCachedResource", forCompiledInKinds(newClusterCachedResource)},
}

// Names returns the names of all plug-ins in the order in which they run.
func Names() []string {
	names := make([]string, 0, len(plugins))
	for _, p := range plugins {
		names = append(names, p.name)
	}
	return names
}

// enabledPlugins returns the names of the plug-ins that make up the chain.
func (c Config) enabledPlugins() (sets.Set[string], error) {
	known := sets.New(Names()...)
	if unsupported := c.Enabled.Intersection(upstreamPlugins); unsupported.Len() > 0 {
		return nil, fmt.Errorf("plug-ins to enable that no logical cluster can have: %q", sets.List(unsupported))
	}
	for verb, requested := range map[string]sets.Set[string]{"enable": c.Enabled, "disable": c.Disabled} {
		if unknown := requested.Difference(known).Difference(upstreamPlugins); unknown.Len() > 0 {
			return nil, fmt.Errorf("unknown plug-ins to %s: %q, want of %q", verb, sets.List(unknown), sets.List(known))
		}
	}
	if both := c.Enabled.Intersection(c.Disabled); both.Len() > 0 {
		return nil, fmt.Errorf("plug-ins both to enable and to disable: %q", sets.List(both))
	}
	return known.Difference(disabledByDefault).Union(c.Enabled).Difference(c.Disabled), nil
}

// New returns the chain of the plug-ins that run by default or are enabled, without the disabled ones. It mutates and
// validates.
func New(config Config) (admission.Interface, error) {
	switch {
	case config.Registry == nil:
		return nil, fmt.Errorf("creating admission: no registry")
	case config.Types == nil:
		return nil, fmt.Errorf("creating admission: no resolver of workspace types")
	case config.Exports == nil:
		return nil, fmt.Errorf("creating admission: no resolver of exports")
	case config.Authorizer == nil:
		return nil, fmt.Errorf("creating admission: no authorizer")
	case config.WithDeepSAR == nil:
		return nil, fmt.Errorf("creating admission: no function for deep access reviews")
	case config.Dynamic == nil:
		return nil, fmt.Errorf("creating admission: no plug-ins of webhooks and admission policies")
	}
	enabled, err := config.enabledPlugins()
	if err != nil {
		return nil, fmt.Errorf("creating admission: %w", err)
	}
	if enabled.Has(noOverlappingGVRName) && config.Reserver == nil {
		return nil, fmt.Errorf("creating admission: no reserver of resources for definitions")
	}
	if config.InFlight == nil {
		config.InFlight = quota.NewInFlight()
	}
	var chain []admission.Interface
	for _, p := range plugins {
		if enabled.Has(p.name) {
			chain = append(chain, p.new(config))
		}
	}
	return dryRunAnnotator{reinvocationHandler{admission.NewChainHandler(chain...)}, config.Registry}, nil
}
