// Package rules contains what the plug-ins of the packages beside it share: their configuration, the resources that they are about, the
// groups that are exempt, and readers and errors that several of them use.
package rules

import (
	"context"

	"k8s.io/apimachinery/pkg/util/sets"
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
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacelimits"
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
	// WorkspaceLimits are the limits of Workspaces below logical clusters; nil disables them.
	WorkspaceLimits *workspacelimits.Tracker
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
