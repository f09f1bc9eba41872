package apiexport_test

import (
	"context"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// env is one shard that the tests share; each test uses its own workspaces.
type env struct {
	*shardtesting.Shard
	client.Client
	t testing.TB
}

func newEnv(t testing.TB) *env {
	t.Helper()
	shard := shardtesting.Start(t)
	return &env{Shard: shard, Client: shard.Client(t, shard.Admin(t)), t: t}
}

// newWorkspaces creates workspaces below root, and returns their logical clusters.
func (e *env) newWorkspaces(names ...string) []string {
	e.t.Helper()
	clusters := make([]string, len(names))
	for i, name := range names {
		clusters[i] = e.NewWorkspace(e.t, "root", name).Spec.Cluster
	}
	return clusters
}

// waitForBinding waits until a binding satisfies the condition, and returns it.
func (e *env) waitForBinding(cluster, name string, condition func(*apisv1alpha2.APIBinding) error) *apisv1alpha2.APIBinding {
	e.t.Helper()
	binding := &apisv1alpha2.APIBinding{}
	shardtesting.Eventually(e.t, "APIBinding "+name, func(ctx context.Context) error {
		if err := e.Get(shardtesting.In(ctx, cluster), client.ObjectKey{Name: name}, binding); err != nil {
			return err
		}
		if err := condition(binding); err != nil {
			return fmt.Errorf("%w; status %+v", err, binding.Status)
		}
		return nil
	})
	return binding
}

// hasCondition is satisfied by a binding with a condition that is False for a reason, or True if the reason is "".
func hasCondition(condition conditionsv1alpha1.Type, reason string) func(*apisv1alpha2.APIBinding) error {
	return func(binding *apisv1alpha2.APIBinding) error {
		found := conditionsv1alpha1.Get(binding, condition)
		if found == nil || found.Reason != reason || (found.Status == "True") != (reason == "") {
			return fmt.Errorf("%s is %+v, want reason %q", condition, found, reason)
		}
		return nil
	}
}

func allOf(conditions ...func(*apisv1alpha2.APIBinding) error) func(*apisv1alpha2.APIBinding) error {
	return func(binding *apisv1alpha2.APIBinding) error {
		for _, condition := range conditions {
			if err := condition(binding); err != nil {
				return err
			}
		}
		return nil
	}
}

func clusterContext(cluster string) context.Context {
	return shardtesting.In(context.Background(), cluster)
}
