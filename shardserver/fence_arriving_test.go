package shardserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/fence"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"ships.example.com"},
		"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"ships","kind":"Ship"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`
	ship      = `{"apiVersion":"example.com/v1","kind":"Ship","metadata":{"name":"one"}}`
	noPirates = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"no-pirates"},
		"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},
		"validations":[{"expression":"object.metadata.name != 'pirate'"}]}}`
	policyBinding = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"no-pirates"},
		"spec":{"policyName":"no-pirates","validationActions":["Deny"]}}`
)

// testArriving copies the keys of a logical cluster, below all APIs, to one that arrives.
func testArriving(t *testing.T, first, second *shardtesting.Shard) {
	source := first.NewWorkspace(t, "root", "source").Spec.Cluster
	masters, from := first.Masters(t), "/clusters/"+source
	configMaps, ships := "/api/v1/namespaces/default/configmaps", "/apis/example.com/v1/ships"
	for _, object := range []struct{ path, body string }{
		{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition}, {ships, ship}, {configMaps, configMapOf("one")},
		{"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", noPirates},
		{"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", policyBinding},
	} {
		shardtesting.Eventually(t, "POST "+object.path, func(context.Context) error {
			if got := do(t, masters, http.MethodPost, from+object.path, object.body); got.status != http.StatusCreated {
				return fmt.Errorf("got %+v", got)
			}
			return nil
		})
	}
	m := newMover(t, first, source)
	target := logicalcluster.MustParseName("arrives")
	to := "/clusters/" + target.String()
	place := func(key string) string { return strings.Replace(key, "/"+source+"/", "/"+target.String()+"/", 1) }
	put := func(key, value string) int64 {
		t.Helper()
		written, err := m.etcd.Put(t.Context(), place(key), value)
		if err != nil {
			t.Fatal(err)
		}
		return written.Header.Revision
	}

	wildcard := openWatch(t, masters, "/clusters/*/api/v1/configmaps?watch=1")
	revision := put(m.key, `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster",`+annotations+`"internal.core.kcp.io/arriving":"x"}}}`)
	if err := second.Server.Fence().Pause(t.Context(), target, revision); err != nil {
		t.Fatal(err)
	}
	all, err := m.etcd.Get(t.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	var opened string
	for _, kv := range all.Kvs {
		switch key := string(kv.Key); {
		case key == m.key:
			opened = string(kv.Value)
		case strings.Contains(key, "/"+source+"/"):
			put(key, string(kv.Value))
		}
	}
	put(m.key, `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster",`+annotations+`"internal.core.kcp.io/arriving":"x"}}}`)

	resource, err := first.Server.Registry.Get(schema.GroupResource{Resource: "configmaps"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := request.WithNamespace(logicalcluster.With(t.Context(), target), "default")
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: "get", APIVersion: "v1", Resource: "configmaps", Namespace: "default"})
	if _, err := resource.Store.Get(fence.WithMover(ctx), "one", &metav1.GetOptions{}); err != nil {
		t.Errorf("a read of the mover: %v", err)
	}
	if _, err := resource.Store.Get(ctx, "one", &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a read below HTTP: %v", err)
	}
	watching, err := resource.Store.Watch(ctx, &internalversion.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	if event := <-watching.ResultChan(); event.Type != watch.Error {
		t.Errorf("a watch below HTTP: %+v", event)
	}
	watching.Stop()
	if local, err := first.Server.Registry.IsLocal(t.Context(), target); err != nil || local {
		t.Errorf("the logical cluster is on this shard: %t, %v", local, err)
	}
	for _, shard := range []*shardtesting.Shard{first, second} {
		for _, path := range []string{configMaps, ships, "/api/v1"} {
			if got := do(t, shard.Masters(t), http.MethodGet, to+path, ""); got != (response{503, refused, "1"}) {
				t.Errorf("GET %s: %+v", to+path, got)
			}
		}
		for _, path := range []string{"/api/v1/configmaps", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"} {
			if got := do(t, shard.Masters(t), http.MethodGet, "/clusters/*"+path, ""); got.status != http.StatusOK || strings.Contains(got.body, target.String()) || !strings.Contains(got.body, source) {
				t.Errorf("the list of %s over all logical clusters shows the copy", path)
			}
		}
	}

	// Another logical cluster has a newer object: whoever only goes on from there misses the copy.
	if got := do(t, masters, http.MethodPost, from+configMaps, configMapOf("newer")); got.status != http.StatusCreated {
		t.Fatalf("got %+v", got)
	}
	continued := openWatch(t, masters, "/clusters/*/api/v1/configmaps?watch=1&resourceVersion="+listVersion(t, do(t, masters, http.MethodGet, "/clusters/*/api/v1/configmaps", "")))
	before := listVersion(t, do(t, masters, http.MethodGet, "/clusters/*/api/v1/configmaps", ""))

	// With an epoch, as all that have moved: requests wait for the storage to use it.
	opened = strings.Replace(opened, annotations, annotations+`"`+corev1alpha1.EpochAnnotationKey+`":"1",`, 1)
	put(m.key, strings.ReplaceAll(opened, source, target.String()))
	for _, shard := range []*shardtesting.Shard{first, second} {
		shardtesting.Eventually(t, "the opening", func(context.Context) error {
			// The first write that is not refused as that to a moving logical cluster meets the policy.
			if got := do(t, shard.Masters(t), http.MethodPost, to+configMaps, configMapOf("pirate")); got.status != http.StatusUnprocessableEntity {
				if got.status != http.StatusServiceUnavailable {
					t.Fatalf("the policy does not refuse: %+v", got)
				}
				return fmt.Errorf("got %+v", got)
			}
			return nil
		})
		for _, path := range []string{configMaps + "/one", ships + "/one"} {
			if got := do(t, shard.Masters(t), http.MethodGet, to+path, ""); got.status != http.StatusOK {
				t.Errorf("GET %s: %+v", to+path, got)
			}
		}
	}
	if got := do(t, masters, http.MethodPost, to+ships, strings.Replace(ship, "one", "two", 1)); got.status != http.StatusCreated {
		t.Errorf("a new instance: %+v", got)
	}
	for what, ended := range map[string]<-chan string{
		"a wildcard watch": wildcard, "one that goes on": continued,
		"one from before the opening": openWatch(t, masters, "/clusters/*/api/v1/configmaps?watch=1&resourceVersion="+before),
	} {
		if got := <-ended; strings.Contains(got, target.String()) || !strings.Contains(got, `"reason":"Expired"`) {
			t.Errorf("%s does not expire without events: %s", what, got)
		}
	}
	if got := do(t, masters, http.MethodGet, "/clusters/*/api/v1/configmaps", ""); !strings.Contains(got.body, target.String()) {
		t.Error("the list over all logical clusters does not show the copy")
	}
}

// listVersion returns the resource version of a list.
func listVersion(t *testing.T, list response) string {
	t.Helper()
	var decoded metav1.PartialObjectMetadataList
	if err := json.Unmarshal([]byte(list.body), &decoded); err != nil || decoded.ResourceVersion == "" {
		t.Fatalf("%v: %+v", err, list)
	}
	return decoded.ResourceVersion
}
