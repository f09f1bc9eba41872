package cacheserver_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// TestMetricsLabelsAreBounded uses invented names of cached resources, which must not become labels.
func TestMetricsLabelsAreBounded(t *testing.T) {
	named := schema.GroupVersionResource{Group: "invented.example", Version: "v7invented", Resource: "inventions:inventedhash"}
	alpha := cache.Client(t, "metrics-a")
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(named.GroupVersion().WithKind("Invention"))
	u.SetName("one")
	created, err := alpha.Create(t.Context(), named, testCluster, u)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := alpha.List(t.Context(), named); err != nil {
		t.Fatal(err)
	}
	basePath := "/services/cache/shards/*/clusters/*/apis/invented.example/v7invented/inventions:inventedhash"
	for _, path := range []string{basePath + "?watch=true&timeoutSeconds=1", basePath + "x?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", strings.ReplaceAll(basePath, ":inventedhash", "")} {
		sendRequest(t, cache.Masters(t), "GET", path, "", "")
	}
	if err := alpha.Delete(t.Context(), named, client.Key{Shard: "metrics-a", Cluster: testCluster, Name: "one"}, created.Meta.UID); err != nil {
		t.Fatal(err)
	}
	code, series := sendRequest(t, cache.Masters(t), "GET", "/metrics", "", "")
	if code != 200 || !strings.Contains(series, `resource="cachedobjects"`) {
		t.Fatalf("got %d, without a series of cached objects", code)
	}
	for _, line := range strings.Split(series, "\n") {
		if strings.Contains(line, "invent") {
			t.Errorf("a shard has created a series: %s", line)
		}
	}
}
