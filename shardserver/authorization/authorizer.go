// Package authorization decides what a request may do in its logical cluster: the contract's chain of required
// groups, workspace content, system resources and RBAC, over the RBAC objects in the shard's watch cache (wall W6).
// Nothing here exists because a workspace exists, and no decision is cached: a decision is computed from what the
// watch cache holds now, for the logical cluster of the request's context. The one copy that is kept is that of the
// policy of system:admin, which is the same for all of them.
//
// It must not know how identities come about (package authentication) nor write anything (package bootstrap).
package authorization

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// DefaultOrder is the order in which the outer authorizers are asked.
func DefaultOrder() []string {
	return []string{ModeAlwaysAllowGroups, ModeAlwaysAllowPaths, ModeRBAC, ModeWebhook}
}

// What a client is told. The details are in the audit log alone.
const (
	reasonGranted = "access granted"
	reasonDenied  = "access denied"
)

// Config is what an Authorizer is made of.
type Config struct {
	// Registry gives access to RBAC objects and logical clusters. It may still be empty: requests that need it fail
	// with an internal error until the APIs are installed.
	Registry *storage.Registry
	// Bound and Exports tell what is bound where, and which bounds its owner sets. Both may be nil: then nothing is bound.
	Bound   *bindings.Index
	Exports *apiindex.Resolver
	// AlwaysAllowPaths need no authorization. A trailing '*' makes one a prefix.
	AlwaysAllowPaths []string
	// AlwaysAllowGroups need no authorization anywhere, wildcard requests included. Default: system:masters.
	AlwaysAllowGroups []string
	// Audited tells whether anybody reads what is said of decisions in audit events; nil: somebody does.
	Audited func() bool
	// Webhook is asked where nothing else decided. It may be nil.
	Webhook authorizer.Authorizer
	// Order lists the modes in the order in which they are asked; a mode left out is off. Default: DefaultOrder.
	Order []string
}

// Authorizer is the chain. It is safe for concurrent use.
type Authorizer struct {
	outer            authorizer.Authorizer
	rules            rules
	bootstrap        *bootstrapSource
	exports          *apiindex.Resolver
	privilegedGroups []string
}

var (
	_ authorizer.Authorizer   = &Authorizer{}
	_ authorizer.RuleResolver = &Authorizer{}
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
	held := rules{
		bootstrap: newPolicy(bootstrap),
		local:     newPolicy(localSource{reader: newReader(config.Registry), bootstrap: bootstrap}),
	}
	outer, err := ordered(config, held, newLogicalClusters(config.Registry))
	if err != nil {
		return nil, err
	}
	return &Authorizer{outer: outer, rules: held, bootstrap: bootstrap, exports: config.Exports, privilegedGroups: config.AlwaysAllowGroups}, nil
}

func ordered(config Config, held rules, clusters logicalClusters) (authorizer.Authorizer, error) {
	var chain []authorizer.Authorizer
	seen := map[string]bool{}
	for _, mode := range config.Order {
		if seen[mode] {
			return nil, fmt.Errorf("authorization order: %s is listed twice", mode)
		}
		seen[mode] = true
		switch mode {
		case ModeAlwaysAllowGroups:
			chain = append(chain, authorizerfactory.NewPrivilegedGroups(config.AlwaysAllowGroups...))
		case ModeAlwaysAllowPaths:
			paths, err := path.NewAuthorizer(config.AlwaysAllowPaths)
			if err != nil {
				return nil, fmt.Errorf("paths that are always allowed: %w", err)
			}
			chain = append(chain, paths)
		case ModeRBAC:
			chain = append(chain, registration{config.Registry}, newRBACChain(config, held, clusters))
		case ModeWebhook:
			if config.Webhook != nil {
				chain = append(chain, webhook{config.Webhook})
			}
		default:
			return nil, fmt.Errorf("authorization order: unknown mode %q, known are %v", mode, DefaultOrder())
		}
	}
	return union.New(chain...), nil
}

// errUndecided makes the answer 500: ask again.
var errUndecided = errors.New("the request cannot be authorized now")

// Authorize decides one request. The reason it returns is the same for everything that was allowed and for everything
// that was not, so that it tells nothing about the logical cluster.
func (a *Authorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	attributes = asUser{attributes, narrow(ctx, attributes.GetUser())}
	if !a.privileged(attributes.GetUser()) {
		if why, refused := impersonationRefused(ctx, attributes); refused {
			if why != "" {
				audit.AddAuditAnnotation(ctx, "request.auth.kcp.io/impersonation-reason", why)
			}
			return authorizer.DecisionDeny, reasonDenied, nil
		}
	}
	decision, _, err := a.outer.Authorize(ctx, attributes)
	if decision == authorizer.DecisionAllow {
		return decision, reasonGranted, nil
	}
	if err != nil {
		// What went wrong inside is for the log, not for a caller whose rights are not known.
		klog.FromContext(ctx).Error(err, "Authorizing a request failed", "verb", attributes.GetVerb(), "path", attributes.GetPath())
		return decision, reasonDenied, errUndecided
	}
	return decision, reasonDenied, nil
}

func (a *Authorizer) privileged(u user.Info) bool {
	return slices.ContainsFunc(u.GetGroups(), func(group string) bool { return slices.Contains(a.privilegedGroups, group) })
}

// RulesFor lists what a user may do in the context's logical cluster and the namespace, as a SelfSubjectRulesReview
// shows it.
func (a *Authorizer) RulesFor(ctx context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	held, err := a.rules.RulesFor(ctx, u, namespace)
	resources, urls := describe(held)
	return resources, urls, false, err
}

// RuleResolver returns the resolver for the escalation checks of RBAC writes: the union of the local and the
// bootstrap policy, over the effective users.
func (a *Authorizer) RuleResolver() validation.AuthorizationRuleResolver { return a.rules }

// webhook asks the configured webhook for every effective user, and tells it the logical cluster.
type webhook struct{ delegate authorizer.Authorizer }

// Extra keys by which a webhook learns the logical cluster of a request.
const (
	clusterNameForWebhook       = "authorization.kcp.io/cluster-name"
	legacyClusterNameForWebhook = "authorization.kubernetes.io/cluster-name"
)

func (w webhook) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() {
		return authorizer.DecisionNoOpinion, "no single logical cluster in the request", nil
	}
	return forEach(EffectiveUsers(cluster, attributes.GetUser()), attributes, func(attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		told := withExtra(attributes.GetUser(), map[string]string{
			clusterNameForWebhook:       cluster.String(),
			legacyClusterNameForWebhook: cluster.String(),
		})
		return w.delegate.Authorize(ctx, asUser{attributes, told})
	})
}

func withExtra(u user.Info, set map[string]string) user.Info {
	extra := make(map[string][]string, len(u.GetExtra())+len(set))
	for key, values := range u.GetExtra() {
		extra[key] = values
	}
	for key, value := range set {
		extra[key] = []string{value}
	}
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}
}

// asUser is a request made by somebody else.
type asUser struct {
	authorizer.Attributes
	user user.Info
}

func (a asUser) GetUser() user.Info { return a.user }

// forEach asks for every user in turn. The first decision that is an opinion wins; errors count only when there is none.
func forEach(users []user.Info, attributes authorizer.Attributes, ask func(authorizer.Attributes) (authorizer.Decision, string, error)) (authorizer.Decision, string, error) {
	var errs []error
	reason := ""
	for _, u := range users {
		decision, because, err := ask(asUser{attributes, u})
		if decision != authorizer.DecisionNoOpinion {
			return decision, because, err
		}
		if because != "" {
			reason = because
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return authorizer.DecisionNoOpinion, reason, errors.Join(errs...)
}
