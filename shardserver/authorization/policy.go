package authorization

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/apis/rbac"
	rbacinternalv1 "k8s.io/kubernetes/pkg/apis/rbac/v1"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"
	rbacauthorizer "k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// policy is the RBAC of one source, in the form that the stock authorizer and the stock escalation checks read.
type policy struct {
	resolver   *validation.DefaultRuleResolver
	authorizer *rbacauthorizer.RBACAuthorizer
}

// source is what a policy reads: the four getters of the stock rule resolver.
type source interface {
	validation.RoleGetter
	validation.RoleBindingLister
	validation.ClusterRoleGetter
	validation.ClusterRoleBindingLister
}

func newPolicy(s source) policy {
	return policy{
		resolver:   validation.NewDefaultRuleResolver(s, s, s, s),
		authorizer: rbacauthorizer.New(s, s, s, s),
	}
}

// localSource reads the RBAC objects of the context's logical cluster from the watch cache. A ClusterRole that the
// logical cluster does not have is looked up in the bootstrap policy.
type localSource struct {
	roles               *storage.Reader[*rbac.Role]
	roleBindings        *storage.Reader[*rbac.RoleBinding]
	clusterRoles        *storage.Reader[*rbac.ClusterRole]
	clusterRoleBindings *storage.Reader[*rbac.ClusterRoleBinding]
}

func newLocalSource(registry *storage.Registry) *localSource {
	resource := func(name string) schema.GroupResource {
		return schema.GroupResource{Group: rbac.GroupName, Resource: name}
	}
	return &localSource{
		roles:               storage.NewReader[*rbac.Role](registry, resource("roles")),
		roleBindings:        storage.NewReader[*rbac.RoleBinding](registry, resource("rolebindings")),
		clusterRoles:        storage.NewReader[*rbac.ClusterRole](registry, resource("clusterroles")),
		clusterRoleBindings: storage.NewReader[*rbac.ClusterRoleBinding](registry, resource("clusterrolebindings")),
	}
}

func (s *localSource) GetRole(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	internal, err := s.roles.Get(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	role := &rbacv1.Role{}
	// The conversion shares the slices: what is read here is never written to.
	return role, rbacinternalv1.Convert_rbac_Role_To_v1_Role(internal, role, nil)
}

func (s *localSource) ListRoleBindings(ctx context.Context, namespace string) ([]*rbacv1.RoleBinding, error) {
	internal, err := s.roleBindings.List(ctx, namespace, nil)
	return convertAll(internal, rbacinternalv1.Convert_rbac_RoleBinding_To_v1_RoleBinding, err)
}

func (s *localSource) GetClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	internal, err := s.clusterRoles.Get(ctx, "", name)
	if cluster, _ := logicalcluster.From(ctx); apierrors.IsNotFound(err) && cluster != logicalcluster.Admin {
		internal, err = s.clusterRoles.Get(logicalcluster.With(ctx, logicalcluster.Admin), "", name)
	}
	if err != nil {
		return nil, err
	}
	role := &rbacv1.ClusterRole{}
	return role, rbacinternalv1.Convert_rbac_ClusterRole_To_v1_ClusterRole(internal, role, nil)
}

func (s *localSource) ListClusterRoleBindings(ctx context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	internal, err := s.clusterRoleBindings.List(ctx, "", nil)
	return convertAll(internal, rbacinternalv1.Convert_rbac_ClusterRoleBinding_To_v1_ClusterRoleBinding, err)
}

func convertAll[In, Out any, Scope any](internal []*In, convert func(*In, *Out, Scope) error, err error) ([]*Out, error) {
	if err != nil {
		return nil, err
	}
	var scope Scope
	block := make([]Out, len(internal))
	converted := make([]*Out, len(internal))
	for i := range internal {
		if err := convert(internal[i], &block[i], scope); err != nil {
			return nil, err
		}
		converted[i] = &block[i]
	}
	return converted, nil
}

// bootstrapSource reads the RBAC objects of system:admin, whatever the logical cluster of the context.
type bootstrapSource struct{ source }

func (s bootstrapSource) GetRole(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	return s.source.GetRole(logicalcluster.With(ctx, logicalcluster.Admin), namespace, name)
}

func (s bootstrapSource) ListRoleBindings(ctx context.Context, namespace string) ([]*rbacv1.RoleBinding, error) {
	return s.source.ListRoleBindings(logicalcluster.With(ctx, logicalcluster.Admin), namespace)
}

func (s bootstrapSource) GetClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	return s.source.GetClusterRole(logicalcluster.With(ctx, logicalcluster.Admin), name)
}

func (s bootstrapSource) ListClusterRoleBindings(ctx context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	return s.source.ListClusterRoleBindings(logicalcluster.With(ctx, logicalcluster.Admin))
}

// rules answers what a user holds in the context's logical cluster: the union of the bootstrap and the local policy
// over the effective users. It is the resolver behind the stock escalation checks.
type rules struct {
	bootstrap, local policy
}

var _ validation.AuthorizationRuleResolver = rules{}

// GetRoleReferenceRules resolves what a binding of the context's logical cluster refers to.
func (r rules) GetRoleReferenceRules(ctx context.Context, roleRef rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	return r.local.resolver.GetRoleReferenceRules(ctx, roleRef, namespace)
}

// RulesFor returns all rules of a user. Rules are valid even when an error says that some could not be resolved.
func (r rules) RulesFor(ctx context.Context, u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	var held []rbacv1.PolicyRule
	var errs []error
	r.VisitRulesFor(ctx, u, namespace, func(_ fmt.Stringer, rule *rbacv1.PolicyRule, err error) bool {
		if rule != nil {
			held = append(held, *rule)
		}
		if err != nil {
			errs = append(errs, err)
		}
		return true
	})
	return held, errors.Join(errs...)
}

// VisitRulesFor calls the visitor with every rule of a user until it returns false.
func (r rules) VisitRulesFor(ctx context.Context, u user.Info, namespace string, visitor func(fmt.Stringer, *rbacv1.PolicyRule, error) bool) {
	cluster, ok := logicalcluster.From(ctx)
	if !ok || cluster.IsWildcard() {
		visitor(nil, nil, errors.New("resolving rules: no single logical cluster in the request"))
		return
	}
	goOn := true
	observed := func(source fmt.Stringer, rule *rbacv1.PolicyRule, err error) bool {
		goOn = visitor(source, rule, err)
		return goOn
	}
	for _, effective := range EffectiveUsers(cluster, u) {
		for _, p := range []policy{r.bootstrap, r.local} {
			if p.resolver.VisitRulesFor(ctx, effective, namespace, observed); !goOn {
				return
			}
		}
	}
}

// describe turns rules into what a SelfSubjectRulesReview shows.
func describe(held []rbacv1.PolicyRule) (resources []authorizer.ResourceRuleInfo, urls []authorizer.NonResourceRuleInfo) {
	for _, rule := range held {
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
