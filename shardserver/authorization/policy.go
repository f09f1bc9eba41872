package authorization

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/apis/rbac"
	rbacinternalv1 "k8s.io/kubernetes/pkg/apis/rbac/v1"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"
	rbacauthorizer "k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// policy is the RBAC of one source, in the form that the stock authorizer and the stock escalation checks use.
type policy struct {
	resolver   *validation.DefaultRuleResolver
	authorizer *rbacauthorizer.RBACAuthorizer
}

// source provides RBAC objects to a policy: the four getters of the stock rule resolver.
type source interface {
	validation.RoleGetter
	validation.RoleBindingLister
	validation.ClusterRoleGetter
	validation.ClusterRoleBindingLister
}

func newPolicy(src source) policy {
	s := recordingSource{visitingSource{src}}
	return policy{
		resolver:   validation.NewDefaultRuleResolver(s, s, s, s),
		authorizer: rbacauthorizer.New(s, s, s, s),
	}
}

// authorize evaluates the policy for the user of the request.
func (p policy) authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	return p.authorizer.Authorize(withVisitedRoles(ctx), attributes)
}

var rbacResources = []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}

// reader reads the RBAC objects of the context's logical cluster from the watch cache, or from replicas if the logical
// cluster is on another shard: roles of namespaces are not published. Conversion to the versioned types shares slices
// with the cache, so the returned objects must not be modified.
type reader struct {
	roles               *storage.Reader[*rbac.Role]
	roleBindings        *storage.Reader[*rbac.RoleBinding]
	clusterRoles        *storage.Reader[*rbac.ClusterRole]
	clusterRoleBindings *storage.Reader[*rbac.ClusterRoleBinding]
}

func newReader(registry *storage.Registry) *reader {
	return &reader{
		roles:               storage.NewReader[*rbac.Role](registry, rbac.Resource("roles")),
		roleBindings:        storage.NewReader[*rbac.RoleBinding](registry, rbac.Resource("rolebindings")),
		clusterRoles:        storage.NewReader[*rbac.ClusterRole](registry, rbac.Resource("clusterroles")),
		clusterRoleBindings: storage.NewReader[*rbac.ClusterRoleBinding](registry, rbac.Resource("clusterrolebindings")),
	}
}

// readerFor returns the reader for the shard that has the logical cluster of the context.
func readerFor[T runtime.Object](ctx context.Context, reader *storage.Reader[T]) *storage.Reader[T] {
	if isRemote(ctx) {
		return reader.Global()
	}
	return reader
}

func (r *reader) GetRole(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	internal, err := r.roles.Get(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	role := &rbacv1.Role{}
	return role, rbacinternalv1.Convert_rbac_Role_To_v1_Role(internal, role, nil)
}

func (r *reader) ListRoleBindings(ctx context.Context, namespace string) ([]*rbacv1.RoleBinding, error) {
	internal, err := r.roleBindings.List(ctx, namespace, nil)
	return convertAll(internal, err, rbacinternalv1.Convert_rbac_RoleBinding_To_v1_RoleBinding)
}

func (r *reader) GetClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	internal, err := readerFor(ctx, r.clusterRoles).Get(ctx, "", name)
	if err != nil {
		return nil, err
	}
	role := &rbacv1.ClusterRole{}
	return role, rbacinternalv1.Convert_rbac_ClusterRole_To_v1_ClusterRole(internal, role, nil)
}

func (r *reader) ListClusterRoleBindings(ctx context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	internal, err := readerFor(ctx, r.clusterRoleBindings).List(ctx, "", nil)
	return convertAll(internal, err, rbacinternalv1.Convert_rbac_ClusterRoleBinding_To_v1_ClusterRoleBinding)
}

func (r *reader) listRoles(ctx context.Context, namespace string) ([]*rbacv1.Role, error) {
	internal, err := r.roles.List(ctx, namespace, nil)
	return convertAll(internal, err, rbacinternalv1.Convert_rbac_Role_To_v1_Role)
}

func (r *reader) listClusterRoles(ctx context.Context) ([]*rbacv1.ClusterRole, error) {
	internal, err := r.clusterRoles.List(ctx, "", nil)
	return convertAll(internal, err, rbacinternalv1.Convert_rbac_ClusterRole_To_v1_ClusterRole)
}

func convertAll[In, Out any](internal []*In, err error, convert func(*In, *Out, conversion.Scope) error) ([]*Out, error) {
	if err != nil {
		return nil, err
	}
	block := make([]Out, len(internal))
	converted := make([]*Out, len(internal))
	for i := range internal {
		if err := convert(internal[i], &block[i], nil); err != nil {
			return nil, err
		}
		converted[i] = &block[i]
	}
	return converted, nil
}

// localSource is the policy of the context's logical cluster. A role that does not exist there is read from the
// bootstrap policy. If both have a role of the name, a binding refers to the one in the logical cluster: a role that a
// new version of the server adds must not change what the bindings of tenants grant.
type localSource struct {
	*reader
	bootstrap source
}

func (s localSource) ListClusterRoleBindings(ctx context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	return memoize(ctx, clusterRoleBindings, func() ([]*rbacv1.ClusterRoleBinding, error) { return s.reader.ListClusterRoleBindings(ctx) })
}

func (s localSource) GetRole(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	role, err := s.reader.GetRole(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		return s.bootstrap.GetRole(ctx, namespace, name)
	}
	return role, err
}

func (s localSource) GetClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	return memoize(ctx, clusterRoleKey(name), func() (*rbacv1.ClusterRole, error) {
		role, err := s.reader.GetClusterRole(ctx, name)
		if apierrors.IsNotFound(err) {
			return s.bootstrap.GetClusterRole(ctx, name)
		}
		return role, err
	})
}

// rules resolves the rules of a user in the context's logical cluster: the union of the bootstrap and the local policy
// over the effective users. It is the resolver of the stock escalation checks.
type rules struct {
	bootstrap, local policy
	// maxValues bounds the verbs, groups, resources, names and URLs of the rules that RulesFor returns; 0 is defaultMaxValues.
	maxValues int
}

// defaultMaxValues is many times what users have. Escalation checks compare each with each permission of a new role.
const defaultMaxValues = 20_000

var errTooManyRules = errors.New("the user has more rules than can be evaluated, not all of them are considered")

var _ validation.AuthorizationRuleResolver = rules{}

// GetRoleReferenceRules returns the rules of the role that a binding in the context's logical cluster references.
func (r rules) GetRoleReferenceRules(ctx context.Context, roleRef rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	return r.local.resolver.GetRoleReferenceRules(ctx, roleRef, namespace)
}

// RulesFor returns all rules of a user. The rules are valid even if the error reports that some could not be resolved, or, as
// errTooManyRules, that there are more than the limit.
func (r rules) RulesFor(ctx context.Context, u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	var policyRules []rbacv1.PolicyRule
	var errs []error
	remaining := cmp.Or(r.maxValues, defaultMaxValues)
	r.VisitRulesFor(ctx, u, namespace, func(_ fmt.Stringer, rule *rbacv1.PolicyRule, err error) bool {
		if rule != nil {
			remaining -= len(rule.Verbs) + len(rule.APIGroups) + len(rule.Resources) + len(rule.ResourceNames) + len(rule.NonResourceURLs)
			if remaining < 0 {
				errs = append(errs, errTooManyRules)
				return false
			}
			policyRules = append(policyRules, *rule)
		}
		if err != nil {
			errs = append(errs, err)
		}
		return true
	})
	return policyRules, errors.Join(errs...)
}

// VisitRulesFor calls the visitor with every rule of a user until it returns false.
func (r rules) VisitRulesFor(ctx context.Context, u user.Info, namespace string, visitor func(fmt.Stringer, *rbacv1.PolicyRule, error) bool) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() {
		visitor(nil, nil, errors.New("resolving rules: no single logical cluster in the request"))
		return
	}
	proceed := true
	visit := func(source fmt.Stringer, rule *rbacv1.PolicyRule, err error) bool {
		proceed = visitor(source, rule, err)
		return proceed
	}
	for _, effective := range EffectiveUsers(cluster, u) {
		for _, p := range []policy{r.bootstrap, r.local} {
			if p.resolver.VisitRulesFor(withVisitedRoles(ctx), effective, namespace, visit); !proceed {
				return
			}
		}
	}
}

// toRuleInfos converts rules to the form that a SelfSubjectRulesReview shows. Each rule is listed once, although several
// bindings, or one for several effective users, may grant it.
func toRuleInfos(policyRules []rbacv1.PolicyRule) (resources []authorizer.ResourceRuleInfo, urls []authorizer.NonResourceRuleInfo) {
	seen := sets.New[string]()
	for i := range policyRules {
		rule := &policyRules[i]
		key := rule.String()
		if seen.Has(key) {
			continue
		}
		seen.Insert(key)
		if len(rule.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
			})
		}
		if len(rule.NonResourceURLs) > 0 {
			urls = append(urls, &authorizer.DefaultNonResourceRuleInfo{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
		}
	}
	return resources, urls
}
