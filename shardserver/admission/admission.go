// Package admission implements the rules for writes on a shard beyond the schema of an object: one small plug-in per
// rule set, chained in the order that kcp documents. Each plug-in evaluates the logical cluster of the request only.
// Plug-ins that keep state per logical cluster (quota, the limit of objects) document its owner.
//
// Rules about a single object that depend neither on the user nor on other objects are validation and belong to the
// object's registry. Webhooks and admission policies, which tenants configure, are in package dynamic, the other plug-ins
// in a package per API group, and in metadata and limits if they are about all kinds.
package admission

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"

	"github.com/atoll-dev/atoll/shardserver/admission/apis"
	"github.com/atoll-dev/atoll/shardserver/admission/core"
	"github.com/atoll-dev/atoll/shardserver/admission/kubernetes"
	"github.com/atoll-dev/atoll/shardserver/admission/limits"
	"github.com/atoll-dev/atoll/shardserver/admission/metadata"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/admission/tenancy"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/quota"
)

// Config configures the plug-ins.
type Config = rules.Config

// plugin is one entry of the chain.
type plugin struct {
	name string
	new  func(Config) admission.Interface
}

// disabledByDefault are the plug-ins that run only if they are enabled.
var disabledByDefault = sets.New("apis.kcp.io/ReservedMetadata", kubernetes.NoOverlappingGVRName)

// plugins lists all plug-ins in the order in which they run.
var plugins = []plugin{
	{"CertificateApproval", kubernetes.NewCertificateApproval},
	{"CertificateSigning", kubernetes.NewCertificateSigning},
	{"CertificateSubjectRestriction", kubernetes.NewCertificateSubjectRestriction},
	{"WorkspaceNamespaceLifecycle", kubernetes.NewNamespaceLifecycle},
	{"tenancy.kcp.io/APIResourceSchema", forCompiledInKinds(apis.NewAPIResourceSchema)}, // the name is kept for compatibility
	{"tenancy.kcp.io/Workspace", forCompiledInKinds(tenancy.NewWorkspace)},
	{"tenancy.kcp.io/LogicalClusterDeletionFinalizer", forCompiledInKinds(core.NewLogicalClusterFinalizer)},
	{"tenancy.kcp.io/Shard", forCompiledInKinds(core.NewShard)},
	{"tenancy.kcp.io/WorkspaceType", forCompiledInKinds(tenancy.NewWorkspaceType)},
	{"tenancy.kcp.io/WorkspaceTypeExists", forCompiledInKinds(tenancy.NewWorkspaceTypeExists)},
	{"core.kcp.io/LogicalCluster", forCompiledInKinds(core.NewLogicalCluster)},
	{"migration.kcp.io/LogicalClusterMigration", core.NewRefuseMigrations},
	{"apis.kcp.io/APIExport", forCompiledInKinds(apis.NewAPIExport)},
	{"apis.kcp.io/APIBinding", forCompiledInKinds(apis.NewAPIBinding)},
	{"apis.kcp.io/APIBindingDeletionFinalizer", forCompiledInKinds(apis.NewAPIBindingFinalizer)},
	{"apis.kcp.io/APIExportEndpointSlice", forCompiledInKinds(apis.NewAPIExportEndpointSlice)},
	{"apis.kcp.io/MutatingWebhook", func(c Config) admission.Interface { return c.Dynamic.MutatingWebhook() }},
	{"KCPMutatingAdmissionPolicy", func(c Config) admission.Interface { return c.Dynamic.MutatingPolicy() }},
	{"KCPValidatingAdmissionPolicy", func(c Config) admission.Interface { return c.Dynamic.ValidatingPolicy() }},
	{"apis.kcp.io/ValidatingWebhook", func(c Config) admission.Interface { return c.Dynamic.ValidatingWebhook() }},
	{"apis.kcp.io/ReservedCRDAnnotations", kubernetes.NewReservedCRDAnnotations},
	{"kcp.io/ReservedCRDGroups", kubernetes.NewReservedCRDGroups},
	{"kcp.io/ExpressionCost", limits.NewExpressionCost},
	{kubernetes.NoOverlappingGVRName, kubernetes.NewCRDNoOverlapping},
	{"apis.kcp.io/ReservedNames", forCompiledInKinds(tenancy.NewReservedNames)},
	{"apis.kcp.io/ReservedMetadata", metadata.NewReservedMetadata},
	{"apis.kcp.io/PermissionClaims", apis.NewPermissionClaims},
	{"kcp.io/PathAnnotation", metadata.NewPathAnnotation},
	{"kcp.io/MetadataLimits", limits.NewMetadataLimits},
	{"kcp.io/WebhookLimit", limits.NewWebhookLimit},
	{"sharding.kcp.io/PublishedSize", forCompiledInKinds(limits.NewPublishedSize)},
	{"core.kcp.io/LogicalClusterObjectCountLimit", limits.NewObjectLimit},
	{"core.kcp.io/LogicalClusterByteLimit", limits.NewByteLimit},
	{limits.ResourceQuotaName, limits.NewResourceQuota},
	{"tenancy.kcp.io/WorkspaceLimits", forCompiledInKinds(tenancy.NewWorkspaceLimits)},
	{"apis.kcp.io/ClusterCachedResource", forCompiledInKinds(apis.NewClusterCachedResource)},
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
func enabledPlugins(c Config) (sets.Set[string], error) {
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
	enabled, err := enabledPlugins(config)
	if err != nil {
		return nil, fmt.Errorf("creating admission: %w", err)
	}
	if enabled.Has(kubernetes.NoOverlappingGVRName) && config.Reserver == nil {
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
