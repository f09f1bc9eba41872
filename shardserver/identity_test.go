package shardserver_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestResourcesByIdentity: "<resource>:<identity>" names the objects of one export, whose identity is part of their
// keys.
func TestResourcesByIdentity(t *testing.T) {
	shard := shardtesting.Start(t)
	parent := shard.NewWorkspace(t, "root", "parent")
	shard.NewWorkspace(t, parent.Spec.Cluster, "child")
	tenancy, shards := getIdentity(t, shard, "tenancy.kcp.io"), getIdentity(t, shard, "shards.core.kcp.io")
	const path = "/apis/tenancy.kcp.io/v1alpha1/workspaces"

	t.Run("over all logical clusters", func(t *testing.T) {
		var list metav1.PartialObjectMetadataList
		getJSON(t, shardtesting.At(shard.Masters(t), "*"), path+":"+tenancy, &list)
		found := map[string]bool{}
		for _, item := range list.Items {
			found[item.Annotations["kcp.io/cluster"]+"/"+item.Name] = true
		}
		if !found["root/parent"] || !found[parent.Spec.Cluster+"/child"] {
			t.Errorf("found %v", found)
		}
	})
	t.Run("over all logical clusters without an identity, metadata only", func(t *testing.T) {
		all := shardtesting.At(shard.Masters(t), "*")
		if got := getStatus(t, all, path); got != http.StatusNotFound {
			t.Errorf("whole objects: %d", got)
		}
		list, err := metadata.NewForConfigOrDie(all).Resource(schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"}).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 2 {
			t.Errorf("metadata: %v, %v", list, err)
		}
	})
	t.Run("watched over all logical clusters", func(t *testing.T) {
		resource := schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces:" + tenancy}
		watcher, err := dynamic.NewForConfigOrDie(shardtesting.At(shard.Masters(t), "*")).Resource(resource).Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Stop()
		if event := <-watcher.ResultChan(); event.Type != watch.Added {
			t.Errorf("the first event is %v", event)
		}
	})
	for name, tc := range map[string]struct {
		path string
		want int
	}{
		"in one logical cluster":         {path + ":" + tenancy, http.StatusOK},
		"one object":                     {path + ":" + tenancy + "/parent", http.StatusOK},
		"the status of one object":       {path + ":" + tenancy + "/parent/status", http.StatusOK},
		"with the identity of another":   {path + ":" + shards, http.StatusNotFound},
		"with an empty identity":         {path + ":", http.StatusInternalServerError},
		"of a resource without identity": {"/api/v1/configmaps:" + tenancy, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			if got := getStatus(t, shardtesting.At(shard.Admin(t), "root"), tc.path); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
	t.Run("is not published", func(t *testing.T) {
		answer := get(t, shardtesting.At(shard.Admin(t), "root"), path)
		if strings.Contains(answer.body, tenancy) {
			t.Error("objects contain the identity")
		}
		if !json.Valid([]byte(answer.body)) {
			t.Errorf("the list is no JSON: %s", answer.body)
		}
	})
}
