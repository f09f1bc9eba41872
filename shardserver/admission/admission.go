// Package admission holds the rules that a shard puts on writes beyond what the schema of an object says: one
// small plug-in per rule set, chained in the order of the contract. Each plug-in sees the logical cluster of the
// request alone; what counts objects of one (quota, the limit of objects) says itself who removes what it keeps.
//
// What belongs to one object without looking at the user or at other objects is validation and lives with its
// registry. Webhooks and admission policies, which tenants configure, are in package dynamic.
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
	"github.com/atoll-dev/atoll/shardserver/lifecycle/objectcount"
	"github.com/atoll-dev/atoll/shardserver/lifecycle/quota"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// Config is what the plug-ins work with. Fields that do not say what their absence means are required.
type Config struct {
	// Registry is where logical clusters, namespaces, workspaces and types are read from.
	Registry *storage.Registry
	// Types resolves references to workspace types and paths.
	Types *workspacetype.Resolver
	// Exports finds the exports that bindings and endpoint slices refer to.
	Exports *apiindex.Resolver
	// Authorizer is the shard's whole authorization chain.
	Authorizer authorizer.Authorizer
	// Deep marks a context so that Authorizer does not ask for access to the workspace itself, but only for the
	// permission on the object: one may use a type, or bind an export, of a workspace one cannot enter.
	Deep func(context.Context) context.Context
	// Dynamic makes the plug-ins of webhooks and admission policies.
	Dynamic *dynamic.Plugins
	// InFlight are the requests that quotas were charged for. Whoever counts what quotas limit shares it; nil if nobody does.
	InFlight *quota.InFlight
	// Reserver keeps resources for definitions; nil only if the plug-in that asks it is not enabled.
	Reserver *binding.Reserver
	// Counts are the numbers of objects that the object limit is checked against; nil checks nothing.
	Counts *objectcount.Tracker
	// Claims tells which labels of permission claims objects carry; nil if there are no claims.
	Claims *claims.Index
	// Mounts allows workspaces that stand for servers elsewhere.
	Mounts bool
	// Limited are the resources that nobody may create an object of unless a quota limits their number; may be empty.
	Limited []quotaapi.LimitedResource
	// Enabled and Disabled name plug-ins that are added to, or left out of, those that run by default.
	Enabled, Disabled sets.Set[string]
}

// resourceQuotaName is the plug-in that takes a configuration.
const resourceQuotaName = "KCPKubeResourceQuota"

// plugin is one entry of the chain.
type plugin struct {
	name string
	new  func(Config) admission.Interface
}

// offByDefault are the plug-ins that run only where they are enabled.
var offByDefault = sets.New("apis.kcp.io/ReservedMetadata", noOverlappingName)

// plugins lists all plug-ins in the order in which they run.
var plugins = []plugin{
	{"CertificateApproval", newCertificateApproval},
	{"CertificateSigning", newCertificateSigning},
	{"CertificateSubjectRestriction", newCertificateSubjectRestriction},
	{"WorkspaceNamespaceLifecycle", newNamespaceLifecycle},
	{"tenancy.kcp.io/APIResourceSchema", ofOurKinds(newAPIResourceSchema)}, // the name is historical
	{"tenancy.kcp.io/Workspace", ofOurKinds(newWorkspace)},
	{"tenancy.kcp.io/LogicalClusterDeletionFinalizer", ofOurKinds(newLogicalClusterFinalizer)},
	{"tenancy.kcp.io/Shard", ofOurKinds(newShard)},
	{"tenancy.kcp.io/WorkspaceType", ofOurKinds(newWorkspaceType)},
	{"tenancy.kcp.io/WorkspaceTypeExists", ofOurKinds(newWorkspaceTypeExists)},
	{"core.kcp.io/LogicalCluster", ofOurKinds(newLogicalCluster)},
	{"apis.kcp.io/APIExport", ofOurKinds(newAPIExport)},
	{"apis.kcp.io/APIBinding", ofOurKinds(newAPIBinding)},
	{"apis.kcp.io/APIBindingDeletionFinalizer", ofOurKinds(newAPIBindingFinalizer)},
	{"apis.kcp.io/APIExportEndpointSlice", ofOurKinds(newAPIExportEndpointSlice)},
	{"apis.kcp.io/MutatingWebhook", func(c Config) admission.Interface { return c.Dynamic.MutatingWebhook() }},
	{"KCPMutatingAdmissionPolicy", func(c Config) admission.Interface { return c.Dynamic.MutatingPolicy() }},
	{"KCPValidatingAdmissionPolicy", func(c Config) admission.Interface { return c.Dynamic.ValidatingPolicy() }},
	{"apis.kcp.io/ValidatingWebhook", func(c Config) admission.Interface { return c.Dynamic.ValidatingWebhook() }},
	{"apis.kcp.io/ReservedCRDAnnotations", newReservedCRDAnnotations},
	{"kcp.io/ReservedCRDGroups", newReservedCRDGroups},
	{noOverlappingName, newCRDNoOverlapping},
	{"apis.kcp.io/ReservedNames", ofOurKinds(newReservedNames)},
	{"apis.kcp.io/ReservedMetadata", newReservedMetadata},
	{"apis.kcp.io/PermissionClaims", newPermissionClaims},
	{"kcp.io/PathAnnotation", newPathAnnotation},
	{"sharding.kcp.io/PublishedSize", ofOurKinds(newPublishedSize)},
	{"core.kcp.io/LogicalClusterObjectCountLimit", newObjectLimit},
	{resourceQuotaName, newResourceQuota},
	{"apis.kcp.io/ClusterCachedResource", ofOurKinds(newClusterCachedResource)},
}

// Names returns the names of all plug-ins in the order in which they run.
func Names() []string {
	names := make([]string, 0, len(plugins))
	for _, p := range plugins {
		names = append(names, p.name)
	}
	return names
}

// runs returns the names of the plug-ins that make up the chain.
func (c Config) runs() (sets.Set[string], error) {
	known := sets.New(Names()...)
	if cannot := c.Enabled.Intersection(upstream); cannot.Len() > 0 {
		return nil, fmt.Errorf("plug-ins to enable that no logical cluster can have: %q", sets.List(cannot))
	}
	for what, given := range map[string]sets.Set[string]{"enable": c.Enabled, "disable": c.Disabled} {
		if unknown := given.Difference(known).Difference(upstream); unknown.Len() > 0 {
			return nil, fmt.Errorf("unknown plug-ins to %s: %q, want of %q", what, sets.List(unknown), sets.List(known))
		}
	}
	if both := c.Enabled.Intersection(c.Disabled); both.Len() > 0 {
		return nil, fmt.Errorf("plug-ins both to enable and to disable: %q", sets.List(both))
	}
	return known.Difference(offByDefault).Union(c.Enabled).Difference(c.Disabled), nil
}

// New returns the chain of the plug-ins that run by default or are enabled, but for the disabled ones. It mutates and
// validates.
func New(config Config) (admission.Interface, error) {
	switch {
	case config.Registry == nil:
		return nil, fmt.Errorf("creating admission: no registry")
	case config.Types == nil:
		return nil, fmt.Errorf("creating admission: no resolver of workspace types")
	case config.Exports == nil:
		return nil, fmt.Errorf("creating admission: no catalog of exports")
	case config.Authorizer == nil:
		return nil, fmt.Errorf("creating admission: no authorizer")
	case config.Deep == nil:
		return nil, fmt.Errorf("creating admission: no way to mark deep access reviews")
	case config.Dynamic == nil:
		return nil, fmt.Errorf("creating admission: no webhooks and admission policies")
	}
	runs, err := config.runs()
	if err != nil {
		return nil, fmt.Errorf("creating admission: %w", err)
	}
	if runs.Has(noOverlappingName) && config.Reserver == nil {
		return nil, fmt.Errorf("creating admission: nobody to keep resources for definitions")
	}
	if config.InFlight == nil {
		config.InFlight = quota.NewInFlight()
	}
	var chain []admission.Interface
	for _, p := range plugins {
		if runs.Has(p.name) {
			chain = append(chain, p.new(config))
		}
	}
	return tellingDryRuns{reinvoking{admission.NewChainHandler(chain...)}, config.Registry}, nil
}
