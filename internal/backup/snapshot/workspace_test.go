package snapshot

import (
	"slices"
	"strings"
	"testing"
)

func TestFindWorkspace(t *testing.T) {
	identity := strings.Repeat("0a", 32)
	cluster := func(name, path string) [2]string {
		return [2]string{"/registry/core.kcp.io/logicalclusters/customresources/" + name + "/cluster", `{"metadata":{"uid":"uid-` + name + `","annotations":{"kcp.io/path":"` + path + `"}}}`}
	}
	workspace := func(parent, name string) [2]string {
		return [2]string{"/registry/tenancy.kcp.io/workspaces/" + identity + "/" + parent + "/" + name, "{}"}
	}
	file := writeSnapshot(t, [2]string{"/registry/~owner", "shard"}, cluster("p", "root:acme"), workspace("p", "team"), cluster("c", "root:acme:team"),
		[2]string{"/registry/core/configmaps/c/default/one", "old"}, [2]string{"/registry/core/configmaps/other/c/one", "not its"}, [2]string{"/registry/core/configmaps/c/default/one", "new"},
		[2]string{"/registry/example.com/widgets/customresources/c/w", "widget"}, workspace("c", "child"), workspace("p", "lonely"),
		cluster("remote", "root:elsewhere:remote"), cluster("twice1", "root:acme:twice"), cluster("twice2", "root:acme:twice"), cluster("bare", "root:acme:bare"),
		cluster("doubled", "root:acme:doubled"), workspace("p", "doubled"), [2]string{"/registry/tenancy.kcp.io/workspaces/customresources/p/doubled", "{}"})

	found, err := FindWorkspace(file, "/registry", "root:acme:team")
	if err != nil {
		t.Fatal(err)
	}
	if found.LogicalCluster != "c" || found.Parent != "p" || found.ParentUID != "uid-p" || found.Owner != "shard" || found.Key != workspace("p", "team")[0] || found.Bytes == 0 {
		t.Errorf("found %+v", found)
	}
	keys := found.Keys()
	want := []string{
		"/registry/core.kcp.io/logicalclusters/customresources/c/cluster", "/registry/core/configmaps/c/default/one", "/registry/example.com/widgets/customresources/c/w", workspace("c", "child")[0],
	}
	if !slices.Equal(keys, want) {
		t.Errorf("the keys are %q", keys)
	}
	err = found.Values(keys[1:2], func(_ string, value []byte) error {
		if string(value) != "new" {
			t.Errorf("the value is %q, want the latest", value)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}

	for path, want := range map[string]string{
		"root": "want that of a workspace below root", "root:elsewhere:remote": "is not on the shard", "root:acme:twice": "has 2 logical clusters", "root:acme:bare": "and not its Workspace",
		"root:acme:doubled": "has two Workspaces of this name, /registry/tenancy.kcp.io/workspaces/" + identity + "/p/doubled and ",
	} {
		if _, err := FindWorkspace(file, "/registry", path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	if found, err := FindWorkspace(file, "/registry", "root:acme:nobody"); found != nil || err != nil {
		t.Errorf("a workspace that is not there: %v, %v", found, err)
	}
	encrypted := writeSnapshot(t, [2]string{cluster("c", "")[0], "k8s:enc:aescbc:v1:key:"})
	if _, err := FindWorkspace(encrypted, "/registry", "root:acme:team"); err == nil || !strings.Contains(err.Error(), "encrypted at rest") {
		t.Errorf("an encrypted LogicalCluster: %v", err)
	}
}
