package cacheserver_test

import (
	"context"
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/cacheserver/client"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/logicalcluster"
)

var (
	exports     = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apiexports"}
	shards      = schema.GroupVersionResource{Group: "core.kcp.io", Version: "v1alpha1", Resource: "shards"}
	testCluster = logicalcluster.MustParseName("abc")
)

// cache is shared by all tests that need no separate server.
var cache *cachetesting.Cache

func TestMain(m *testing.M) {
	os.Exit(func() int {
		t := &mainTB{}
		defer t.runCleanups()
		cache = cachetesting.Start(t)
		return m.Run()
	}())
}

// newObject returns an object of a kind that the cache stores.
func newObject(gvr schema.GroupVersionResource, name string, more ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	resource, ok := client.FindResource(gvr.GroupResource())
	if !ok {
		panic(gvr)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(resource.GroupVersionKind())
	u.SetName(name)
	for _, change := range more {
		change(u)
	}
	return u
}

func TestPublishAndRead(t *testing.T) {
	ctx := t.Context()
	alpha, beta := cache.Client(t, "pub-a"), cache.Client(t, "pub-b")
	given := newObject(exports, "widgets", func(u *unstructured.Unstructured) {
		u.SetFinalizers([]string{"apis.kcp.io/x"})
		u.SetUID("original")
		u.SetGeneration(7)
		u.SetAnnotations(map[string]string{client.ShardAnnotation: "pub-a"})
		u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "me", Operation: "Update"}})
		_ = unstructured.SetNestedField(u.Object, "anything", "spec", "whatever")
		_ = unstructured.SetNestedField(u.Object, "ok", "status", "phase")
	})
	created, err := alpha.Create(ctx, exports, testCluster, given)
	if err != nil {
		t.Fatal(err)
	}
	if created.Meta.UID != "original" || created.Meta.Generation != 7 {
		t.Errorf("the copy has uid %q and generation %d", created.Meta.UID, created.Meta.Generation)
	}
	read, err := beta.Get(ctx, exports, created.Key)
	if err != nil {
		t.Fatal(err)
	}
	content, err := read.Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedString(content.Object, "spec", "whatever"); got != "anything" {
		t.Errorf("spec.whatever is %q", got)
	}
	if len(content.GetManagedFields()) != 1 || content.GetManagedFields()[0].Manager != "me" {
		t.Errorf("managed fields are %v", content.GetManagedFields())
	}
	if want := (client.Key{Shard: "pub-a", Cluster: testCluster, Name: "widgets"}); read.Key != want {
		t.Errorf("the key is %s, want %s", read.Key, want)
	}

	_ = unstructured.SetNestedField(content.Object, "failed", "status", "phase")
	updated, err := alpha.Update(ctx, exports, testCluster, content)
	if err != nil {
		t.Fatal(err)
	}
	if updated.Meta.Generation != 7 || updated.Meta.ResourceVersion == read.Meta.ResourceVersion {
		t.Errorf("after the update: generation %d, resource version %s", updated.Meta.Generation, updated.Meta.ResourceVersion)
	}
	if _, err := alpha.Update(ctx, exports, testCluster, content); !apierrors.IsConflict(err) {
		t.Errorf("an update with an old resource version: %v", err)
	}
	if err := beta.Delete(ctx, exports, created.Key, ""); !apierrors.IsForbidden(err) {
		t.Errorf("delete by another shard: %v", err)
	}
	if err := alpha.Delete(ctx, exports, created.Key, "another"); !apierrors.IsConflict(err) {
		t.Errorf("delete with another UID: %v", err)
	}
	if err := alpha.Delete(ctx, exports, created.Key, "original"); err != nil {
		t.Fatal(err)
	}
	if _, err := beta.Get(context.Background(), exports, created.Key); !apierrors.IsNotFound(err) {
		t.Errorf("after the deletion with finalizers: %v", err)
	}
}
