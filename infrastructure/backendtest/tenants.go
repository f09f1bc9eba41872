package backendtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// visible are the resources in a tenant's workspace that the provider writes, besides its own.
var visible = []schema.GroupVersionResource{
	{Version: "v1", Resource: "events"}, {Version: "v1", Resource: "secrets"},
	{Group: "events.k8s.io", Version: "v1", Resource: "events"}, {Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apibindings"},
}

func testVocabulary(t *testing.T, r *run) {
	before := len(r.first.list(t))
	r.first.provision(t, "plain", "small")
	r.first.order(t, "unsettled", "large")
	r.first.remove(t, "unsettled")
	words := append([]string{r.backendName, Confidential}, r.suite.Words...)
	own := []schema.GroupVersionResource{{Group: r.group, Version: "v1alpha1", Resource: "samples"}, {Group: r.group, Version: "v1alpha1", Resource: "templates"}}
	for _, resource := range append(own, visible...) {
		list, err := r.first.dynamic.Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Errorf("listing %s: %v", resource, err)
			continue
		}
		if len(list.Items) == 0 && resource.Group == r.group {
			t.Errorf("the tenant sees no %s", resource.Resource)
		}
		for i := range list.Items {
			removeProgram(&list.Items[i])
			expectNoWord(t, resource.String()+" "+list.Items[i].GetName(), asJSON(t, list.Items[i].Object), words)
		}
	}
	for _, path := range []string{"/apis/" + r.group + "/v1alpha1", "/openapi/v3/apis/" + r.group + "/v1alpha1"} {
		expectNoWord(t, path, r.first.get(t, path), words)
	}
	r.first.waitGone(t, "unsettled")
	r.first.delete(t, "plain")
	r.waitLeft(t, r.first, before, "what was made for an instance that was deleted at once is gone")
}

func (t *tenant) get(tb testing.TB, path string) string {
	tb.Helper()
	config := rest.CopyConfig(t.workspace.Config)
	config.GroupVersion, config.NegotiatedSerializer = &schema.GroupVersion{}, scheme.Codecs.WithoutConversion()
	c, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	text, err := c.RESTClient().Get().AbsPath(path).DoRaw(tb.Context())
	if err != nil {
		tb.Fatalf("reading %s: %v", path, err)
	}
	return string(text)
}

// removeProgram removes the name of the test binary from field managers. Servers and clients in the process of the test use it by default, and
// it contains the name of the backend if the module has that name.
func removeProgram(object *unstructured.Unstructured) {
	managed := object.GetManagedFields()
	for i := range managed {
		if managed[i].Manager == filepath.Base(os.Args[0]) {
			managed[i].Manager = ""
		}
	}
	object.SetManagedFields(managed)
}

func expectNoWord(t *testing.T, what, text string, words []string) {
	t.Helper()
	for _, word := range words {
		if strings.Contains(strings.ToLower(text), strings.ToLower(word)) {
			t.Errorf("a tenant sees %q in %s: %s", word, what, text)
		}
	}
}

// testFairness lets one tenant with many instances compete with others that have few.
func testFairness(t *testing.T, r *run) {
	tenants := []*tenant{r.first, r.second}
	for len(tenants) < r.suite.Tenants {
		tenants = append(tenants, r.newTenant(t))
	}
	r.stop(t)
	defer func() {
		r.stop(t)
		r.start(t)
	}()
	counts := map[string]int{}
	for i, tenant := range tenants {
		counts[tenant.cluster.String()] = r.suite.Instances
		if i == 0 {
			counts[tenant.cluster.String()] *= r.suite.Tenants
		}
		for n := range counts[tenant.cluster.String()] {
			tenant.order(t, fmt.Sprintf("many-%d", n), "small")
		}
	}
	r.startBackend(t)
	for _, tenant := range tenants {
		tenant.waitCount(t, counts[tenant.cluster.String()])
	}
	order := r.readyOrder()
	seen := map[string]bool{}
	for i, cluster := range order {
		if !seen[cluster] && i > len(order)/2 {
			t.Errorf("tenant %s has its first instance after %d of %d", cluster, i, len(order))
		}
		seen[cluster] = true
	}
	if len(seen) != len(tenants) {
		t.Errorf("%d tenants have instances that are ready, want %d", len(seen), len(tenants))
	}
	for _, tenant := range tenants {
		if err := tenant.instances().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tenant := range tenants {
		tenant.waitCount(t, 0)
		r.eventually(t, "nothing is left", tenant.isEmpty)
	}
}

// waitCount waits until a tenant has a number of instances, all of them ready.
func (t *tenant) waitCount(tb testing.TB, count int) {
	tb.Helper()
	t.run.eventually(tb, fmt.Sprintf("%s has %d instances, which are ready", t.cluster, count), func(ctx context.Context) error {
		list, err := t.instances().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != count {
			return fmt.Errorf("there are %d", len(list.Items))
		}
		for i := range list.Items {
			if err := t.isReady(ctx, list.Items[i].GetName()); err != nil {
				return err
			}
		}
		return nil
	})
}

// readyOrder returns the logical clusters of the instances that have become ready, in the order of the status writes.
func (r *run) readyOrder() []string {
	var clusters []string
	for _, w := range r.provider.faults.written(toView) {
		_, below, _ := strings.Cut(w.path, "/clusters/")
		cluster, path, _ := strings.Cut(below, "/")
		if strings.HasSuffix(path, "/status") && strings.Contains(w.body, `"phase":"Ready"`) {
			clusters = append(clusters, cluster)
		}
	}
	return clusters
}
