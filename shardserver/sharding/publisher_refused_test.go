package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestRefusedObject: an object that the cache server refuses is reported, and delays nothing else.
func TestRefusedObject(t *testing.T) {
	cache := cachetesting.Start(t)
	kubeconfig := cache.Kubeconfig(t, cache.Shard(t, "root"))
	shard := shardtesting.Start(t, func(o *options.Options) {
		o.Shard.CacheKubeconfig = kubeconfig
		o.Admission.Disable = []string{"sharding.kcp.io/PublishedSize"} // which prevents it
	})
	writer := cache.Client(t, "root")
	c := shard.Client(t, shard.Masters(t))
	workspace := shard.NewWorkspace(t, "root", "long").Spec.Cluster
	must(t, writeLongStatus(t, c, workspace))
	shardtesting.Eventually(t, "the condition that tells of the object", func(ctx context.Context) error {
		condition, err := publishedCondition(ctx, c)
		if err != nil || condition.Reason != corev1alpha1.ReasonObjectsRefused {
			return fmt.Errorf("got %+v, %w", condition, err)
		}
		if !strings.Contains(condition.Message, `"long" in logical cluster `+workspace) {
			t.Errorf("the message does not name the object: %s", condition.Message)
		}
		return nil
	})

	reports, _ := cacheclient.FindResource(shardingv1alpha1.Resource("shardreports"))
	key := cacheclient.Key{Shard: "root", Cluster: logicalcluster.Root, Name: "root"}
	before, err := writer.Get(t.Context(), reports.GroupVersionResource, key)
	must(t, err)
	must(t, writer.Delete(t.Context(), reports.GroupVersionResource, key, "")) // the next one follows a resync
	shardtesting.Eventually(t, "a complete report", func(ctx context.Context) error {
		object, err := writer.Get(ctx, reports.GroupVersionResource, key)
		if err != nil {
			return err
		}
		var report shardingv1alpha1.ShardReport
		if err := object.Decode(&report); err != nil || !report.Spec.Complete || object.Meta.UID == before.Meta.UID {
			return errors.Join(errors.New("the report is not complete"), err)
		}
		return nil
	})

	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "long"}}
	must(t, c.Delete(shardtesting.In(t.Context(), workspace), policy))
	shardtesting.Eventually(t, "the condition after the deletion", func(ctx context.Context) error {
		condition, err := publishedCondition(ctx, c)
		if err != nil || condition.Status != "True" {
			return fmt.Errorf("got %+v, %w", condition, err)
		}
		return nil
	})
}

func publishedCondition(ctx context.Context, c client.Client) (conditionsv1alpha1.Condition, error) {
	shard := &corev1alpha1.Shard{}
	if err := c.Get(shardtesting.In(ctx, "root"), client.ObjectKey{Name: "root"}, shard); err != nil {
		return conditionsv1alpha1.Condition{}, err
	}
	if found := conditionsv1alpha1.Get(shard, corev1alpha1.ShardPublished); found != nil {
		return *found, nil
	}
	return conditionsv1alpha1.Condition{}, errors.New("the condition is missing")
}

// writeLongStatus creates a policy and gives it conditions of 1.25 MiB in protobuf, which is how this shard stores them,
// and of 2 MiB in JSON, which is how caches do.
func writeLongStatus(t *testing.T, c client.Client, cluster string) error {
	t.Helper()
	ctx := shardtesting.In(t.Context(), cluster)
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "long"}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		},
	}}}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "true"}}
	must(t, c.Create(ctx, policy))
	message := strings.Repeat("<", 4<<10) + strings.Repeat("x", 28<<10)
	var conditions []metav1.Condition
	for i := range 40 {
		conditions = append(conditions, metav1.Condition{
			Type: fmt.Sprintf("Long%d", i), Status: "True", Reason: "Long", Message: message, LastTransitionTime: metav1.NewTime(time.Unix(0, 0)),
		})
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the status controller writes, too
		if err := c.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		policy.Status.Conditions = conditions
		return c.Status().Update(ctx, policy)
	})
}
