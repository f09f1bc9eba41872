// Package authorization authorizes requests in their logical cluster: the chain of required groups, workspace content,
// system resources, maximal permission policies and RBAC, over the RBAC objects in the shard's watch cache. There is no
// per-workspace state and no cache of decisions: a decision is computed from the current content of the watch cache for
// the logical cluster of the request's context. Only the policy of system:admin, which applies to every logical
// cluster, is copied.
//
// It must not depend on how identities are authenticated (package authentication) and must not write objects (package
// bootstrap).
package authorization

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Modes of Config.Order.
const (
	ModeAlwaysAllowGroups = "AlwaysAllowGroups"
	ModeAlwaysAllowPaths  = "AlwaysAllowPaths"
	ModeRBAC              = "RBAC"
	ModeWebhook           = "Webhook"
)

// DefaultOrder returns the order in which the outer authorizers are evaluated.
func DefaultOrder() []string {
	return []string{ModeAlwaysAllowGroups, ModeAlwaysAllowPaths, ModeRBAC, ModeWebhook}
}

// Reasons returned to clients. Details are recorded in the audit log only.
const (
	reasonGranted = "access granted"
	reasonDenied  = "access denied"
)

// Config configures an Authorizer.
type Config struct {
	// Registry reads RBAC objects and logical clusters. It may still be empty: requests that need it fail with an
	// internal error until the APIs are installed.
	Registry *storage.Registry
	// Bound and Exports resolve bound resources and the maximal permission policies of their exports. If both are nil,
	// no resource is bound.
	Bound   *bindings.Index
	Exports *apiindex.Resolver
	// AlwaysAllowPaths need no authorization. A trailing '*' makes an entry a prefix.
	AlwaysAllowPaths []string
	// AlwaysAllowGroups need no authorization, including for wildcard requests. Default: system:masters.
	AlwaysAllowGroups []string
	// Audited reports whether audit annotations of decisions are recorded. If nil, they are.
	Audited func() bool
	// Webhook is consulted if no authorizer before it in Order decided. It may be nil.
	Webhook authorizer.UnconditionalAuthorizer
	// Order lists the modes in evaluation order; a mode that is not listed is disabled. Default: DefaultOrder.
	Order []string
}

// Authorizer is the chain. It is safe for concurrent use.
type Authorizer struct {
	outer            authorizer.UnconditionalAuthorizer
	rules            rules
	bootstrap        *bootstrapSource
	exports          *apiindex.Resolver
	privilegedGroups []string
	// flowOwners caches the results of FlowOwner, which each request needs.
	flowOwners *cache.LRUExpireCache
}

var (
	_ authorizer.UnconditionalAuthorizer = &Authorizer{}
	_ authorizer.RuleResolver            = &Authorizer{}
)

// New builds the chain.
func New(config Config) (*Authorizer, error) {
	if config.Registry == nil {
		return nil, errors.New("authorization: a storage registry is required")
	}
	if (config.Bound == nil) != (config.Exports == nil) {
		return nil, errors.New("authorization: bindings and exports are required together")
	}
	if len(config.AlwaysAllowGroups) == 0 {
		config.AlwaysAllowGroups = []string{GroupMasters}
	}
	if len(config.Order) == 0 {
		config.Order = DefaultOrder()
	}
	bootstrap := newBootstrapSource(config.Registry)
	resolver := rules{
		bootstrap: newPolicy(bootstrap),
		local:     newPolicy(localSource{reader: newReader(config.Registry), bootstrap: bootstrap}),
	}
	outer, err := newAuthorizerChain(config, resolver, newLogicalClusters(config.Registry))
	if err != nil {
		return nil, err
	}
	return &Authorizer{
		outer: outer, rules: resolver, bootstrap: bootstrap, exports: config.Exports, privilegedGroups: config.AlwaysAllowGroups,
		flowOwners: cache.NewLRUExpireCache(maxFlowOwners),
	}, nil
}

func newAuthorizerChain(config Config, resolver rules, clusters logicalClusters) (authorizer.UnconditionalAuthorizer, error) {
	var chain []union.NamedAuthorizer
	seen := map[string]bool{}
	for _, mode := range config.Order {
		if seen[mode] {
			return nil, fmt.Errorf("authorization order: %s is listed twice", mode)
		}
		seen[mode] = true
		switch mode {
		case ModeAlwaysAllowGroups:
			chain = append(chain, modeAuthorizer(mode, authorizerfactory.NewPrivilegedGroups(config.AlwaysAllowGroups...)))
		case ModeAlwaysAllowPaths:
			paths, err := path.NewAuthorizer(config.AlwaysAllowPaths)
			if err != nil {
				return nil, fmt.Errorf("paths that are always allowed: %w", err)
			}
			chain = append(chain, modeAuthorizer(mode, exceptUsage(paths)))
		case ModeRBAC:
			chain = append(chain, modeAuthorizer("ShardRegistration", shardJoinAuthorizer{config.Registry}), modeAuthorizer(mode, newRBACChain(config, resolver, clusters)))
		case ModeWebhook:
			if config.Webhook != nil {
				chain = append(chain, modeAuthorizer(mode, webhook{config.Webhook}))
			}
		default:
			return nil, fmt.Errorf("authorization order: unknown mode %q, known are %v", mode, DefaultOrder())
		}
	}
	return union.New(chain...)
}

// exceptUsage returns an authorizer without opinion about the usage of logical clusters: who opens the metrics of the shard to all
// does not mean those of its tenants.
func exceptUsage(delegate authorizer.UnconditionalAuthorizer) authorizer.UnconditionalAuthorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		if _, ok := logicalcluster.From(ctx); ok && isMetrics(attributes) && !isShardMetrics(ctx, attributes) {
			return authorizer.DecisionNoOpinion, "", nil
		}
		return delegate.Authorize(ctx, attributes)
	})
}

// modeAuthorizer returns a member of the union, which decides without conditions.
func modeAuthorizer(name string, delegate authorizer.UnconditionalAuthorizer) union.NamedAuthorizer {
	return union.NamedAuthorizer{AuthorizerName: name, Authorizer: authorizer.AuthorizerFunc(delegate.Authorize)}
}

// errAuthorizationFailed makes the response a 500, so that clients retry.
var errAuthorizationFailed = errors.New("the request cannot be authorized now")

// Authorize decides one request. The returned reason is the same for all allowed and for all denied requests, so that
// it discloses nothing about the logical cluster.
func (a *Authorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	attributes = attributesWithUser{attributes, restrictScope(ctx, attributes.GetUser())}
	if !a.privileged(attributes.GetUser()) {
		if reason, denied := deniesImpersonation(ctx, attributes); denied {
			if reason != "" {
				audit.AddAuditAnnotation(ctx, "request.auth.kcp.io/impersonation-reason", reason)
			}
			return authorizer.DecisionDeny, reasonDenied, nil
		}
	}
	decision, _, err := a.outer.Authorize(ctx, attributes)
	if decision == authorizer.DecisionAllow {
		return decision, reasonGranted, nil
	}
	if err != nil {
		// Internal errors are logged and not returned to a caller whose permissions could not be determined.
		klog.FromContext(ctx).Error(err, "Failed to authorize a request", "verb", attributes.GetVerb(), "path", attributes.GetPath())
		return decision, reasonDenied, errAuthorizationFailed
	}
	return decision, reasonDenied, nil
}

func (a *Authorizer) privileged(u user.Info) bool {
	return slices.ContainsFunc(u.GetGroups(), func(group string) bool { return slices.Contains(a.privilegedGroups, group) })
}

// RulesFor returns the rules of a user in the context's logical cluster and the namespace, as a SelfSubjectRulesReview
// shows them.
func (a *Authorizer) RulesFor(ctx context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	policyRules, err := a.rules.RulesFor(ctx, u, namespace)
	resources, urls := toRuleInfos(policyRules)
	return resources, urls, errors.Is(err, errTooManyRules), err
}

// RuleResolver returns the resolver for the escalation checks of RBAC writes: the union of the local and the bootstrap
// policy, over the effective users.
func (a *Authorizer) RuleResolver() validation.AuthorizationRuleResolver { return a.rules }

// webhook calls the configured webhook for every effective user and adds the logical cluster to the request, if it is to
// one. It cannot allow requests to all logical clusters, of which a webhook that does not expect them sees only one.
type webhook struct {
	delegate authorizer.UnconditionalAuthorizer
}

// Extra keys that carry the logical cluster of a request to a webhook.
const (
	clusterNameForWebhook       = "authorization.kcp.io/cluster-name"
	legacyClusterNameForWebhook = "authorization.kubernetes.io/cluster-name"
)

func (w webhook) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	cluster, _ := logicalcluster.From(ctx) // empty outside of logical clusters
	decision, reason, err := forEachUser(EffectiveUsers(cluster, attributes.GetUser()), attributes, func(attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		return w.delegate.Authorize(ctx, attributesWithUser{attributes, forWebhook(attributes.GetUser(), cluster)})
	})
	if decision == authorizer.DecisionAllow && cluster.IsWildcard() {
		return authorizer.DecisionNoOpinion, "requests to all logical clusters are for privileged groups", err
	}
	return decision, reason, err
}

// forWebhook returns a user with the logical cluster of the request, or without one.
func forWebhook(u user.Info, cluster logicalcluster.Name) user.Info {
	extra := maps.Clone(u.GetExtra())
	if extra == nil {
		extra = map[string][]string{}
	}
	for _, key := range []string{clusterNameForWebhook, legacyClusterNameForWebhook} {
		delete(extra, key)
		if !cluster.Empty() {
			extra[key] = []string{cluster.String()}
		}
	}
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}
}

// attributesWithUser are the attributes of a request with another user.
type attributesWithUser struct {
	authorizer.Attributes
	user user.Info
}

func (a attributesWithUser) GetUser() user.Info { return a.user }

// forEachUser evaluates the request for each user in order. The first decision other than NoOpinion wins; errors are
// returned only if there is none.
func forEachUser(users []user.Info, attributes authorizer.Attributes, authorize func(authorizer.Attributes) (authorizer.Decision, string, error)) (authorizer.Decision, string, error) {
	var errs []error
	reason := ""
	for _, u := range users {
		decision, userReason, err := authorize(attributesWithUser{attributes, u})
		if decision != authorizer.DecisionNoOpinion {
			return decision, userReason, err
		}
		if userReason != "" {
			reason = userReason
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return authorizer.DecisionNoOpinion, reason, errors.Join(errs...)
}
