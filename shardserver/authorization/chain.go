package authorization

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// metricsPath is the one endpoint of the whole shard that RBAC, that of root, may open.
const metricsPath = "/metrics"

// subject is one request under examination: everything the steps look at, gathered once.
type subject struct {
	ctx        context.Context // of the logical cluster that decides
	cluster    logicalcluster.Name
	attributes authorizer.Attributes
	users      []user.Info     // effective users
	groups     map[string]bool // of all effective users
	state      state           // of the logical cluster; zero for shard-level and deep reviews, which do not look
	shardLevel bool
	deep       bool
}

// addressed returns the request with the plain name of its resource. A client may write "<resource>:<identity>", which
// RBAC takes literally; what nobody may do to a resource, nobody may do to it by any name.
func (s *subject) addressed() authorizer.Attributes {
	if plain, _, ok := strings.Cut(s.attributes.GetResource(), ":"); ok {
		return named{s.attributes, plain}
	}
	return s.attributes
}

// named is a request for a resource by another name.
type named struct {
	authorizer.Attributes
	resource string
}

func (n named) GetResource() string { return n.resource }

// verdict is what a step says. A step that does not settle a request passes it to the next one.
type verdict struct {
	settles  bool
	decision authorizer.Decision
	reason   string
	err      error
}

func pass(format string, args ...any) verdict { return verdict{reason: text(format, args)} }

func settle(decision authorizer.Decision, format string, args ...any) verdict {
	return verdict{settles: true, decision: decision, reason: text(format, args)}
}

func text(format string, args []any) string {
	if len(args) == 0 {
		return format // as most reasons are, and each request has half a dozen
	}
	return fmt.Sprintf(format, args...)
}

// step is one named check. Its key is part of its audit annotations.
type step struct {
	key   string
	check func(*subject) verdict
	// alternative is set where the step is one of several that may allow a request: one that does not has no part in the
	// decision of the next, and its audit annotation says so. The others are doors: what passes one is decided behind it.
	alternative bool
}

// rbacChain is the inner chain, behind the groups and paths that are always allowed.
type rbacChain struct {
	clusters logicalClusters
	steps    []step
	audited  func() bool
}

func newRBACChain(config Config, held rules, clusters logicalClusters) *rbacChain {
	exports := exportPolicy{registry: config.Registry, rules: held, bound: config.Bound, exports: config.Exports}
	return &rbacChain{clusters: clusters, audited: config.Audited, steps: []step{
		{key: "01-requiredgroups", check: requiredGroups},     // the workspace's own door, before everything else
		{key: "02-content", check: content{held}.check},       // may this user enter the workspace at all
		{key: "03-systemcrd", check: systemResources},         // what only the server itself writes
		{key: "04-maxpermissionpolicy", check: exports.check}, // what the owner of an API leaves to its users
		// RBAC valid in every logical cluster
		{key: "05-bootstrap", check: allowedBy("bootstrap policy", held.bootstrap), alternative: true},
		// RBAC of this one; the last step settles
		{key: "05-local", check: allowedBy("local policy", held.local), alternative: true},
	}}
}

// Authorize runs the steps in order until one settles the request.
func (c *rbacChain) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	cluster, ok := logicalcluster.From(ctx)
	shardLevel := !attributes.IsResourceRequest() && attributes.GetPath() == metricsPath
	switch {
	case !ok && shardLevel:
		cluster = logicalcluster.Root
	case !ok:
		return authorizer.DecisionNoOpinion, "no logical cluster in the request", nil
	case cluster.IsWildcard():
		return authorizer.DecisionDeny, "requests to all logical clusters are for privileged groups", nil
	}
	users := EffectiveUsers(cluster, attributes.GetUser())
	s := &subject{
		ctx:        withRemembered(logicalcluster.With(ctx, cluster), cluster),
		cluster:    cluster,
		attributes: attributes,
		users:      users,
		groups:     EffectiveGroups(users),
		shardLevel: shardLevel,
		deep:       isDeep(ctx),
	}
	if mayBeElsewhere(ctx) {
		var err error
		if s.ctx, err = goAbroad(s.ctx, c.clusters.registry, cluster); err != nil {
			return authorizer.DecisionNoOpinion, "", err
		}
	}
	if !s.shardLevel && !s.deep {
		var err error
		if s.state, err = c.clusters.state(s.ctx); err != nil {
			return authorizer.DecisionNoOpinion, "", fmt.Errorf("authorizing a request to logical cluster %q: %w", cluster, err)
		}
	}
	return c.run(s)
}

func (c *rbacChain) run(s *subject) (authorizer.Decision, string, error) {
	verdicts := make([]verdict, 0, len(c.steps))
	last := settle(authorizer.DecisionNoOpinion, "nobody allowed it")
	var failed error // of the steps that passed the request on: one of them might have allowed it
	for _, step := range c.steps {
		v := step.check(s)
		verdicts = append(verdicts, v)
		if v.settles {
			last = v
			break
		}
		failed = errors.Join(failed, v.err)
		last = verdict{decision: authorizer.DecisionNoOpinion, reason: v.reason, err: failed}
	}
	c.audit(s, verdicts, last)
	return last.decision, last.reason, last.err
}

// audit records every step that looked at the request. A door that it passed shows the decision that came of it.
func (c *rbacChain) audit(s *subject, verdicts []verdict, last verdict) {
	if c.audited != nil && !c.audited() {
		return
	}
	prefix := auditPrefix(s.ctx, s.attributes)
	if prefix == "" {
		return
	}
	for i, v := range verdicts {
		decision, reason := last.decision, v.reason
		switch {
		case c.steps[i].alternative && !v.settles:
			decision = authorizer.DecisionNoOpinion
		case !v.settles && i < len(verdicts)-1:
			reason = "delegating: " + reason
		}
		audit.AddAuditAnnotations(s.ctx,
			prefix+c.steps[i].key+"-decision", auditDecisions[decision],
			prefix+c.steps[i].key+"-reason", reason)
	}
}

var auditDecisions = map[authorizer.Decision]string{
	authorizer.DecisionAllow:     "Allowed",
	authorizer.DecisionDeny:      "Denied",
	authorizer.DecisionNoOpinion: "NoOpinion",
}

var accessReviews = sets.New("subjectaccessreviews", "selfsubjectaccessreviews", "localsubjectaccessreviews")

// auditPrefix tells under which name a decision belongs into the audit event: that of the request itself, that of
// the question asked by an access review, or (checks made on the way, such as for escalation) none at all.
func auditPrefix(ctx context.Context, attributes authorizer.Attributes) string {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok || info == nil {
		return ""
	}
	switch {
	case info.Path == attributes.GetPath() && info.Verb == attributes.GetVerb():
		return "request.auth.kcp.io/"
	case info.APIGroup == "authorization.k8s.io" && accessReviews.Has(info.Resource):
		return "sar.auth.kcp.io/"
	}
	return ""
}

// allowedBy asks one RBAC policy for every effective user. RBAC allows or has no opinion.
func allowedBy(name string, p policy) func(*subject) verdict {
	return func(s *subject) verdict {
		ctx, failed := withFailures(s.ctx)
		decision, reason, err := forEach(s.users, s.attributes, func(attributes authorizer.Attributes) (authorizer.Decision, string, error) {
			return p.authorizer.Authorize(ctx, attributes)
		})
		if decision == authorizer.DecisionAllow {
			return settle(decision, "%s: %s", name, reason)
		}
		return verdict{reason: fmt.Sprintf("%s: no rule allows it %s", name, reason), err: errors.Join(err, failed.err())}
	}
}
