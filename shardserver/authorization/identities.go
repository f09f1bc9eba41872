package authorization

// Groups with a meaning in the chain. They are granted by client certificates, tokens and synthetic identities, never
// by a tenant.
const (
	// GroupMasters bypasses authorization. It is accepted only on direct connections to a shard: no header yields it.
	GroupMasters = "system:masters"
	// GroupAdmin is cluster-admin in every logical cluster, by the bootstrap policy.
	GroupAdmin = "system:kcp:admin"
	// GroupBootstrapper may do everything and satisfies every required group.
	GroupBootstrapper = "system:kcp:tenancy:workspace-bootstrapper"
	// GroupLogicalClusterAdmin may create and manage logical clusters on a shard, before they exist.
	GroupLogicalClusterAdmin = "system:kcp:logical-cluster-admin"
	// GroupExternalLogicalClusterAdmin is the group of shards on requests through the front proxy.
	GroupExternalLogicalClusterAdmin = "system:kcp:external-logical-cluster-admin"

	// GroupShard is the group of the installation's shards. Their user names are ShardUserPrefix followed by the name
	// of the shard. It is accepted only on direct connections to a shard or a cache server.
	GroupShard      = "system:kcp:shard"
	ShardUserPrefix = "system:kcp:shard:"
	// GroupCache is the group of cache servers, which forward what the shards below them publish to the cache server
	// above. It is accepted only on direct connections to a cache server, or to a shard that embeds one.
	GroupCache = "system:kcp:cache"

	// InitializerGroupPrefix, followed by an initializer's name, is the synthetic group of its controller.
	InitializerGroupPrefix = "system:kcp:initializer:"
	// TerminatorGroupPrefix, followed by a terminator's name, is the synthetic group of its controller.
	TerminatorGroupPrefix = "system:kcp:terminator:"
	// ClusterGroupPrefix, followed by a logical cluster's name, is the group of identities of that logical cluster in
	// requests to another one.
	ClusterGroupPrefix = "system:cluster:"
	// BindingSubjectPrefix precedes users and groups in maximal permission policies.
	BindingSubjectPrefix = "apis.kcp.io:binding:"
	// ForeignServiceAccountPrefix, followed by "<cluster>:<namespace>:<name>", is the user name of a service account
	// outside of its own logical cluster.
	ForeignServiceAccountPrefix = "system:kcp:serviceaccount:"
)

// Extra keys of a user that the chain evaluates.
const (
	// ScopesExtraKey restricts a user to logical clusters. Each value is a list "cluster:<a>,cluster:<b>" of
	// alternatives; all values must match.
	ScopesExtraKey = "authentication.kcp.io/scopes"
	// ClusterNameExtraKey holds the logical cluster that an identity comes from.
	ClusterNameExtraKey = "authentication.kcp.io/cluster-name"
	// WarrantExtraKey holds further users, each as JSON, whose permissions the user may also use.
	WarrantExtraKey = "authorization.kcp.io/warrant"
)

const scopePrefix = "cluster:"
