package tenancy_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// limitWorkspaces sets annotations of a logical cluster on a shard; "" removes one.
func (e *env) limitWorkspaces(t *testing.T, shard, cluster string, annotations map[string]string) {
	t.Helper()
	if err := e.tryLimit(t, e.clients[shard], cluster, annotations); err != nil {
		t.Fatal(err)
	}
}

func (e *env) tryLimit(t *testing.T, c client.Client, cluster string, annotations map[string]string) error {
	var pairs []string
	for key, value := range annotations {
		quoted := fmt.Sprintf("%q", value)
		if value == "" {
			quoted = "null"
		}
		pairs = append(pairs, fmt.Sprintf("%q:%s", "core.kcp.io/"+key, quoted))
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{`+strings.Join(pairs, ",")+`}}}`))
	return c.Patch(shardtesting.In(t.Context(), cluster), &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}, patch)
}

// waitUsage waits until the condition of a logical cluster has a message.
func (e *env) waitUsage(t *testing.T, shard, cluster, want string) {
	t.Helper()
	shardtesting.Eventually(t, "the usage of "+cluster+" to be "+want, func(ctx context.Context) error {
		found := &corev1alpha1.LogicalCluster{}
		if err := e.clients[shard].Get(shardtesting.In(ctx, cluster), client.ObjectKey{Name: "cluster"}, found); err != nil {
			return err
		}
		if got := conditionsv1alpha1.GetMessage(found, corev1alpha1.WorkspacesWithinLimits); got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

func newLimited(name string) *tenancyv1alpha1.Workspace {
	return &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}},
	}
}

// assertRefused checks that a limit refuses a workspace, and that the error has the limit and nothing else.
func assertRefused(t *testing.T, err error, path, limit string) {
	t.Helper()
	want := fmt.Sprintf("exceeded quota: the limit of %s is reached, which is core.kcp.io/%s: delete workspaces that are not needed, or ask the administrator of %s for a higher limit", path, limit, path)
	if !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want a refusal with %q", err, want)
	}
}

// testWorkspaceLimits limits a tree whose logical clusters are on three shards.
func testWorkspaceLimits(t *testing.T, in *env) {
	top := in.createReady(t, "root", "root", "limited", "alpha").Spec.Cluster
	middle := in.createReady(t, "alpha", top, "middle", "beta").Spec.Cluster
	leaf := in.createReady(t, "beta", middle, "leaf", "root").Spec.Cluster
	in.limitWorkspaces(t, "alpha", top, map[string]string{"max-descendant-workspaces": "5"})
	in.waitUsage(t, "alpha", top, "2 of 5 workspaces in it and below")
	t.Run("what all shards store counts, and every shard refuses", func(t *testing.T) {
		in.createReady(t, "root", leaf, "first", "")
		in.waitUsage(t, "alpha", top, "3 of 5 workspaces in it and below")
		in.createReady(t, "beta", middle, "second", "")
		in.waitUsage(t, "alpha", top, "4 of 5 workspaces in it and below")
		in.createReady(t, "alpha", top, "third", "")
		in.waitUsage(t, "alpha", top, "5 of 5 workspaces in it and below")
		for shard, cluster := range map[string]string{"alpha": top, "beta": middle, "root": leaf} {
			in.waitDryRun(t, shard, cluster, false)
			assertRefused(t, in.clients[shard].Create(shardtesting.In(t.Context(), cluster), newLimited("refused")), "root:limited", "max-descendant-workspaces=5")
		}
		if err := in.clients["alpha"].Create(shardtesting.In(t.Context(), top), newLimited("third")); !apierrors.IsAlreadyExists(err) {
			t.Errorf("a workspace that exists, at the limit: %v", err)
		}
		if err := in.clients["root"].Create(shardtesting.In(t.Context(), "root"), newLimited("limitedtoo")); err != nil {
			t.Errorf("a workspace beside the limited one: %v", err)
		}
	})
	t.Run("a deletion makes room on all shards", func(t *testing.T) {
		in.delete(t, "beta", middle, "second")
		in.waitDeleted(t, "beta", middle, "second")
		in.waitUsage(t, "alpha", top, "4 of 5 workspaces in it and below")
		in.waitDryRun(t, "root", leaf, true)
		if err := in.clients["root"].Create(shardtesting.In(t.Context(), leaf), newLimited("first")); !apierrors.IsAlreadyExists(err) {
			t.Errorf("a workspace that exists: %v", err)
		}
		if err := in.clients["root"].Create(shardtesting.In(t.Context(), leaf), newLimited("fourth")); err != nil {
			t.Errorf("a workspace that fits, after one that exists: %v", err)
		}
		in.waitUsage(t, "alpha", top, "5 of 5 workspaces in it and below")
	})
	t.Run("a tenant cannot change limits, and is bound by those above", func(t *testing.T) { testTenantOfLimits(t, in, leaf, top) })
	t.Run("children are limited in each workspace, and concurrent requests do not exceed a limit", func(t *testing.T) {
		in.limitWorkspaces(t, "alpha", top, map[string]string{"max-child-workspaces": "1", "max-descendant-workspaces": ""})
		in.waitUsage(t, "alpha", top, "2 of 1 workspaces in it")
		in.waitDryRun(t, "beta", middle, false)
		in.limitWorkspaces(t, "alpha", top, map[string]string{"max-child-workspaces": "4"})
		in.waitDryRun(t, "beta", middle, true)
		var created atomic.Int64
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				err := in.clients["beta"].Create(shardtesting.In(t.Context(), middle), newLimited(fmt.Sprintf("one-of-%d", i)))
				if err == nil {
					created.Add(1)
					return
				}
				assertRefused(t, err, "root:limited", "max-child-workspaces=4")
			})
		}
		if group.Wait(); created.Load() != 3 {
			t.Errorf("%d workspaces were created beside one, the limit is 4", created.Load())
		}
	})
	t.Run("without limits nothing remains", func(t *testing.T) {
		in.limitWorkspaces(t, "alpha", top, map[string]string{"max-child-workspaces": ""})
		in.waitUsage(t, "alpha", top, "")
		shardtesting.Eventually(t, "shard beta to accept", func(ctx context.Context) error {
			return in.clients["beta"].Create(shardtesting.In(ctx, middle), newLimited("unlimited"))
		})
		in.assertNothingPublished(t)
	})
	in.delete(t, "root", "root", "limited")
	in.delete(t, "root", "root", "limitedtoo")
	in.waitDeleted(t, "root", "root", "limited")
	in.waitDeleted(t, "root", "root", "limitedtoo")
}

// waitDryRun waits until a shard accepts or refuses a dry run.
func (e *env) waitDryRun(t *testing.T, shard, cluster string, accepts bool) {
	t.Helper()
	shardtesting.Eventually(t, "the limit to be known on shard "+shard, func(ctx context.Context) error {
		err := e.clients[shard].Create(shardtesting.In(ctx, cluster), newLimited("dry-run"), client.DryRunAll)
		if (err == nil) != accepts {
			return fmt.Errorf("the answer is %v", err)
		}
		return nil
	})
}

// testTenantOfLimits attempts as the administrator of a workspace to escape the limits above it.
func testTenantOfLimits(t *testing.T, in *env, cluster, above string) {
	inside := shardtesting.In(t.Context(), cluster)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "tenant"}},
	}
	if err := in.clients["root"].Create(inside, binding); err != nil {
		t.Fatal(err)
	}
	tenantOn := func(shard string) client.Client {
		config := rest.CopyConfig(in.shards[shard].Masters(t))
		config.Impersonate = rest.ImpersonationConfig{UserName: "tenant", Groups: []string{"system:authenticated"}}
		return in.shards[shard].Client(t, config)
	}
	tenant := tenantOn("root")
	shardtesting.Eventually(t, "the tenant to be an administrator", func(ctx context.Context) error {
		return tenant.Get(shardtesting.In(ctx, cluster), client.ObjectKey{Name: "cluster"}, &corev1alpha1.LogicalCluster{})
	})
	for _, key := range []string{"max-descendant-workspaces", "max-child-workspaces"} {
		for _, value := range []string{"100", "0"} {
			if err := in.tryLimit(t, tenant, cluster, map[string]string{key: value}); !apierrors.IsForbidden(err) {
				t.Errorf("a tenant sets %s to %s: %v", key, value, err)
			}
		}
		if err := in.tryLimit(t, in.clients["root"], cluster, map[string]string{key: "many"}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.annotations[core.kcp.io/"+key+"]") {
			t.Errorf("an administrator sets %s to a word: %v", key, err)
		}
	}
	if err := in.tryLimit(t, tenantOn("alpha"), above, map[string]string{"max-descendant-workspaces": ""}); !apierrors.IsForbidden(err) {
		t.Errorf("a tenant removes the limit of a workspace above: %v", err)
	}
	in.limitWorkspaces(t, "root", cluster, map[string]string{"max-descendant-workspaces": "100"}) // of the tenant's own workspace
	in.waitUsage(t, "root", cluster, "2 of 100 workspaces in it and below")
	for name, change := range map[string]func(*tenancyv1alpha1.Workspace){
		"a workspace":             func(*tenancyv1alpha1.Workspace) {},
		"a workspace elsewhere":   shardtesting.OnShard("beta"),
		"a workspace with a path": func(w *tenancyv1alpha1.Workspace) { w.Annotations = map[string]string{"kcp.io/path": "root:other"} },
		"a generated name":        func(w *tenancyv1alpha1.Workspace) { w.Name, w.GenerateName = "", "generated-" },
		"limits of its own": func(w *tenancyv1alpha1.Workspace) {
			w.Annotations = map[string]string{"core.kcp.io/max-descendant-workspaces": "100"}
		},
	} {
		workspace := newLimited("escape")
		change(workspace)
		err := tenant.Create(inside, workspace)
		assertRefused(t, err, "root:limited", "max-descendant-workspaces=5")
		if err != nil && (strings.Contains(err.Error(), "middle") || strings.Contains(err.Error(), "third")) {
			t.Errorf("the refusal of %s has the name of another workspace: %v", name, err)
		}
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"kcp.io/path":"root:other"}}}`))
	_ = tenant.Patch(inside, &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}, patch) // restored or refused
	assertRefused(t, tenant.Create(inside, newLimited("escape")), "root:limited", "max-descendant-workspaces=5")
	in.limitWorkspaces(t, "root", cluster, map[string]string{"max-descendant-workspaces": ""})
	in.waitUsage(t, "root", cluster, "")
}
