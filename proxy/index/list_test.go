package index

import (
	"testing"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// TestList adds the entries of a shard in parts: each is used at once, and what is missing is removed at the end only.
func TestList(t *testing.T) {
	i := New()
	i.SetShard(newShard("alpha"))
	resolves := func(want Resolution, paths ...string) {
		t.Helper()
		for _, path := range paths {
			if _, got := i.Load().Resolve(logicalcluster.MustParsePath(path)); got != want {
				t.Errorf("%s: got %v, want %v", path, got, want)
			}
		}
	}

	first := i.StartList("alpha")
	first.Add([]Cluster{{Name: clusterName("org1")}, {Name: clusterName("old1")}}, nil)
	resolves(Found, "org1")
	resolves(NotSynced, "team1")
	first.Add([]Cluster{{Name: clusterName("team1")}}, []Workspace{
		{Parent: clusterName("org1"), Name: "team", Cluster: clusterName("team1")},
		{Parent: clusterName("org1"), Name: "old", Cluster: clusterName("old1")},
	})
	first.End()
	resolves(Found, "org1", "org1:team", "org1:old")

	second := i.StartList("alpha")
	second.Add([]Cluster{{Name: clusterName("org1")}}, nil)
	second.Add([]Cluster{{Name: clusterName("team1")}}, []Workspace{{Parent: clusterName("org1"), Name: "team", Cluster: clusterName("team1")}})
	resolves(Found, "org1:team", "org1:old", "old1")
	second.End()
	resolves(Found, "org1", "org1:team")
	resolves(NotFound, "org1:old")
	resolves(NotFound, "old1")

	i.RemoveShard("alpha")
	i.SetShard(newShard("alpha"))
	third := i.StartList("alpha")
	third.Add([]Cluster{{Name: clusterName("org1")}}, nil)
	third.End()
	resolves(Found, "org1")
	resolves(NotFound, "team1")
}
