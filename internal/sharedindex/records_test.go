package sharedindex

import (
	"strings"
	"testing"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestKeys(t *testing.T) {
	cluster := logicalcluster.MustParseName("2cynbfy2m0wtjqcs")
	for want, key := range map[string]Key{
		"clusters/2cynbfy2m0wtjqcs":        {Kind: Clusters, Cluster: cluster},
		"workspaces/2cynbfy2m0wtjqcs/team": {Kind: Workspaces, Cluster: cluster, Name: "team"},
		"types/2cynbfy2m0wtjqcs/a.b":       {Kind: Types, Cluster: cluster, Name: "a.b"},
		"issuers/2cynbfy2m0wtjqcs/x":       {Kind: Issuers, Cluster: cluster, Name: "x"},
		"shards/alpha":                     {Kind: Shards, Name: "alpha"},
	} {
		if got := key.path(); got != want {
			t.Errorf("path of %+v is %q, want %q", key, got, want)
		}
		if got, err := parsePath(want); err != nil || got != key {
			t.Errorf("parsePath(%q) = %+v, %v", want, got, err)
		}
	}
	for _, invalid := range []string{"", "writer", "complete", "clusters", "clusters/", "clusters/UPPER", "clusters/a/b", "clusters/*", "clusters/../x",
		"workspaces/a", "workspaces/a/", "workspaces//b", "workspaces/a/b/c", "shards/", "shards/a/b", "later/a"} {
		if k, err := parsePath(invalid); err == nil {
			t.Errorf("parsePath(%q) = %+v, want an error", invalid, k)
		}
	}
	layout := keyLayout{"/x/y"}
	if shard, path, ok := layout.split("/x/y/alpha/clusters/a"); !ok || shard != "alpha" || path != "clusters/a" {
		t.Errorf("got %q, %q, %v", shard, path, ok)
	}
	for _, invalid := range []string{"/x/z/alpha/clusters/a", "/x/y/alpha", "/x/y//clusters/a", "/x/y/alpha/", "/x/yy/alpha/clusters/a"} {
		if _, _, ok := layout.split(invalid); ok {
			t.Errorf("split(%q) is ok", invalid)
		}
	}
}

func TestWorkspaceDestination(t *testing.T) {
	for name, tc := range map[string]struct {
		phase, cluster, url string
		mounted             bool
		want                Workspace
		ok                  bool
	}{
		"a ready workspace has its cluster":                         {"Ready", "c", "https://x", false, Workspace{Cluster: "c", Shard: "alpha"}, true},
		"a workspace that is being deleted has its cluster":         {"Deleting", "c", "", false, Workspace{Cluster: "c", Shard: "alpha"}, true},
		"a workspace that is being scheduled has no record":         {"Scheduling", "c", "", false, Workspace{}, false},
		"a workspace without a phase has no record":                 {"", "c", "", false, Workspace{}, false},
		"a workspace without a cluster has no record":               {"Ready", "", "https://x", false, Workspace{}, false},
		"a mount has its URL":                                       {"Ready", "", "https://x", true, Workspace{Mount: "https://x"}, true},
		"a mount without a URL has no record":                       {"Ready", "", "", true, Workspace{}, false},
		"a mount that was never ready is unavailable":               {"Unavailable", "", "", true, Workspace{Unavailable: true}, true},
		"an unavailable workspace has its cluster":                  {"Unavailable", "c", "", false, Workspace{Cluster: "c", Shard: "alpha", Unavailable: true}, true},
		"a mount with a cluster has its cluster":                    {"Ready", "c", "https://x", true, Workspace{Cluster: "c", Shard: "alpha"}, true},
		"an initializing workspace has its cluster":                 {"Initializing", "c", "", false, Workspace{Cluster: "c", Shard: "alpha"}, true},
		"a workspace in an unknown phase has its cluster":           {"Migrating", "c", "", false, Workspace{Cluster: "c", Shard: "alpha"}, true},
		"an unavailable workspace without a cluster is unavailable": {"Unavailable", "", "", false, Workspace{Unavailable: true}, true},
	} {
		if got, ok := WorkspaceDestination(tc.phase, tc.cluster, "alpha", tc.url, tc.mounted); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}

func TestLogicalCluster(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        Cluster
		ok          bool
	}{
		"no annotations": {nil, Cluster{}, true},
		"a type":         {map[string]string{corev1alpha1.LogicalClusterTypeAnnotationKey: "root:x"}, Cluster{Type: "root:x"}, true},
		"one that has moved names its shard": {map[string]string{
			corev1alpha1.LogicalClusterTypeAnnotationKey: "root:x", corev1alpha1.MovedToAnnotationKey: "beta",
		}, Cluster{Type: "root:x", MovedTo: "beta"}, true},
		"one that arrives has no record": {map[string]string{
			corev1alpha1.ArrivingAnnotationKey: "6a1d", corev1alpha1.MigratingAnnotationKey: "root:m",
		}, Cluster{}, false},
		"one whose writes are paused stays": {map[string]string{
			corev1alpha1.WritesPausedAnnotationKey: "6a1d", corev1alpha1.MigratingAnnotationKey: "root:m", corev1alpha1.EpochAnnotationKey: "1",
		}, Cluster{}, true},
	} {
		if got, ok := LogicalCluster(tc.annotations); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}

// TestVersions: readers and writers of an installation may have different versions during an upgrade.
func TestVersions(t *testing.T) {
	type clusterBeforeMoves struct {
		Type string `json:"type,omitempty"`
	}
	value, err := Encode(Cluster{Type: "root:x", MovedTo: "beta"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode[clusterBeforeMoves](value); err != nil || got.Type != "root:x" {
		t.Errorf("an earlier reader gets %+v, %v", got, err)
	}
	former, err := Encode(clusterBeforeMoves{Type: "root:x"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode[Cluster](former); err != nil || got != (Cluster{Type: "root:x"}) {
		t.Errorf("the record of an earlier writer is %+v, %v", got, err)
	}
	if same, err := Encode(Cluster{Type: "root:x"}); err != nil || string(same) != string(former) {
		t.Errorf("the record of a logical cluster that has not moved changes to %s: it is written again", same)
	}
}

func TestRecordSizeLimit(t *testing.T) {
	large := Type{Configurations: []string{strings.Repeat("x", MaxValue)}}
	if _, err := Encode(large); err == nil {
		t.Error("a record that is too large is encoded")
	}
	if _, err := Decode[Type]([]byte(`{"configurations":["` + strings.Repeat("x", MaxValue) + `"]}`)); err == nil {
		t.Error("a record that is too large is decoded")
	}
	if got, err := Decode[Cluster]([]byte(`{"type":"root:x","later":1}`)); err != nil || got.Type != "root:x" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"the defaults":                  {func(*Options) {}, ""},
		"a server":                      {func(o *Options) { o.Servers = []string{"https://a:2379"} }, ""},
		"an invalid URL":                {func(o *Options) { o.Servers = []string{"a:2379"} }, "--shared-index-etcd-servers"},
		"a certificate without a key":   {func(o *Options) { o.Servers, o.CertFile = []string{"https://a"}, "x" }, "--shared-index-etcd-keyfile"},
		"certificates without a server": {func(o *Options) { o.CAFile = "x" }, "--shared-index-etcd-servers"},
		"a prefix without a slash":      {func(o *Options) { o.Prefix = "x" }, "--shared-index-prefix"},
		"an empty prefix":               {func(o *Options) { o.Prefix = "/" }, "--shared-index-prefix"},
		"a negative interval":           {func(o *Options) { o.Compaction = -1 }, "--shared-index-compaction-interval"},
	} {
		o := NewOptions()
		tc.change(o)
		errs := o.Validate()
		if (tc.want == "") != (len(errs) == 0) || tc.want != "" && !strings.Contains(errs[0].Error(), tc.want) {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
