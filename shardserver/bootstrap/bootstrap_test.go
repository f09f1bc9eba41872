package bootstrap_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/bootstrap"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const baseURL = "https://shard.example:6443"

func options() bootstrap.Options {
	return bootstrap.Options{
		ShardName: "root", BaseURL: baseURL, ExternalURL: "https://kcp.example", Root: true,
		Batteries:      []string{"workspace-types", "metrics-viewer"},
		HomeWorkspaces: true, HomeCreatorGroups: []string{"system:authenticated"},
	}
}

// TestBootstrap uses one shard, on which the bootstrap has been run again with options of the test. The subtests are
// independent of each other.
func TestBootstrap(t *testing.T) {
	s := shardtesting.Start(t)
	c := s.Client(t, s.Masters(t))
	must(t, bootstrap.Run(t.Context(), c, options()))
	for name, part := range map[string]func(*testing.T, client.Client){
		"the shard has the content of the contract":                testContent,
		"a second run writes nothing":                              testSecondRunWritesNothing,
		"updates keep the content and the administrator's changes": testUpdates,
		"replicas run concurrently":                                testConcurrentReplicas,
	} {
		t.Run(name, func(t *testing.T) { part(t, c) })
	}
	t.Run("the bootstrap stops with the context", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := bootstrap.Run(ctx, s.Client(t, s.User(t)), options()) // a user without write permission
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("the error must contain the end of the context and the last error, got %v", err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T client.Object](t *testing.T, c client.Client, cluster string, obj T) T {
	t.Helper()
	must(t, c.Get(shardtesting.In(t.Context(), cluster), client.ObjectKeyFromObject(obj), obj))
	return obj
}

func testContent(t *testing.T, c client.Client) {
	for _, cluster := range []string{"root", "system:shard"} {
		// A controller of the shard also writes the URL, possibly from an outdated Shard object.
		shardtesting.Eventually(t, "the LogicalCluster of "+cluster, func(context.Context) error {
			lc := &corev1alpha1.LogicalCluster{}
			lc.Name = "cluster"
			get(t, c, cluster, lc)
			if lc.Status.Phase != corev1alpha1.LogicalClusterPhaseReady || lc.Status.URL != "https://kcp.example/clusters/"+cluster || lc.Annotations["kcp.io/path"] != cluster {
				return fmt.Errorf("it is %+v of %v", lc.Status, lc.Annotations)
			}
			return nil
		})
	}
	for cluster, names := range map[string][]string{"root": {"default", "kube-system"}, "system:admin": {"default", "kube-system"}, "system:shard": {"default"}} {
		for _, name := range names {
			namespace := &corev1.Namespace{}
			namespace.Name = name
			get(t, c, cluster, namespace)
		}
	}
	for _, name := range []string{"root", "universal", "home", "organization", "team"} {
		workspaceType := &tenancyv1alpha1.WorkspaceType{}
		workspaceType.Name = name
		get(t, c, "root", workspaceType)
		if name == "root" && workspaceType.Spec.DefaultChildWorkspaceType.Name != "organization" {
			t.Errorf("children of root are %s", workspaceType.Spec.DefaultChildWorkspaceType.Name)
		}
	}
	for _, cluster := range []string{"root", "system:shard"} {
		checkShard(t, c, cluster)
	}
}

func checkShard(t *testing.T, c client.Client, cluster string) {
	t.Helper()
	registered := &corev1alpha1.Shard{}
	registered.Name = "root"
	get(t, c, cluster, registered)
	registered.Spec.ResourceLimits = nil // another subtest sets some
	if want := (corev1alpha1.ShardSpec{BaseURL: baseURL, ExternalURL: "https://kcp.example", VirtualWorkspaceURL: baseURL}); registered.Spec != want || registered.Labels["name"] != "root" {
		t.Errorf("the shard is registered in %s as %+v, %v", cluster, registered.Spec, registered.Labels)
	}
	if _, represents := registered.Annotations[corev1alpha1.ShardRepresentationAnnotationKey]; represents != (cluster == "root") {
		t.Errorf("the Shard in %s has the annotations %v", cluster, registered.Annotations)
	}
}

// versions returns the resource versions of all bootstrapped objects.
func versions(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, cluster := range []string{"root", "system:admin", "system:shard"} {
		var roles rbacv1.ClusterRoleList
		var bindings rbacv1.ClusterRoleBindingList
		var types tenancyv1alpha1.WorkspaceTypeList
		ctx := shardtesting.In(t.Context(), cluster)
		must(t, c.List(ctx, &roles))
		must(t, c.List(ctx, &bindings))
		if cluster == "root" {
			must(t, c.List(ctx, &types)) // not served in system:admin
		}
		for _, role := range roles.Items {
			found[cluster+"/role/"+role.Name] = role.ResourceVersion
		}
		for _, binding := range bindings.Items {
			found[cluster+"/binding/"+binding.Name] = binding.ResourceVersion
		}
		for _, workspaceType := range types.Items {
			found[cluster+"/type/"+workspaceType.Name] = workspaceType.ResourceVersion
		}
	}
	return found
}

func testSecondRunWritesNothing(t *testing.T, c client.Client) {
	before := versions(t, c)
	if len(before) < 60 {
		t.Fatalf("only %d objects to compare", len(before))
	}
	must(t, bootstrap.Run(t.Context(), c, options()))
	for name, version := range versions(t, c) {
		// The controller of workspace types may still be writing their status.
		if before[name] != version && name[:len("root/type")] != "root/type" {
			t.Errorf("%s was written", name)
		}
	}
}

func testUpdates(t *testing.T, c client.Client) {
	root, admin := shardtesting.In(t.Context(), "root"), shardtesting.In(t.Context(), "system:admin")

	reader := &rbacv1.ClusterRole{}
	reader.Name = "system:kcp:tenancy:reader"
	updateWithRetry(t, c, root, reader, func() { reader.Rules = nil; reader.Labels = map[string]string{"own": "kept"} })

	protected := &rbacv1.ClusterRole{}
	protected.Name = "system:basic-user" // an aggregated role would be updated by its controller
	updateWithRetry(t, c, admin, protected, func() {
		protected.Annotations[rbacv1.AutoUpdateAnnotationKey] = "false"
		protected.Rules = append(protected.Rules, rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/own"}})
	})

	rootType := &tenancyv1alpha1.WorkspaceType{}
	rootType.Name = "root"
	updateWithRetry(t, c, root, rootType, func() { rootType.Spec.AdditionalWorkspaceLabels = map[string]string{"own": "kept"} })

	registered := &corev1alpha1.Shard{}
	registered.Name = "root"
	limits := &corev1alpha1.ShardResourceLimits{Hard: corev1.ResourceList{"workspaces": resource.MustParse("9")}}
	updateWithRetry(t, c, root, registered, func() {
		registered.Labels["region"] = "north"
		registered.Spec.BaseURL, registered.Spec.ResourceLimits = "https://other", limits
	})

	access := &rbacv1.ClusterRoleBinding{}
	access.Name = "system:kcp:tenancy:authenticated:access"
	get(t, c, "root", access)
	must(t, c.Delete(root, access))
	access.ResourceVersion, access.UID, access.RoleRef.Name = "", "", "something-else"
	must(t, c.Create(root, access))

	deleted := &rbacv1.ClusterRoleBinding{}
	deleted.Name = "cluster-admin"
	must(t, c.Delete(admin, deleted))

	must(t, bootstrap.Run(t.Context(), c, options()))

	if get(t, c, "root", reader); len(reader.Rules) != 2 || reader.Labels["own"] != "kept" {
		t.Errorf("a role is restored and keeps what is not ours, got %+v", reader)
	}
	if get(t, c, "system:admin", protected); protected.Rules[len(protected.Rules)-1].NonResourceURLs == nil {
		t.Error("a protected role is left alone")
	}
	if get(t, c, "root", rootType); rootType.Spec.AdditionalWorkspaceLabels["own"] != "kept" {
		t.Error("a create-only object is left alone")
	}
	if get(t, c, "root", registered); registered.Labels["region"] != "" || registered.Spec.BaseURL != baseURL || registered.Spec.ResourceLimits == nil {
		t.Errorf("the URLs and labels of a shard are overwritten, and nothing else; got %+v", registered)
	}
	if get(t, c, "root", access); access.RoleRef.Name != "system:kcp:workspace:access" {
		t.Errorf("a binding to another role is replaced, got %s", access.RoleRef.Name)
	}
	get(t, c, "system:admin", deleted)
}

// updateWithRetry applies a change to the latest version of an object, and retries conflicts with controllers.
func updateWithRetry(t *testing.T, c client.Client, ctx context.Context, obj client.Object, mutate func()) {
	t.Helper()
	for {
		must(t, c.Get(ctx, client.ObjectKeyFromObject(obj), obj))
		mutate()
		if err := c.Update(ctx, obj); !apierrors.IsConflict(err) {
			must(t, err)
			return
		}
	}
}

func testConcurrentReplicas(t *testing.T, c client.Client) {
	before := len(versions(t, c))
	for _, cluster := range []string{"root", "system:admin"} {
		must(t, c.DeleteAllOf(shardtesting.In(t.Context(), cluster), &rbacv1.ClusterRoleBinding{}))
		must(t, c.DeleteAllOf(shardtesting.In(t.Context(), cluster), &rbacv1.ClusterRole{}))
	}
	replicas, ctx := errgroup.WithContext(t.Context())
	for range 3 {
		replicas.Go(func() error { return bootstrap.Run(ctx, c, options()) })
	}
	must(t, replicas.Wait())
	if after := len(versions(t, c)); after != before {
		t.Errorf("%d objects after, %d before", after, before)
	}
}
