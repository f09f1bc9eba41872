package sharding_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func testRemoteWorkspaceType(t *testing.T, s *env) {
	create(t, s.masters(t, "alpha"), s.provider, &tenancyv1alpha1.WorkspaceType{
		ObjectMeta: metav1.ObjectMeta{Name: "equipped"},
		Spec: tenancyv1alpha1.WorkspaceTypeSpec{
			DefaultAPIBindings: []tenancyv1alpha1.APIExportReference{{Export: "widgets"}},
			Extend:             tenancyv1alpha1.WorkspaceTypeExtension{With: []tenancyv1alpha1.WorkspaceTypeReference{{Name: "universal", Path: "root"}}},
		},
	})
	// The parent is the consumer, which is on beta, and so is the new workspace.
	s.grantRule(t, "alpha", s.provider, "users", "alice", rbacv1.PolicyRule{
		Verbs: []string{"use"}, APIGroups: []string{"tenancy.kcp.io"}, Resources: []string{"workspacetypes"}, ResourceNames: []string{"equipped"},
	})
	alice := s.userClient(t, "beta", "alice")
	workspace := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: "equipped"},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "equipped", Path: "root:provider"}},
	}
	shardtesting.OnShard("beta")(workspace)
	shardtesting.Eventually(t, "the type may be used", func(ctx context.Context) error {
		return alice.Create(shardtesting.In(ctx, s.consumer), workspace.DeepCopy())
	})
	cluster := shardtesting.WaitReady(t, s.masters(t, "beta"), s.consumer, "equipped").Spec.Cluster
	bindings := &apisv1alpha2.APIBindingList{}
	if err := s.masters(t, "beta").List(shardtesting.In(t.Context(), cluster), bindings); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(bindings.Items, func(binding apisv1alpha2.APIBinding) bool {
		return binding.Status.APIExportClusterName == s.provider && binding.Status.Phase == apisv1alpha2.APIBindingPhaseBound
	}) {
		t.Errorf("no export of the provider is bound: %+v", bindings.Items)
	}
	shardtesting.Eventually(t, "the type lists the URLs of all shards", func(ctx context.Context) error {
		found := &tenancyv1alpha1.WorkspaceType{}
		if err := s.masters(t, "alpha").Get(shardtesting.In(ctx, s.provider), client.ObjectKey{Name: "equipped"}, found); err != nil {
			return err
		}
		if len(found.Status.VirtualWorkspaces) != 6 {
			return fmt.Errorf("URLs %+v", found.Status.VirtualWorkspaces)
		}
		return nil
	})
}

func testRemoteInitializer(t *testing.T, s *env) {
	create(t, s.masters(t, "alpha"), s.provider, &tenancyv1alpha1.WorkspaceType{
		ObjectMeta: metav1.ObjectMeta{Name: "prepared"}, Spec: tenancyv1alpha1.WorkspaceTypeSpec{Initializer: true},
	})
	s.grantRule(t, "alpha", s.provider, "initializers", "carol", rbacv1.PolicyRule{
		Verbs: []string{"initialize"}, APIGroups: []string{"tenancy.kcp.io"}, Resources: []string{"workspacetypes"}, ResourceNames: []string{"prepared"},
	})
	s.grant(t, "alpha", s.provider, "carol-enters", "system:kcp:workspace:access", "carol")
	workspace := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: "prepared"},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "prepared", Path: "root:provider"}},
	}
	shardtesting.OnShard("beta")(workspace)
	shardtesting.Eventually(t, "the type is replicated", func(ctx context.Context) error {
		return s.masters(t, "beta").Create(shardtesting.In(ctx, s.consumer), workspace.DeepCopy())
	})
	clusters := corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
	view := func(user, cluster string) dynamic.ResourceInterface {
		config := s.userConfig(t, "beta", user)
		config.Host = strings.TrimSuffix(config.Host, "/") + "/services/initializingworkspaces/" + s.provider + ":prepared/clusters/" + cluster
		return dynamic.NewForConfigOrDie(config).Resource(clusters)
	}
	var name string
	shardtesting.Eventually(t, "carol lists the workspace", func(ctx context.Context) error {
		found, err := view("carol", "*").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(found.Items) != 1 {
			return fmt.Errorf("%d logical clusters are listed", len(found.Items))
		}
		name = found.Items[0].GetAnnotations()["kcp.io/cluster"]
		return nil
	})
	if _, err := view("bob", "*").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("without permission to initialize: %v", err)
	}
	done := []byte(`{"status":{"initializers":null}}`)
	if _, err := view("carol", name).Patch(t.Context(), corev1alpha1.LogicalClusterName, types.MergePatchType, done, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	shardtesting.WaitReady(t, s.masters(t, "beta"), s.consumer, "prepared")
}

func testRemoteDefaultBinding(t *testing.T, s *env) {
	newType := func(name string) *tenancyv1alpha1.WorkspaceType {
		return &tenancyv1alpha1.WorkspaceType{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: tenancyv1alpha1.WorkspaceTypeSpec{
				DefaultAPIBindings: []tenancyv1alpha1.APIExportReference{{Path: "root:provider", Export: "widgets"}},
			},
		}
	}
	alice := s.userClient(t, "beta", "alice")
	if err := alice.Create(shardtesting.In(t.Context(), s.otherConsumer), newType("refused")); !apierrors.IsForbidden(err) {
		t.Fatalf("without permission to bind: %v", err)
	}
	// An export that does not exist yet, by a path that leads through the root workspace, which is on another shard: from the shard of the
	// workspace, from that workspace itself, and from another shard, which has the LogicalCluster because of other exports.
	later := newType("later")
	later.Spec.DefaultAPIBindings[0].Export = "later"
	rule := func(group, resource, verb string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
	}
	s.grant(t, "alpha", s.provider, "dave-enters", "system:kcp:workspace:access", "dave")
	s.grantRule(t, "alpha", s.provider, "dave-writes-types", "dave", rule("tenancy.kcp.io", "workspacetypes", "create"))
	for user, at := range map[string]struct{ shard, cluster string }{"alice": {"beta", s.otherConsumer}, "dave": {"alpha", s.provider}} {
		shardtesting.Eventually(t, user+" may write types, and not bind an export that does not exist yet", func(ctx context.Context) error {
			if err := s.userClient(t, at.shard, user).Create(shardtesting.In(ctx, at.cluster), later.DeepCopy()); err == nil || !strings.Contains(err.Error(), "no permission to bind") {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
		s.grantRule(t, "alpha", s.provider, user+"-binds-later", user, rule("apis.kcp.io", "apiexports", "bind", "later"))
		shardtesting.Eventually(t, user+" may bind an export that does not exist yet", func(ctx context.Context) error {
			return s.userClient(t, at.shard, user).Create(shardtesting.In(ctx, at.cluster), later.DeepCopy())
		})
	}
	s.grant(t, "alpha", s.provider, "binders-again", "binders", "alice")
	shardtesting.Eventually(t, "alice may bind again", func(ctx context.Context) error {
		return alice.Create(shardtesting.In(ctx, s.otherConsumer), newType("allowed"))
	})
}
