package dynamic_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testBoundMutations checks that mutating policies of an export's workspace merge by the schema of its kind wherever it is bound: in objects
// that are created and updated, and in their status. The provider's workspace binds the export, too, so that parameters may be of its kind.
func testBoundMutations(t *testing.T, shard *shardtesting.Shard) {
	provider, providerName := createWorkspace(t, shard, "mutation-provider")
	_, consumerName := createWorkspace(t, shard, "mutation-consumer")
	engines := schema.GroupVersionResource{Group: "engines.io", Version: "v1", Resource: "engines"}
	exportWithLists(t, shard, providerName, engines)
	for _, cluster := range []string{consumerName, providerName} {
		shard.Bind(t, cluster, providerName, "engines")
	}
	in := func(cluster string) dynamic.ResourceInterface {
		return dynamic.NewForConfigOrDie(shardtesting.At(shard.Admin(t), cluster)).Resource(engines).Namespace("default")
	}
	own, theirs := in(providerName), in(consumerName)
	shardtesting.Eventually(t, "engines to be served", func(ctx context.Context) error {
		_, err := own.Create(ctx, engine("defaults"), metav1.CreateOptions{})
		return err
	})
	const parts = `Object{spec: Object.spec{parts: [Object.spec.parts{name: "added", count: int(params.spec.parts[0].count) + 1}]}}`
	applyByPolicy(t, provider, "spec", []string{"engines"}, parts, &admissionregistrationv1.ParamKind{APIVersion: "engines.io/v1", Kind: "Engine"})
	applyByPolicy(t, provider, "status", []string{"engines/status"}, `Object{status: Object.status{parts: [Object.status.parts{name: "seen", count: 1}]}}`, nil)
	applyByPolicy(t, provider, "labels", []string{"engines"}, `Object{metadata: Object.metadata{labels: {"by": "provider"}}}`, nil)

	var created *unstructured.Unstructured
	shardtesting.Eventually(t, "an engine of the consumer to be mutated", func(ctx context.Context) (err error) {
		created, err = theirs.Create(ctx, engine("mine"), metav1.CreateOptions{})
		if err == nil && (namesOfParts(created, "spec") != "added=2 own=1" && namesOfParts(created, "spec") != "own=1 added=2" || created.GetLabels()["by"] != "provider") {
			err = fmt.Errorf("got %v", created.Object)
			if deleting := theirs.Delete(ctx, "mine", metav1.DeleteOptions{}); deleting != nil {
				t.Fatal(deleting)
			}
		}
		return err
	})
	updated, err := theirs.Patch(t.Context(), "mine", types.MergePatchType, []byte(`{"metadata":{"labels":null},"spec":{"parts":[{"name":"other","count":3},{"name":"added","count":9}]}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := namesOfParts(updated, "spec"); got != "other=3 added=2" || updated.GetLabels()["by"] != "provider" {
		t.Errorf("after an update: parts %s, labels %v", got, updated.GetLabels())
	}
	for name, write := range map[string]func() (*unstructured.Unstructured, error){
		"a patch": func() (*unstructured.Unstructured, error) {
			return theirs.Patch(t.Context(), "mine", types.MergePatchType, []byte(`{"status":{"parts":[{"name":"other","count":2}]}}`), metav1.PatchOptions{}, "status")
		},
		"an apply": func() (*unstructured.Unstructured, error) {
			return theirs.Patch(t.Context(), "mine", types.ApplyPatchType, []byte(`{"apiVersion":"engines.io/v1","kind":"Engine","status":{"parts":[{"name":"other","count":2}]}}`),
				metav1.PatchOptions{FieldManager: "test", Force: new(true)}, "status")
		},
	} {
		written, err := write()
		if err != nil {
			t.Fatalf("%s of the status: %v", name, err)
		}
		if got := namesOfParts(written, "status"); got != "other=2 seen=1" {
			t.Errorf("%s of the status: parts %s", name, got)
		}
	}
}

// exportWithLists exports a kind whose spec and status have lists that are merged by a key.
func exportWithLists(t *testing.T, shard *shardtesting.Shard, cluster string, gvr schema.GroupVersionResource) {
	t.Helper()
	const fields = `{"type":"object","properties":{"parts":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],
		"items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"count":{"type":"integer"}}}}}}`
	exported := shardtesting.NewSchema("lists", gvr.GroupResource(), "Engine")
	exported.Spec.Versions[0].Schema.Raw = []byte(`{"type":"object","properties":{"spec":` + fields + `,"status":` + fields + `}}`)
	c := shard.Client(t, shard.Admin(t))
	if err := c.Create(shardtesting.In(t.Context(), cluster), exported); err != nil {
		t.Fatal(err)
	}
	shard.NewExport(t, cluster, gvr.Resource, gvr.GroupResource(), "Engine", func(export *apisv1alpha2.APIExport) {
		export.Spec.Resources[0].Schema = exported.Name
	})
	unused := &apisv1alpha1.APIResourceSchema{ObjectMeta: metav1.ObjectMeta{Name: shardtesting.NewSchema("v1", gvr.GroupResource(), "Engine").Name}}
	if err := c.Delete(shardtesting.In(t.Context(), cluster), unused); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

func engine(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "engines.io/v1", "kind": "Engine", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"parts": []any{map[string]any{"name": "own", "count": int64(1)}}},
	}}
}

// namesOfParts returns the parts of an engine in their order.
func namesOfParts(engine *unstructured.Unstructured, field string) string {
	list, _, _ := unstructured.NestedSlice(engine.Object, field, "parts")
	var parts []string
	for _, one := range list {
		part, _ := one.(map[string]any)
		parts = append(parts, fmt.Sprintf("%v=%v", part["name"], part["count"]))
	}
	return strings.Join(parts, " ")
}

// applyByPolicy creates a policy that applies a configuration to engines, and its binding, with the engine "defaults" as parameters if there is
// a kind of them. Parameters themselves are not mutated.
func applyByPolicy(t *testing.T, c kubernetes.Interface, name string, resources []string, expression string, params *admissionregistrationv1.ParamKind) {
	t.Helper()
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "engines-" + name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			ParamKind: params, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "others", Expression: `object.metadata.name != "defaults"`}},
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"engines.io"}, APIVersions: []string{"v1"}, Resources: resources},
				},
			}}},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression},
			}},
		},
	}
	if _, err := c.AdmissionregistrationV1().MutatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name},
	}
	if params != nil {
		missing := admissionregistrationv1.DenyAction
		binding.Spec.ParamRef = &admissionregistrationv1.ParamRef{Name: "defaults", Namespace: "default", ParameterNotFoundAction: &missing}
	}
	if _, err := c.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
