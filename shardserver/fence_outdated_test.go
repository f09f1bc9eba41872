package shardserver_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// testOutdated deletes what a shard has of a logical cluster that another one has got, and of which no shard knows. The shard moved it to one that does not exist.
func testOutdated(t *testing.T, shard *shardtesting.Shard) {
	const path = "/debug/logicalclusters/outdated"
	masters := shard.Masters(t)
	cluster := shard.NewWorkspace(t, "root", "outdated").Spec.Cluster
	neighbour := shard.NewWorkspace(t, "root", "current").Spec.Cluster
	m := newMover(t, shard, cluster)
	expect := func(method, path string, status int, text string) {
		t.Helper()
		if got := do(t, masters, method, path, ""); got.status != status || !strings.Contains(got.body, text) {
			t.Errorf("%s %s: %+v, want %d with %q", method, path, got, status, text)
		}
	}
	expect(http.MethodGet, path, http.StatusOK, `{"items":[]}`)
	expect(http.MethodDelete, path+"/"+cluster, http.StatusConflict, "it is not outdated")
	expect(http.MethodDelete, path+"/nosuchcluster", http.StatusNotFound, `"reason":"NotFound"`)
	expect(http.MethodDelete, path+"/root", http.StatusConflict, "it is not outdated")
	expect(http.MethodDelete, path+"/a:b", http.StatusBadRequest, "is not the name of a logical cluster")
	expect(http.MethodDelete, path+"/*", http.StatusBadRequest, "is not the name of a logical cluster")
	expect(http.MethodDelete, path+"/"+cluster+"?withoutHolder=yes", http.StatusBadRequest, "expected true or false")
	expect(http.MethodDelete, path, http.StatusMethodNotAllowed, "")
	expect(http.MethodPost, path+"/"+cluster, http.StatusMethodNotAllowed, "")
	for method, path := range map[string]string{http.MethodGet: path, http.MethodDelete: path + "/" + cluster} {
		if got := do(t, shard.User(t), method, path, ""); got.status != http.StatusForbidden || strings.Contains(got.body, `"items"`) {
			t.Errorf("%s %s as a plain user: %+v", method, path, got)
		}
		for _, in := range []string{"root", cluster, "system:admin"} {
			expect(method, "/clusters/"+in+path, http.StatusNotImplemented, "")
		}
	}

	revision := m.replace(t, annotations, annotations+`"`+corev1alpha1.MovedToAnnotationKey+`":"gone","`+corev1alpha1.OutdatedAnnotationKey+`":"2030-01-02T03:04:05Z",`)
	if err := shard.Server.Fence().Pause(t.Context(), logicalcluster.MustParseName(cluster), revision); err != nil {
		t.Fatal(err)
	}
	before := len(shard.Keys(t, "/"+cluster+"/"))
	expect(http.MethodGet, path, http.StatusOK, `{"items":[{"name":"`+cluster+`","holder":"gone","since":"2030-01-02T03:04:05Z"}]}`)
	expect(http.MethodDelete, path+"/"+cluster, http.StatusConflict, "no other shard has it: this content may be the only copy")
	if after := len(shard.Keys(t, "/"+cluster+"/")); after != before || after < 2 {
		t.Fatalf("%d keys are left of %d", after, before)
	}
	others := len(shard.Keys(t, "/"+neighbour+"/"))
	expect(http.MethodDelete, path+"/"+cluster+"?withoutHolder=true", http.StatusOK, "keys were deleted; no shard has the logical cluster")
	left := slices.DeleteFunc(shard.Keys(t, "/"+cluster+"/"), func(key string) bool { return strings.Contains(key, "/~paused/") }) // of the replicas
	if len(left) > 0 {
		t.Errorf("keys are left: %v", left)
	}
	if after := len(shard.Keys(t, "/"+neighbour+"/")); after < others {
		t.Errorf("another logical cluster has %d keys, and had %d", after, others)
	}
	expect(http.MethodDelete, path+"/"+cluster, http.StatusNotFound, "")
}
