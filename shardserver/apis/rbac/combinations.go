package rbac

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/rbac"
	rbacregistry "k8s.io/kubernetes/pkg/registry/rbac"
	clusterrolepolicy "k8s.io/kubernetes/pkg/registry/rbac/clusterrole/policybased"
	rolepolicy "k8s.io/kubernetes/pkg/registry/rbac/role/policybased"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"
)

// MaxCombinations bounds the permissions of a role: combinations of one group, resource, verb and name, or of one URL and verb. The stock
// escalation check creates a rule for each, and compares it with all rules of the user. Known roles have some hundreds.
const MaxCombinations = 5000

// combinations returns the number of permissions, or limit+1 if there are more.
func combinations(rules []rbac.PolicyRule, limit int) int {
	total := 0
	for i := range rules {
		rule := &rules[i]
		total += product(limit, len(rule.APIGroups), len(rule.Resources), len(rule.Verbs), max(1, len(rule.ResourceNames)))
		total += product(limit, len(rule.NonResourceURLs), len(rule.Verbs))
		if total > limit {
			return limit + 1
		}
	}
	return total
}

// product multiplies numbers of which each is smaller than 2^32, without an overflow.
func product(limit int, numbers ...int) int {
	result := 1
	for _, n := range numbers {
		if n == 0 {
			return 0
		}
	}
	for _, n := range numbers {
		if result *= n; result > limit {
			return limit + 1
		}
	}
	return result
}

// checkCombinations refuses rules with too many permissions, unless they are stored or the user is not subject to the escalation check.
func checkCombinations(ctx context.Context, kind, name string, rules, old []rbac.PolicyRule, limit int) error {
	if rbacregistry.EscalationAllowed(ctx) || combinations(rules, limit) <= limit || old != nil && equality.Semantic.DeepEqual(rules, old) {
		return nil
	}
	return apierrors.NewInvalid(rbac.Kind(kind), name, field.ErrorList{field.Invalid(field.NewPath("rules"), len(rules), fmt.Sprintf(
		"the rules are more than %d combinations of group, resource, verb and name: use *, or several roles", limit))})
}

// roles are the stock roles, whose rules are counted before the stock escalation check.
type roles struct {
	*rolepolicy.Storage
	limit int
}

func (r roles) check(ctx context.Context, obj, old runtime.Object) error {
	role, ok := obj.(*rbac.Role)
	if !ok {
		return nil
	}
	var before []rbac.PolicyRule
	if stored, ok := old.(*rbac.Role); ok {
		before = stored.Rules
	}
	return checkCombinations(ctx, "Role", role.Name, role.Rules, before, r.limit)
}

// Create implements rest.Creater.
func (r roles) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if err := r.check(ctx, obj, nil); err != nil {
		return nil, err
	}
	return r.Storage.Create(ctx, obj, validate, options)
}

// Update implements rest.Updater.
func (r roles) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.Storage.Update(ctx, name, checkedInfo(info, r.check), create, update, forceAllowCreate, options)
}

// clusterRoles are the stock cluster roles, whose rules are counted before the stock escalation check.
type clusterRoles struct {
	*clusterrolepolicy.Storage
	limit int
}

func (r clusterRoles) check(ctx context.Context, obj, old runtime.Object) error {
	role, ok := obj.(*rbac.ClusterRole)
	if !ok {
		return nil
	}
	var before []rbac.PolicyRule
	if stored, ok := old.(*rbac.ClusterRole); ok {
		before = stored.Rules
	}
	return checkCombinations(ctx, "ClusterRole", role.Name, role.Rules, before, r.limit)
}

// Create implements rest.Creater.
func (r clusterRoles) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if err := r.check(ctx, obj, nil); err != nil {
		return nil, err
	}
	return r.Storage.Create(ctx, obj, validate, options)
}

// Update implements rest.Updater.
func (r clusterRoles) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.Storage.Update(ctx, name, checkedInfo(info, r.check), create, update, forceAllowCreate, options)
}

// checkedInfo runs a check after admission has mutated the object, and before the stock escalation check.
func checkedInfo(info rest.UpdatedObjectInfo, check func(ctx context.Context, obj, old runtime.Object) error) rest.UpdatedObjectInfo {
	return rest.WrapUpdatedObjectInfo(info, func(ctx context.Context, obj, old runtime.Object) (runtime.Object, error) {
		return obj, check(ctx, obj, old)
	})
}

// boundedResolver refuses to resolve roles with too many permissions for the escalation check of bindings: the role may be stored, and
// users that may bind any role are not checked.
type boundedResolver struct {
	validation.AuthorizationRuleResolver
	limit int
}

// GetRoleReferenceRules implements validation.AuthorizationRuleResolver.
func (r boundedResolver) GetRoleReferenceRules(ctx context.Context, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	rules, err := r.AuthorizationRuleResolver.GetRoleReferenceRules(ctx, ref, namespace)
	if err != nil {
		return nil, err
	}
	internal := make([]rbac.PolicyRule, len(rules))
	for i := range rules {
		internal[i] = rbac.PolicyRule(rules[i])
	}
	if combinations(internal, r.limit) > r.limit {
		return nil, fmt.Errorf("%s %q has more than %d combinations of group, resource, verb and name: only users with the verb bind can bind it", ref.Kind, ref.Name, r.limit)
	}
	return rules, nil
}
