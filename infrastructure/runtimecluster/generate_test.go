package runtimecluster_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const group = "infrastructure.example.org"

func newSecret(name, keys string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
		"name": name, "annotations": map[string]any{group + "/generate": keys},
	}, "data": map[string]any{"user": "YXBw"}}}
}

func dataOf(t *testing.T, object *unstructured.Unstructured) (data map[string][]byte) {
	t.Helper()
	text, err := json.Marshal(object.Object["data"])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &data); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestGenerate checks that generated values are random, stay at later reconciliations, and are the same for concurrent callers of Apply.
func TestGenerate(t *testing.T) {
	shard := shardtesting.Start(t)
	c, err := client.New(shardtesting.At(shard.Admin(t), shard.NewWorkspace(t, "root", "runtime").Spec.Cluster), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cluster := &runtimecluster.Cluster{Client: c, Group: group, Backend: "test"}
	set := runtimecluster.Set{Tenant: logicalcluster.MustParseName("tenant"), Template: "redis", Version: "1", Instance: "one"}
	apply := func(set runtimecluster.Set, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		applied, err := cluster.Apply(t.Context(), set, []*unstructured.Unstructured{object})
		if err != nil {
			return nil, err
		}
		return applied[0], nil
	}
	mustApply := func(set runtimecluster.Set, object *unstructured.Unstructured) *unstructured.Unstructured {
		t.Helper()
		applied, err := apply(set, object)
		if err != nil {
			t.Fatal(err)
		}
		return applied
	}

	first := mustApply(set, newSecret("one", "password,token"))
	data := dataOf(t, first)
	if len(data["password"]) < 24 || len(data["token"]) < 24 || string(data["password"]) == string(data["token"]) || string(data["user"]) != "app" {
		t.Fatalf("data %q", data)
	}
	second := set
	second.Instance = "two"
	if other := dataOf(t, mustApply(second, newSecret("two", "password"))); string(other["password"]) == string(data["password"]) {
		t.Error("two instances have the same password")
	}

	again := mustApply(set, newSecret("one", "password,token"))
	if string(dataOf(t, again)["password"]) != string(data["password"]) || again.GetResourceVersion() != first.GetResourceVersion() {
		t.Errorf("another reconciliation changes something: %v, before %v", again, first)
	}
	stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "one"}}
	if err := c.Patch(t.Context(), stored, client.RawPatch(types.MergePatchType, []byte(`{"data":{"password":null,"user":"eA=="}}`))); err != nil {
		t.Fatal(err)
	}
	repaired := dataOf(t, mustApply(set, newSecret("one", "password,token")))
	if len(repaired["password"]) < 24 || string(repaired["password"]) == string(data["password"]) || string(repaired["token"]) != string(data["token"]) || string(repaired["user"]) != "app" {
		t.Errorf("data %q after a key was removed", repaired)
	}

	var mu sync.Mutex
	passwords := map[string]int{}
	var group sync.WaitGroup
	third := set
	third.Instance = "three"
	mustApply(third, newSecret("other", "password")) // the inventory exists
	for range 8 {
		group.Go(func() {
			applied, err := apply(third, newSecret("three", "password"))
			if err != nil {
				return // another one has created it first
			}
			mu.Lock()
			defer mu.Unlock()
			passwords[string(dataOf(t, applied)["password"])]++
		})
	}
	group.Wait()
	if len(passwords) > 1 {
		t.Errorf("passes at once have %d passwords", len(passwords))
	}
	if got := mustApply(third, newSecret("three", "password")); len(passwords) == 1 && passwords[string(dataOf(t, got)["password"])] == 0 {
		t.Error("a password that was handed out is gone")
	}

	config := newSecret("config", "password")
	config.SetKind("ConfigMap")
	if _, err := apply(set, config); err == nil || !strings.Contains(err.Error(), "only Secrets") {
		t.Errorf("a ConfigMap with generated values: %v", err)
	}
}
