package lifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/kubernetes/pkg/apis/rbac"

	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// aggregationManager is the field manager of the rules of aggregated roles, named as upstream's.
const aggregationManager = "clusterrole-aggregation-controller"

var clusterRoles = schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterroles"}

// aggregationController writes the rules of selected ClusterRoles to ClusterRoles with an aggregation rule, within one
// logical cluster. It reconciles logical clusters as a whole, as any role may select any other.
type aggregationController struct {
	cfg   Config
	roles *storage.Reader[*rbac.ClusterRole]
}

func newAggregationController(cfg Config) controller.Controller {
	c := &aggregationController{cfg: cfg, roles: storage.NewReader[*rbac.ClusterRole](cfg.Registry, clusterRoles)}
	return controller.Controller{
		Name:      "clusterrole-aggregation",
		Sources:   []controller.Source{{Resource: clusterRoles, MapFunc: perCluster}},
		Reconcile: c.reconcile,
	}
}

// perCluster maps an event of any object to its logical cluster.
func perCluster(event watch.Event) []controller.Request {
	keys := controller.RequestForObject(event)
	for i := range keys {
		keys[i] = controller.Request{ClusterName: keys[i].ClusterName, Name: logicalClusterKey}
	}
	return keys
}

// logicalClusterKey is the name that stands for all roles of a logical cluster.
const logicalClusterKey = "*"

func (c *aggregationController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	all, err := c.roles.List(ctx, "", nil)
	if err != nil {
		return controller.Result{}, err
	}
	for _, role := range all {
		if role.AggregationRule == nil || role.DeletionTimestamp != nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return controller.Result{}, err
		}
		rules, err := aggregate(role, all)
		if err != nil {
			return controller.Result{}, fmt.Errorf("aggregating ClusterRole %q: %w", role.Name, err)
		}
		if equality.Semantic.DeepEqual(rules, role.Rules) {
			continue
		}
		if err := c.write(ctx, role.Name, rules); err != nil {
			return controller.Result{}, fmt.Errorf("aggregating ClusterRole %q of %q: %w", role.Name, key.ClusterName, err)
		}
	}
	return controller.Result{}, nil
}

// aggregate returns the rules of the roles that a role selects without duplicates, ordered by selector and role name.
func aggregate(role *rbac.ClusterRole, all []*rbac.ClusterRole) ([]rbac.PolicyRule, error) {
	rules := []rbac.PolicyRule{}
	seen := sets.New[string]() // a role may have very many rules
	byName := slices.SortedFunc(slices.Values(all), func(a, b *rbac.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		for _, part := range byName {
			if part.Name == role.Name || !selector.Matches(labels.Set(part.Labels)) {
				continue
			}
			for _, rule := range part.Rules {
				key, err := ruleKey(rule)
				if err != nil {
					return nil, err
				}
				if !seen.Has(key) {
					seen.Insert(key)
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}

// ruleKey returns a text that is the same for equal rules; absent and empty lists are equal.
func ruleKey(rule rbac.PolicyRule) (string, error) {
	lists := [][]string{rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames, rule.NonResourceURLs}
	for i := range lists {
		lists[i] = append([]string{}, lists[i]...)
	}
	key, err := json.Marshal(lists)
	return string(key), err
}

// write applies the rules. The UID prevents that a role which was deleted concurrently is created again.
func (c *aggregationController) write(ctx context.Context, name string, rules []rbac.PolicyRule) error {
	current, err := c.roles.GetLatest(ctx, "", name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	desired := rbacapply.ClusterRole(name).WithUID(current.UID)
	for _, rule := range rules {
		desired.WithRules(&rbacapply.PolicyRuleApplyConfiguration{
			Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames, NonResourceURLs: rule.NonResourceURLs,
		})
	}
	_, err = c.cfg.Clients.Kubernetes.RbacV1().ClusterRoles().Apply(ctx, desired, metav1.ApplyOptions{FieldManager: aggregationManager, Force: true})
	return err
}
