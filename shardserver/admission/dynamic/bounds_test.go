package dynamic_test

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	clientgodynamic "k8s.io/client-go/dynamic"
	clientgorest "k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/dynamic"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// newPlugins returns new plug-ins over the storage of a shard.
func newPlugins(t testing.TB, shard *shardtesting.Shard) *dynamic.Plugins {
	t.Helper()
	client, err := clientgodynamic.NewForConfig(&clientgorest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	plugins, err := dynamic.New(dynamic.Config{
		Registry: shard.Server.Registry, Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(), Custom: client,
		Scheme: legacyscheme.Scheme, OpenAPI: &common.OpenAPIV3Config{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return plugins
}

// createStored writes an object directly to storage, so that tests with many logical clusters need no workspaces.
func createStored(t testing.TB, shard *shardtesting.Shard, cluster, resource string, object runtime.Object) {
	t.Helper()
	found, err := shard.Server.Registry.Get(admissionregistration.Resource(resource))
	if err != nil {
		t.Fatal(err)
	}
	ctx := request.WithRequestInfo(clusterContext(cluster), &request.RequestInfo{APIGroup: admissionregistration.GroupName, APIVersion: "v1", Resource: resource})
	if _, err := found.Store.(rest.Creater).Create(ctx, object, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// createManyStored stores a policy and its binding in each of count logical clusters.
func createManyStored(t testing.TB, shard *shardtesting.Shard, prefix string, count int, expression func(int) string) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	for i := range count {
		group.Go(func() error {
			createStored(t, shard, fmt.Sprint(prefix, i), "validatingadmissionpolicies", storedPolicy(expression(i)))
			createStored(t, shard, fmt.Sprint(prefix, i), "validatingadmissionpolicybindings", storedBinding())
			return nil
		})
	}
	_ = group.Wait()
	waitForCache(t, shard, prefix+"0", "validatingadmissionpolicies")
	waitForCache(t, shard, prefix+"0", "validatingadmissionpolicybindings")
}

// waitForCache waits until the watch cache has the stored objects.
func waitForCache(t testing.TB, shard *shardtesting.Shard, cluster, resource string) {
	t.Helper()
	found, err := shard.Server.Registry.Get(admissionregistration.Resource(resource))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := found.Store.List(clusterContext(cluster), &internalversion.ListOptions{}); err != nil { // a consistent read waits for the cache
		t.Fatal(err)
	}
}

func createAttributes(name string) admission.Attributes {
	configMap := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ""}}
	return admission.NewAttributesRecord(configMap, nil, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "", name,
		schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "someone"})
}

func storedPolicy(expression string) *admissionregistration.ValidatingAdmissionPolicy {
	fail, equivalent, all := admissionregistration.Fail, admissionregistration.Equivalent, admissionregistration.AllScopes
	return &admissionregistration.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "bounds"},
		Spec: admissionregistration.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionregistration.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, MatchPolicy: &equivalent,
				ResourceRules: []admissionregistration.NamedRuleWithOperations{{RuleWithOperations: admissionregistration.RuleWithOperations{
					Operations: []admissionregistration.OperationType{admissionregistration.OperationAll},
					Rule:       admissionregistration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}, Scope: &all},
				}}},
			},
			Validations: []admissionregistration.Validation{{Expression: expression}},
		},
	}
}

func storedBinding() *admissionregistration.ValidatingAdmissionPolicyBinding {
	return &admissionregistration.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bounds"},
		Spec: admissionregistration.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "bounds", ValidationActions: []admissionregistration.ValidationAction{admissionregistration.Deny},
		},
	}
}

func clusterContext(cluster string) context.Context {
	return request.WithNamespace(logicalcluster.With(context.Background(), logicalcluster.MustParseName(cluster)), "")
}

// testBounds checks that 500 logical clusters with equal policies share the compiled policy, that another 500 with
// different policies do not, and that the caches stay within their bounds in both cases. The entry of a logical cluster
// is removed with its policies.
func testBounds(t *testing.T, shard *shardtesting.Shard) {
	plugin := newPlugins(t, shard).ValidatingPolicy()
	objects := admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	ask := func(cluster string, refused bool) {
		t.Helper()
		if err := plugin.Validate(clusterContext(cluster), createAttributes("x"), objects); (err != nil) != refused {
			t.Errorf("%s: got %v", cluster, err)
		}
	}
	const count = 500
	createManyStored(t, shard, "equal", count, func(int) string { return "false" })
	for i := range count {
		ask(fmt.Sprint("equal", i), true)
	}
	if clusters, compiled := dynamic.CacheSizes(plugin); clusters != dynamic.MaxClusters || compiled != 1 {
		t.Errorf("%d clusters, %d compiled", clusters, compiled)
	}
	createManyStored(t, shard, "other", count, func(i int) string { return fmt.Sprintf(`object.metadata.name != "x" && "%d" != ""`, i) })
	for i := range count {
		ask(fmt.Sprint("other", i), true)
	}
	if clusters, compiled := dynamic.CacheSizes(plugin); clusters != dynamic.MaxClusters || compiled != dynamic.MaxCompiled {
		t.Errorf("%d clusters, %d compiled", clusters, compiled)
	}
	ask("other499", true)
	found, err := shard.Server.Registry.Get(admissionregistration.Resource("validatingadmissionpolicybindings"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := found.Store.(rest.GracefulDeleter).Delete(clusterContext("other499"), "bounds", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForCache(t, shard, "other499", "validatingadmissionpolicybindings")
	ask("other499", false)
	if clusters, _ := dynamic.CacheSizes(plugin); clusters != dynamic.MaxClusters-1 {
		t.Errorf("%d clusters", clusters)
	}
}

// testNoStateWithoutConfigurations checks that the plug-ins keep no state for logical clusters without configurations.
func testNoStateWithoutConfigurations(t *testing.T, shard *shardtesting.Shard) {
	plugins := newPlugins(t, shard)
	objects := admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	mutatingWebhook, mutatingPolicy := plugins.MutatingWebhook(), plugins.MutatingPolicy()
	validatingPolicy, validatingWebhook := plugins.ValidatingPolicy(), plugins.ValidatingWebhook()
	all := []admission.Interface{mutatingWebhook, mutatingPolicy, validatingPolicy, validatingWebhook}
	ask := func(cluster string) {
		ctx, a := clusterContext(cluster), createAttributes("x")
		for _, err := range []error{
			mutatingWebhook.Admit(ctx, a, objects), mutatingPolicy.Admit(ctx, a, objects),
			validatingPolicy.Validate(ctx, a, objects), validatingWebhook.Validate(ctx, a, objects),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 1000 {
		ask(fmt.Sprint("none", i))
	}
	for _, plugin := range all {
		if clusters, compiled := dynamic.CacheSizes(plugin); clusters != 0 || compiled != 0 {
			t.Errorf("%T keeps %d clusters, %d compiled", plugin, clusters, compiled)
		}
	}
	measure := func(what string) {
		measured := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ask("none")
			}
		})
		t.Logf("all four plug-ins, %s: %s %s", what, measured, measured.MemString())
	}
	measure("looking")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); plugins.Run(ctx) }()
	shardtesting.Eventually(t, "the existence indexes to be synced", func(context.Context) error {
		for _, plugin := range all {
			if !dynamic.HasSynced(plugin) {
				return fmt.Errorf("%T is not synced", plugin)
			}
		}
		return nil
	})
	measure("informed")
	createStored(t, shard, "none", "validatingadmissionpolicies", storedPolicy("false"))
	createStored(t, shard, "none", "validatingadmissionpolicybindings", storedBinding())
	shardtesting.Eventually(t, "the index to have the policy", func(context.Context) error {
		if validatingPolicy.Validate(clusterContext("none"), createAttributes("x"), objects) == nil {
			return fmt.Errorf("it is missing")
		}
		return nil
	})
	cancel()
	<-ended
	if err := validatingPolicy.Validate(clusterContext("none"), createAttributes("x"), objects); err == nil {
		t.Error("a plug-in without a synced index does not read configurations")
	}
}
