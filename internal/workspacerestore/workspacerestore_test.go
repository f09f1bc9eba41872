package workspacerestore

import (
	"strings"
	"testing"
)

func TestSplitKey(t *testing.T) {
	identity := strings.Repeat("0a", 32)
	for _, tc := range []struct{ key, storage, cluster, name string }{
		{"/registry/core/configmaps/abc/default/one", "/core/configmaps", "abc", "default/one"},
		{"/registry/core/namespaces/abc/default", "/core/namespaces", "abc", "default"},
		{"/registry/core.kcp.io/logicalclusters/customresources/abc/cluster", "/core.kcp.io/logicalclusters/customresources", "abc", "cluster"},
		{"/registry/tenancy.kcp.io/workspaces/" + identity + "/abc/team", "/tenancy.kcp.io/workspaces/" + identity, "abc", "team"},
		{"/registry/example.com/widgets/" + identity + "/abc/default/one", "/example.com/widgets/" + identity, "abc", "default/one"},
		{"/registry/example.com/widgets/customresources/abc", "", "", ""},
		{"/registry/~restoring/content/core/configmaps/~/abc/default/one", "", "", ""},
		{"/registry/~owner", "", "", ""},
		{"/other/core/configmaps/abc/default/one", "", "", ""},
	} {
		storage, cluster, name, ok := SplitKey("/registry", tc.key)
		if !ok {
			storage, cluster, name = "", "", ""
		}
		if ok != (tc.storage != "") || storage != tc.storage || cluster != tc.cluster || name != tc.name {
			t.Errorf("%s: got %q, %q, %q, %t", tc.key, storage, cluster, name, ok)
		}
		if !ok {
			continue
		}
		keys := At("registry")
		if gotStorage, gotName, ok := keys.ParseObject(keys.Object(storage, name)); !ok || gotStorage != storage || gotName != name {
			t.Errorf("%s: the key of the object is parsed as %q, %q, %t", tc.key, gotStorage, gotName, ok)
		}
	}
	if _, _, ok := At("registry").ParseObject("/registry/~restoring/content/core/../~/x"); ok {
		t.Error("a key of another form is parsed")
	}
}
