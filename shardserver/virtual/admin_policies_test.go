package virtual_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	policiesPath   = "/apis/admin.kcp.io/v1alpha1/permissionclaimpolicies"
	allGadgetsPath = "/apis/shared.dev/v1/gadgets"
	gadgetsPath    = "/apis/shared.dev/v1/namespaces/default/gadgets"
)

// testPolicies: a policy that is written at the root shard permits one claim without an identity at another shard. It gives access to the objects
// of two producers, on two shards, in workspaces of consumers on a third.
func testPolicies(t *testing.T, root, alpha, beta *shardtesting.Shard, ca *shardtesting.CA) {
	masters := map[*shardtesting.Shard]client.Client{}
	for _, shard := range []*shardtesting.Shard{root, alpha, beta} {
		masters[shard] = shard.Client(t, shard.Masters(t))
	}
	workspace := func(name, shard string) string {
		return shardtesting.NewWorkspace(t, masters[root], "root", name, shardtesting.OnShard(shard)).Spec.Cluster
	}
	claiming, first, second := workspace("claiming", "alpha"), workspace("first", "root"), workspace("second", "alpha")
	one, two := workspace("one", "beta"), workspace("two", "beta")
	gadgets, widgets := schema.GroupResource{Group: "shared.dev", Resource: "gadgets"}, schema.GroupResource{Group: "claimer.dev", Resource: "widgets"}
	claim := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: gadgets.Group, Resource: gadgets.Resource}, Verbs: []string{"*"}}
	shardtesting.NewExport(t, masters[alpha], claiming, "widgets", widgets, "Widget")
	addClaim := func() error {
		export := &apisv1alpha2.APIExport{}
		if err := masters[alpha].Get(shardtesting.In(t.Context(), claiming), client.ObjectKey{Name: "widgets"}, export); err != nil {
			return err
		}
		export.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{claim}
		return masters[alpha].Update(shardtesting.In(t.Context(), claiming), export)
	}
	if err := addClaim(); err == nil || !strings.Contains(err.Error(), "identityHash is required") {
		t.Fatalf("without a policy: %v", err)
	}

	policy := `{"apiVersion":"admin.kcp.io/v1alpha1","kind":"PermissionClaimPolicy","metadata":{"name":"shared"},
		"spec":{"claims":[{"claimer":"claimer.dev","groups":["shared.dev"]}],"providers":[{"kind":"Group","name":"system:masters"}]}}`
	if status, body := send(t, beta.Masters(t), http.MethodPost, view+policiesPath, policy); status != http.StatusForbidden || !strings.Contains(body, "only the root shard changes") {
		t.Errorf("a write at another shard: %d: %s", status, body)
	}
	shard := ca.Client(t, root.Masters(t), "system:kcp:shard:alpha", "system:kcp:shard")
	if status, body := send(t, shard, http.MethodPost, view+policiesPath, policy); status != http.StatusForbidden {
		t.Errorf("a write of a shard: %d: %s", status, body)
	}
	if status, body := send(t, root.Masters(t), http.MethodPost, view+policiesPath, policy); status != http.StatusCreated {
		t.Fatalf("%d: %s", status, body)
	}
	if status, body := send(t, beta.Masters(t), http.MethodGet, view+policiesPath+"/shared", ""); status != http.StatusOK {
		t.Errorf("a read at another shard: %d: %s", status, body)
	}
	shardtesting.Eventually(t, "the other shard has the policy", func(context.Context) error { return addClaim() })

	other := rest.CopyConfig(alpha.Masters(t))
	other.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"system:kcp:admin", "system:authenticated"}}
	err := alpha.Client(t, other).Create(shardtesting.In(t.Context(), second), &apisv1alpha2.APIExport{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets"},
		Spec: apisv1alpha2.APIExportSpec{Resources: []apisv1alpha2.ResourceSchema{{
			Name: "gadgets", Group: "shared.dev", Schema: "v1.gadgets.shared.dev", Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}},
		}}},
	})
	if err == nil || !strings.Contains(err.Error(), `is reserved by PermissionClaimPolicy "shared"`) {
		t.Errorf("a user whom the policy does not list: %v", err)
	}

	shardtesting.NewExport(t, masters[root], first, "gadgets", gadgets, "Gadget")
	shardtesting.NewExport(t, masters[alpha], second, "gadgets", gadgets, "Gadget")
	producers := map[string]string{one: first, two: second}
	for consumer, producer := range producers {
		shardtesting.Bind(t, masters[beta], consumer, claiming, "widgets", func(binding *apisv1alpha2.APIBinding) {
			binding.Spec.PermissionClaims = []apisv1alpha2.AcceptablePermissionClaim{{
				PermissionClaim: claim, Selector: apisv1alpha2.PermissionClaimSelector{MatchAll: true}, State: apisv1alpha2.ClaimAccepted,
			}}
		})
		shardtesting.Bind(t, masters[beta], consumer, producer, "gadgets")
		if status, body := send(t, beta.Masters(t), http.MethodPost, "/clusters/"+consumer+gadgetsPath, `{"apiVersion":"shared.dev/v1","kind":"Gadget","metadata":{"name":"of-`+consumer+`"}}`); status != http.StatusCreated {
			t.Fatalf("%d: %s", status, body)
		}
	}
	claimed := "/services/apiexport/" + claiming + "/widgets/clusters/"
	shardtesting.Eventually(t, "one list has the objects of both producers", func(context.Context) error {
		status, body := send(t, beta.Masters(t), http.MethodGet, claimed+"*"+allGadgetsPath, "")
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal([]byte(body), &list); err != nil || status != http.StatusOK || len(list.Items) != 2 {
			return fmt.Errorf("%d, %v: %s", status, err, body)
		}
		return nil
	})
	for consumer, status := range map[string]int{one: http.StatusOK, two: http.StatusNotFound} {
		if got, body := send(t, beta.Masters(t), http.MethodGet, claimed+consumer+gadgetsPath+"/of-"+one, ""); got != status {
			t.Errorf("%d, want %d: %s", got, status, body)
		}
	}
	if status, body := send(t, beta.Masters(t), http.MethodPatch, claimed+two+gadgetsPath+"/of-"+two, `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch); status != http.StatusOK {
		t.Errorf("%d: %s", status, body)
	}
	if status, body := send(t, root.Masters(t), http.MethodDelete, view+policiesPath, ""); status != http.StatusOK {
		t.Errorf("deleting all policies: %d: %s", status, body)
	}
}

// unsyncedPolicies is a shard other than root, with a workspace and a policy of the root shard.
type unsyncedPolicies struct {
	shard   *shardtesting.Shard
	cluster string
}

// newUnsyncedPolicies creates a policy, and waits until the shard reserves its API groups.
func newUnsyncedPolicies(t *testing.T, root, shard *shardtesting.Shard) *unsyncedPolicies {
	t.Helper()
	p := &unsyncedPolicies{shard, shardtesting.NewWorkspace(t, root.Client(t, root.Masters(t)), "root", "unsynced", shardtesting.OnShard("beta")).Spec.Cluster}
	policy := `{"apiVersion":"admin.kcp.io/v1alpha1","kind":"PermissionClaimPolicy","metadata":{"name":"later"},
		"spec":{"claims":[{"claimer":"later.dev","groups":["shared.dev"]}],"providers":[{"kind":"User","name":"nobody"}]}}`
	if status, body := send(t, root.Masters(t), http.MethodPost, view+policiesPath, policy); status != http.StatusCreated {
		t.Fatalf("%d: %s", status, body)
	}
	shardtesting.Eventually(t, "the shard reserves the group", func(context.Context) error {
		if err := p.export(t, nil); err == nil || !strings.Contains(err.Error(), `is reserved by PermissionClaimPolicy "later"`) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	return p
}

// export exports a resource of the group of the policy, without an effect.
func (p *unsyncedPolicies) export(t *testing.T, claims []apisv1alpha2.PermissionClaim) error {
	t.Helper()
	return p.shard.Client(t, p.shard.Masters(t)).Create(shardtesting.In(t.Context(), p.cluster), &apisv1alpha2.APIExport{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets"},
		Spec: apisv1alpha2.APIExportSpec{PermissionClaims: claims, Resources: []apisv1alpha2.ResourceSchema{{
			Name: "widgets", Group: "later.dev", Schema: "v1.widgets.later.dev", Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}},
		}}},
	}, client.DryRunAll)
}

// test starts the shard without what it knows of policies, like after an upgrade from a version without policies, while nobody tells it of them:
// no group is reserved, and no claim is allowed.
func (p *unsyncedPolicies) test(t *testing.T, start func() *shardtesting.Shard) {
	keys := p.shard.Keys(t, "permissionclaimpolicies")
	if len(keys) != 2 { // the policy, and the mark of a complete list
		t.Fatalf("the snapshot of policies is %v", keys)
	}
	for _, key := range keys {
		p.shard.DeleteKey(t, key)
	}
	if err := p.shard.Stop(); err != nil {
		t.Fatal(err)
	}
	p.shard = start()
	if err := p.export(t, nil); err != nil {
		t.Errorf("the group is reserved: %v", err)
	}
	claim := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: "shared.dev", Resource: "gadgets"}, Verbs: []string{"*"}}
	if err := p.export(t, []apisv1alpha2.PermissionClaim{claim}); err == nil || !strings.Contains(err.Error(), "identityHash is required") {
		t.Errorf("a claim without an identity: %v", err)
	}
}
