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

// metricsPath is the only non-resource path outside of logical clusters that RBAC, that of root, can allow.
const metricsPath = "/metrics"

// accessRequest is the input of the steps: one request with everything they evaluate, collected once.
type accessRequest struct {
	ctx        context.Context // carries the logical cluster whose policy decides
	cluster    logicalcluster.Name
	attributes authorizer.Attributes
	users      []user.Info     // effective users
	groups     map[string]bool // of all effective users
	state      state           // of the logical cluster; zero for shard-level requests and deep reviews, which do not read it
	shardLevel bool
	deepSAR    bool
}

// attributesWithoutIdentity returns the attributes with the resource name without identity. A client may send
// "<resource>:<identity>", which RBAC matches literally; restrictions on a resource apply to every form of its name.
func (a *accessRequest) attributesWithoutIdentity() authorizer.Attributes {
	if resource, _, ok := strings.Cut(a.attributes.GetResource(), ":"); ok {
		return attributesWithResource{a.attributes, resource}
	}
	return a.attributes
}

// attributesWithResource are the attributes of a request with another resource name.
type attributesWithResource struct {
	authorizer.Attributes
	resource string
}

func (a attributesWithResource) GetResource() string { return a.resource }

// stepResult is the result of a step. Unless it is final, the next step is evaluated.
type stepResult struct {
	final    bool
	decision authorizer.Decision
	reason   string
	err      error
}

func delegate(format string, args ...any) stepResult {
	return stepResult{reason: formatReason(format, args)}
}

func decide(decision authorizer.Decision, format string, args ...any) stepResult {
	return stepResult{final: true, decision: decision, reason: formatReason(format, args)}
}

func formatReason(format string, args []any) string {
	if len(args) == 0 {
		return format // most reasons take no arguments, and each request has several of them
	}
	return fmt.Sprintf(format, args...)
}

// step is one named check. Its key is part of its audit annotations.
type step struct {
	key   string
	check func(*accessRequest) stepResult
	// alternative marks a step that is one of several that may allow a request: its NoOpinion has no effect on the
	// decision of later steps, and its audit annotation shows NoOpinion. The other steps are preconditions: their
	// annotation shows the decision of the steps after them.
	alternative bool
}

// rbacChain is the inner chain. It runs after the groups and paths that are always allowed.
type rbacChain struct {
	clusters logicalClusters
	steps    []step
	audited  func() bool
}

func newRBACChain(config Config, resolver rules, clusters logicalClusters) *rbacChain {
	exports := exportPolicy{registry: config.Registry, rules: resolver, bound: config.Bound, exports: config.Exports}
	return &rbacChain{clusters: clusters, audited: config.Audited, steps: []step{
		{key: "01-requiredgroups", check: checkRequiredGroups}, // groups that the workspace requires, before everything else
		{key: "02-content", check: content{resolver}.check},    // whether the user may access the workspace at all
		{key: "03-systemcrd", check: checkSystemResources},     // resources that only the server itself writes
		{key: "04-maxpermissionpolicy", check: exports.check},  // maximal permission policy of the API's export
		// RBAC of system:admin, valid in every logical cluster
		{key: "05-bootstrap", check: checkPolicy("bootstrap policy", resolver.bootstrap), alternative: true},
		// RBAC of this logical cluster; the last step is final
		{key: "05-local", check: checkPolicy("local policy", resolver.local), alternative: true},
	}}
}

func isMetrics(attributes authorizer.Attributes) bool {
	return !attributes.IsResourceRequest() && attributes.GetPath() == metricsPath
}

// isShardMetrics reports whether a request or a review is for the metrics of the shard. Below another logical cluster than root, the
// path is the usage of that one, which needs access to it as everything else in it.
func isShardMetrics(ctx context.Context, attributes authorizer.Attributes) bool {
	cluster, ok := logicalcluster.From(ctx)
	return isMetrics(attributes) && (!ok || cluster == logicalcluster.Root)
}

// Authorize runs the steps in order until a result is final.
func (c *rbacChain) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	cluster, ok := logicalcluster.From(ctx)
	shardLevel := isShardMetrics(ctx, attributes)
	switch {
	case !ok && shardLevel:
		cluster = logicalcluster.Root
	case !ok:
		return authorizer.DecisionNoOpinion, "no logical cluster in the request", nil
	case cluster.IsWildcard():
		return authorizer.DecisionDeny, "requests to all logical clusters are for privileged groups", nil
	}
	users := EffectiveUsers(cluster, attributes.GetUser())
	s := &accessRequest{
		ctx:        withMemo(logicalcluster.With(ctx, cluster), cluster),
		cluster:    cluster,
		attributes: attributes,
		users:      users,
		groups:     EffectiveGroups(users),
		shardLevel: shardLevel,
		deepSAR:    isDeepSAR(ctx),
	}
	if isRemoteAllowed(ctx) {
		var err error
		if s.ctx, err = withRemoteCluster(s.ctx, c.clusters.registry, cluster); err != nil {
			return authorizer.DecisionNoOpinion, "", err
		}
	}
	if !s.shardLevel && !s.deepSAR {
		var err error
		if s.state, err = c.clusters.state(s.ctx); err != nil {
			return authorizer.DecisionNoOpinion, "", fmt.Errorf("authorizing a request to logical cluster %q: %w", cluster, err)
		}
	}
	return c.run(s)
}

func (c *rbacChain) run(s *accessRequest) (authorizer.Decision, string, error) {
	results := make([]stepResult, 0, len(c.steps))
	last := decide(authorizer.DecisionNoOpinion, "no authorizer allowed it")
	var failed error // errors of steps without a final result, which might have allowed it
	for _, step := range c.steps {
		v := step.check(s)
		results = append(results, v)
		if v.final {
			last = v
			break
		}
		failed = errors.Join(failed, v.err)
		last = stepResult{decision: authorizer.DecisionNoOpinion, reason: v.reason, err: failed}
	}
	c.audit(s, results, last)
	return last.decision, last.reason, last.err
}

// audit annotates the result of every evaluated step. A precondition that passed is annotated with the final decision.
func (c *rbacChain) audit(s *accessRequest, results []stepResult, last stepResult) {
	if c.audited != nil && !c.audited() {
		return
	}
	prefix := auditPrefix(s.ctx, s.attributes)
	if prefix == "" {
		return
	}
	for i, v := range results {
		decision, reason := last.decision, v.reason
		switch {
		case c.steps[i].alternative && !v.final:
			decision = authorizer.DecisionNoOpinion
		case !v.final && i < len(results)-1:
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

// auditPrefix returns the prefix of the audit annotations of a decision: one for requests themselves, one for access
// reviews, and none for checks made while serving a request, such as for escalation.
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

// checkPolicy evaluates one RBAC policy for every effective user. RBAC allows or has no opinion.
func checkPolicy(name string, p policy) func(*accessRequest) stepResult {
	return func(s *accessRequest) stepResult {
		ctx, failed := withFailures(s.ctx)
		decision, reason, err := forEachUser(s.users, s.attributes, func(attributes authorizer.Attributes) (authorizer.Decision, string, error) {
			return p.authorize(ctx, attributes)
		})
		if decision == authorizer.DecisionAllow {
			return decide(decision, "%s: %s", name, reason)
		}
		return stepResult{reason: fmt.Sprintf("%s: no rule allows it %s", name, reason), err: errors.Join(err, failed.err())}
	}
}
