package authorization

// Groups that the chain knows. They are granted by client certificates, tokens and synthetic identities, never by a
// tenant.
const (
	// GroupMasters bypasses authorization. It exists only directly at a shard: no header yields it.
	GroupMasters = "system:masters"
	// GroupAdmin is cluster-admin in every logical cluster, by the bootstrap policy.
	GroupAdmin = "system:kcp:admin"
	// GroupBootstrapper may do everything and satisfies every required group.
	GroupBootstrapper = "system:kcp:tenancy:workspace-bootstrapper"
	// GroupLogicalClusterAdmin may create and manage logical clusters on a shard, before they exist.
	GroupLogicalClusterAdmin = "system:kcp:logical-cluster-admin"
	// GroupExternalLogicalClusterAdmin is what shards use through the front proxy.
	GroupExternalLogicalClusterAdmin = "system:kcp:external-logical-cluster-admin"

	// GroupShard is that of the shards of the installation, whose user names are ShardUserPrefix and the name of the shard.
	// It exists only directly at a shard or a cache server.
	GroupShard      = "system:kcp:shard"
	ShardUserPrefix = "system:kcp:shard:"
	// GroupCache is that of cache servers, which bring what shards below them have published into the cache above. It exists
	// only directly at a cache server, or at the shard that has one.
	GroupCache = "system:kcp:cache"

	// InitializerGroupPrefix, followed by an initializer's name, is the synthetic group of its controller.
	InitializerGroupPrefix = "system:kcp:initializer:"
	// TerminatorGroupPrefix, followed by a terminator's name, is the synthetic group of its controller.
	TerminatorGroupPrefix = "system:kcp:terminator:"
	// ClusterGroupPrefix, followed by a logical cluster's name, is the group of identities that come from that
	// logical cluster and are seen in another one.
	ClusterGroupPrefix = "system:cluster:"
	// BindingSubjectPrefix precedes users and groups in maximal permission policies.
	BindingSubjectPrefix = "apis.kcp.io:binding:"
	// ForeignServiceAccountPrefix, followed by "<cluster>:<namespace>:<name>", is the user name of a service account
	// outside of its own logical cluster.
	ForeignServiceAccountPrefix = "system:kcp:serviceaccount:"
)

// Extra keys of a user that the chain acts on.
const (
	// ScopesExtraKey narrows a user to logical clusters. Each value is a list "cluster:<a>,cluster:<b>" of
	// alternatives; all values must hold.
	ScopesExtraKey = "authentication.kcp.io/scopes"
	// ClusterNameExtraKey holds the logical cluster that an identity comes from.
	ClusterNameExtraKey = "authentication.kcp.io/cluster-name"
	// WarrantExtraKey holds further users, each as JSON, whose permissions the user may also draw on.
	WarrantExtraKey = "authorization.kcp.io/warrant"
)

const scopePrefix = "cluster:"
