package index

import (
	"fmt"
	"net/url"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func clusterName(s string) logicalcluster.Name { return logicalcluster.MustParseName(s) }

func newShard(name string) Shard {
	return Shard{Name: name, BaseURL: &url.URL{Scheme: "https", Host: name + ".example"}}
}

// newTestIndex returns the index of an installation with two shards, root and alpha.
func newTestIndex() *Index {
	i := New()
	i.SetShard(newShard("root"))
	i.SetShard(newShard("alpha"))
	i.SetShard(Shard{Name: "nourl"})
	i.SetShard(Shard{Name: "badurl", Err: fmt.Errorf("bad")})
	for _, name := range []string{"root", "alpha"} {
		i.ReplaceClusters(name, nil)
		i.ReplaceWorkspaces(name, nil)
	}
	home := logicalcluster.HomeName("alice")
	for _, c := range []string{"root", "org1", home.String(), "system:admin"} {
		i.PutCluster("root", Cluster{Name: clusterName(c)})
	}
	for _, c := range []string{"team1", "broken1", "deep1"} {
		i.PutCluster("alpha", Cluster{Name: clusterName(c)})
	}
	i.PutCluster("nourl", Cluster{Name: clusterName("lost1")})
	i.PutCluster("badurl", Cluster{Name: clusterName("bad1")})
	put := func(shard, parent, ws, cluster string, more ...func(*Workspace)) {
		w := Workspace{Parent: clusterName(parent), Name: ws}
		if cluster != "" {
			w.Cluster = clusterName(cluster)
		}
		for _, f := range more {
			f(&w)
		}
		i.PutWorkspace(shard, w)
	}
	unavailable := func(w *Workspace) { w.Unavailable = true }
	put("root", "root", "org", "org1")
	put("root", "org1", "team", "team1")
	put("root", "org1", "broken", "broken1", unavailable)
	put("root", "org1", "brokenlost", "neverseen", unavailable)
	put("root", "org1", "unindexed", "neverseen")
	put("alpha", "broken1", "deep", "deep1")
	put("root", home.String(), "mine", "team1")
	put("root", "org1", "mount", "", func(w *Workspace) { w.Mount = "https://mount.example/x" })
	put("root", "org1", "downmount", "", func(w *Workspace) { w.Mount = "https://mount.example/y" }, unavailable)
	put("root", "org1", "newmount", "", unavailable)
	return i
}

func TestResolve(t *testing.T) {
	home := logicalcluster.HomeName("alice").String()
	s := newTestIndex().Load()
	for description, tc := range map[string]struct {
		path       string
		resolution Resolution
		want       string // "<shard>/<cluster>", or the mount's URL
	}{
		"root is found":                                                         {"root", Found, "root/root"},
		"a bare name is found":                                                  {"team1", Found, "alpha/team1"},
		"a path is followed across shards":                                      {"root:org:team", Found, "alpha/team1"},
		"a name may start a path":                                               {"org1:team", Found, "alpha/team1"},
		"a home path starts with user":                                          {"user:alice", Found, "root/" + home},
		"workspaces below a home are found":                                     {"user:alice:mine", Found, "alpha/team1"},
		"the home of an unknown user is not found":                              {"user:bob", NotFound, ""},
		"user alone is a name":                                                  {"user", NotFound, ""},
		"an unknown name is not found":                                          {"missing", NotFound, ""},
		"an unknown child is not found":                                         {"root:missing", NotFound, ""},
		"an unknown first segment is not found":                                 {"missing:org", NotFound, ""},
		"the wildcard is not found":                                             {"*", NotFound, ""},
		"a system cluster is not found":                                         {"system:admin", NotFound, ""},
		"a child whose cluster is on no shard is not found":                     {"root:org:unindexed", NotFound, ""},
		"a cluster on a shard without a base URL is not found":                  {"lost1", NotFound, ""},
		"a cluster on a shard with an invalid base URL is found with the error": {"bad1", Found, "badurl/bad1"},
		"a path ending in an Unavailable workspace":                             {"root:org:broken", Unavailable, ""},
		"a path through an Unavailable workspace":                               {"root:org:broken:deep", Unavailable, ""},
		"a path through an Unavailable workspace that does not resolve":         {"root:org:broken:none", NotFound, ""},
		"an Unavailable workspace whose cluster is unknown":                     {"root:org:brokenlost", NotFound, ""},
		"the bare name of an Unavailable workspace's cluster is found":          {"broken1", Found, "alpha/broken1"},
		"a mount":                            {"root:org:mount", Mounted, "https://mount.example/x"},
		"segments after a mount are dropped": {"root:org:mount:a:b", Mounted, "https://mount.example/x"},
		"a mount that is Unavailable":        {"root:org:downmount", Unavailable, ""},
		"a mount that was never ready":       {"root:org:newmount", Unavailable, ""},
	} {
		t.Run(description, func(t *testing.T) {
			route, resolution := s.Resolve(logicalcluster.MustParsePath(tc.path))
			got := route.Mount
			if route.Shard != nil {
				got = route.Shard.Name + "/" + route.Cluster.String()
			}
			if resolution != tc.resolution || got != tc.want {
				t.Fatalf("Resolve(%q) = %q, %v; want %q, %v", tc.path, got, resolution, tc.want, tc.resolution)
			}
		})
	}
}

// TestResolveBeforeSync: while a shard is not synced, its workspaces must not resolve to NotFound.
func TestResolveBeforeSync(t *testing.T) {
	for description, tc := range map[string]struct {
		do         func(*Index)
		path       string
		resolution Resolution
	}{
		"an unknown name may be on the shard that is not synced":  {func(*Index) {}, "missing", NotSynced},
		"so may the workspaces below an unknown name":             {func(*Index) {}, "missing:below", NotSynced},
		"so may the logical cluster of an indexed workspace":      {func(*Index) {}, "root:org:unindexed", NotSynced},
		"and the workspaces below it":                             {func(*Index) {}, "root:org:unindexed:below", NotSynced},
		"an unknown workspace of a synced shard is not found":     {func(*Index) {}, "root:missing", NotFound},
		"an indexed workspace of a synced shard is found":         {func(*Index) {}, "root:org:team", Found},
		"system clusters are not found":                           {func(*Index) {}, "system:admin", NotFound},
		"the wildcard is not found":                               {func(*Index) {}, "*", NotFound},
		"a shard with synced clusters only is not synced":         {func(i *Index) { i.ReplaceClusters("beta", nil) }, "missing", NotSynced},
		"its workspaces may exist":                                {func(i *Index) { i.ReplaceClusters("beta", []Cluster{{Name: clusterName("b1")}}) }, "b1:team", NotSynced},
		"an unknown name is not found when all shards are synced": {func(i *Index) { i.ReplaceClusters("beta", nil); i.ReplaceWorkspaces("beta", nil) }, "missing", NotFound},
		"an unknown name is not found when the shard is removed":  {func(i *Index) { i.RemoveShard("beta") }, "missing", NotFound},
		"a shard that is removed and added again is not synced": {func(i *Index) {
			i.ReplaceClusters("beta", nil)
			i.ReplaceWorkspaces("beta", nil)
			i.RemoveShard("beta")
			i.SetShard(newShard("beta"))
		}, "missing", NotSynced},
		"a shard with a new base URL stays synced": {func(i *Index) {
			i.ReplaceClusters("beta", nil)
			i.ReplaceWorkspaces("beta", nil)
			i.SetShard(newShard("beta"))
		}, "missing", NotFound},
		"paths lead through a shard that is not served":           {func(i *Index) { i.SetShard(Shard{Name: "root", BaseURL: newShard("root").BaseURL, NotServed: true}) }, "root:org:team", Found},
		"a cluster on a shard that is not served is not found":    {func(i *Index) { i.SetShard(Shard{Name: "root", BaseURL: newShard("root").BaseURL, NotServed: true}) }, "root:org", NotFound},
		"a shard without a base URL does not count as not synced": {func(i *Index) { i.RemoveShard("beta"); i.SetShard(Shard{Name: "gamma"}) }, "missing", NotFound},
	} {
		t.Run(description, func(t *testing.T) {
			i := newTestIndex()
			i.SetShard(newShard("beta"))
			tc.do(i)
			if _, resolution := i.Load().Resolve(logicalcluster.MustParsePath(tc.path)); resolution != tc.resolution {
				t.Errorf("%s: resolution %d, want %d", tc.path, resolution, tc.resolution)
			}
		})
	}
}

func TestUpdates(t *testing.T) {
	resolveShard := func(i *Index, path string) string {
		route, resolution := i.Load().Resolve(logicalcluster.MustParsePath(path))
		if resolution != Found {
			return ""
		}
		return route.Shard.Name
	}
	for description, tc := range map[string]struct {
		do   func(*Index)
		path string
		want string
	}{
		"a deleted cluster is removed":                     {func(i *Index) { i.DeleteCluster("alpha", clusterName("team1")) }, "team1", ""},
		"a deleted workspace is removed":                   {func(i *Index) { i.DeleteWorkspace("root", clusterName("org1"), "team") }, "root:org:team", ""},
		"the cluster of a deleted workspace stays":         {func(i *Index) { i.DeleteWorkspace("root", clusterName("org1"), "team") }, "team1", "alpha"},
		"a workspace that is not routable is removed":      {func(i *Index) { i.PutWorkspace("root", Workspace{Parent: clusterName("org1"), Name: "team"}) }, "root:org:team", ""},
		"the clusters of a removed shard are removed":      {func(i *Index) { i.RemoveShard("alpha") }, "team1", ""},
		"the clusters of other shards stay":                {func(i *Index) { i.RemoveShard("alpha") }, "org1", "root"},
		"a shard that is removed and added again is empty": {func(i *Index) { i.RemoveShard("alpha"); i.SetShard(newShard("alpha")) }, "team1", ""},
		"a relist removes missing clusters":                {func(i *Index) { i.ReplaceClusters("alpha", []Cluster{{Name: clusterName("deep1")}}) }, "team1", ""},
		"a relist keeps listed clusters":                   {func(i *Index) { i.ReplaceClusters("alpha", []Cluster{{Name: clusterName("deep1")}}) }, "deep1", "alpha"},
		"a relist adds new clusters":                       {func(i *Index) { i.ReplaceClusters("alpha", []Cluster{{Name: clusterName("new1")}}) }, "new1", "alpha"},
		"a relist of workspaces removes missing ones": {func(i *Index) {
			i.ReplaceWorkspaces("root", []Workspace{{Parent: clusterName("root"), Name: "org", Cluster: clusterName("org1")}})
		}, "root:org:team", ""},
		"a relist of one shard keeps the entries of the other": {func(i *Index) { i.ReplaceClusters("alpha", nil) }, "root:org", "root"},
		"of two shards the first to report a cluster is used":  {func(i *Index) { i.PutCluster("root", Cluster{Name: clusterName("team1")}) }, "team1", "alpha"},
		"a repeated conflicting report changes nothing": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: clusterName("team1"), Type: "a"})
			i.PutCluster("root", Cluster{Name: clusterName("team1"), Type: "b"})
		}, "team1", "alpha"},
		"nor does a conflicting list": {func(i *Index) {
			i.ReplaceClusters("root", []Cluster{{Name: clusterName("root")}, {Name: clusterName("team1")}})
		}, "team1", "alpha"},
		"the first one stays so when its type changes": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: clusterName("team1")})
			i.PutCluster("alpha", Cluster{Name: clusterName("team1"), Type: "other"})
			i.ReplaceClusters("alpha", []Cluster{{Name: clusterName("team1")}})
		}, "team1", "alpha"},
		"the next one is used when the first deletes the cluster": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: clusterName("team1")})
			i.DeleteCluster("alpha", clusterName("team1"))
		}, "team1", "root"},
		"or is removed": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: clusterName("team1")})
			i.RemoveShard("alpha")
		}, "team1", "root"},
		"a conflicting report can be deleted": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: clusterName("team1")})
			i.DeleteCluster("root", clusterName("team1"))
		}, "team1", "alpha"},
		"a path leads to the shard that the workspace names": {func(i *Index) {
			i.PutWorkspace("root", Workspace{Parent: clusterName("org1"), Name: "team", Cluster: clusterName("team1"), Shard: "alpha"})
		}, "root:org:team", "alpha"},
		"even if another shard reported the cluster first": {func(i *Index) {
			i.PutCluster("nourl", Cluster{Name: clusterName("new1")})
			i.PutCluster("alpha", Cluster{Name: clusterName("new1")})
			i.PutWorkspace("root", Workspace{Parent: clusterName("org1"), Name: "team", Cluster: clusterName("new1"), Shard: "alpha"})
		}, "root:org:team", "alpha"},
		"and nowhere while that shard does not report the cluster": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: clusterName("new1")})
			i.PutWorkspace("root", Workspace{Parent: clusterName("org1"), Name: "team", Cluster: clusterName("new1"), Shard: "alpha"})
		}, "root:org:team", ""},
		"nor are workspaces below it": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: clusterName("new1")})
			i.PutWorkspace("root", Workspace{Parent: clusterName("new1"), Name: "deep", Cluster: clusterName("org1")})
			i.PutWorkspace("root", Workspace{Parent: clusterName("org1"), Name: "team", Cluster: clusterName("new1"), Shard: "alpha"})
		}, "root:org:team:deep", ""},
		"a workspace that names another shard leads there": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: clusterName("team1")})
			i.PutWorkspace("root", Workspace{Parent: clusterName("org1"), Name: "team", Cluster: clusterName("team1"), Shard: "root"})
		}, "root:org:team", "root"},
		"root is on the root shard, whatever other shards report": {func(i *Index) { i.PutCluster("alpha", Cluster{Name: clusterName("root")}) }, "root", "root"},
		"a shard cannot add workspaces to another shard's clusters": {func(i *Index) {
			i.PutWorkspace("alpha", Workspace{Parent: clusterName("root"), Name: "evil", Cluster: clusterName("team1")})
		}, "root:evil", ""},
		"nor replace them": {func(i *Index) {
			i.PutWorkspace("alpha", Workspace{Parent: clusterName("root"), Name: "org", Cluster: clusterName("team1")})
		}, "root:org", "root"},
		"the workspaces of a moved cluster are those of its new shard": {func(i *Index) {
			i.PutCluster("alpha", Cluster{Name: clusterName("org1")})
			i.PutWorkspace("alpha", Workspace{Parent: clusterName("org1"), Name: "team", Cluster: clusterName("org1")})
			i.DeleteCluster("root", clusterName("org1"))
		}, "root:org:team", "alpha"},
		"and those of the old one until it deletes the cluster": {func(i *Index) {
			i.PutCluster("alpha", Cluster{Name: clusterName("org1")})
			i.PutWorkspace("alpha", Workspace{Parent: clusterName("org1"), Name: "team", Cluster: clusterName("root")})
		}, "root:org:team", "alpha"},
	} {
		t.Run(description, func(t *testing.T) {
			i := newTestIndex()
			before := i.Load()
			tc.do(i)
			if got := resolveShard(i, tc.path); got != tc.want {
				t.Errorf("%s leads to shard %q, want %q", tc.path, got, tc.want)
			}
			if _, resolution := before.Resolve(logicalcluster.MustParsePath("root:org:team")); resolution != Found {
				t.Error("the update changed a snapshot taken before it")
			}
		})
	}
}

func TestConflicts(t *testing.T) {
	i := newTestIndex()
	i.PutCluster("root", Cluster{Name: clusterName("team1")})
	i.PutCluster("root", Cluster{Name: clusterName("deep1")})
	i.PutCluster("root", Cluster{Name: clusterName("deep1"), Type: "other"})
	i.PutCluster("alpha", Cluster{Name: clusterName("root")})
	if got := i.Load().Conflicts(); got["root"] != 2 || got["alpha"] != 0 || len(got) != 4 {
		t.Errorf("got %v", got)
	}
	i.DeleteCluster("root", clusterName("team1"))
	i.DeleteCluster("alpha", clusterName("deep1"))
	if got := i.Load().Conflicts(); got["root"] != 0 {
		t.Errorf("after deletion: got %v", got)
	}
}

func TestMovedShardKeepsItsEntries(t *testing.T) {
	i := newTestIndex()
	i.SetShard(Shard{Name: "alpha", BaseURL: &url.URL{Scheme: "https", Host: "moved.example"}})
	route, resolution := i.Load().Resolve(logicalcluster.MustParsePath("root:org:team"))
	if resolution != Found || route.Shard.BaseURL.Host != "moved.example" {
		t.Fatalf("got %+v, %v", route, resolution)
	}
}

// TestRemovedEntriesAreReleased covers wall W2.
func TestRemovedEntriesAreReleased(t *testing.T) {
	i := New()
	i.SetShard(newShard("root"))
	for n := range 2000 {
		i.PutCluster("root", Cluster{Name: clusterName(fmt.Sprintf("c%d", n))})
		i.PutWorkspace("root", Workspace{Parent: clusterName("root"), Name: fmt.Sprintf("w%d", n), Cluster: clusterName(fmt.Sprintf("c%d", n))})
	}
	for n := range 2000 {
		i.DeleteCluster("root", clusterName(fmt.Sprintf("c%d", n)))
		i.DeleteWorkspace("root", clusterName("root"), fmt.Sprintf("w%d", n))
	}
	s := i.Load()
	if s.clusters.Len() != 0 || s.workspaces.Len() != 0 {
		t.Fatalf("left over: %d clusters, %d workspaces", s.clusters.Len(), s.workspaces.Len())
	}
	i.RemoveShard("root")
	if len(i.owners) != 0 || len(i.Load().shards) != 0 {
		t.Fatal("the removed shard left entries")
	}
}

func TestConcurrentReads(t *testing.T) {
	i := newTestIndex()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, resolution := i.Load().Resolve(logicalcluster.MustParsePath("root:org:team")); resolution != Found {
					t.Error("an unrelated update hid a workspace")
					return
				}
			}
		})
	}
	for n := range 5000 {
		i.PutCluster("alpha", Cluster{Name: clusterName(fmt.Sprintf("c%d", n%100))})
		i.DeleteCluster("alpha", clusterName(fmt.Sprintf("c%d", (n+50)%100)))
	}
	close(stop)
	wg.Wait()
}

const benchmarkSize = 100_000

// manyWorkspaces returns objects as watches decode them: every name is a separate string.
func manyWorkspaces() ([]Cluster, []Workspace) {
	clusters := make([]Cluster, 0, benchmarkSize+1)
	clusters = append(clusters, Cluster{Name: clusterName("root"), Type: "root:root"})
	workspaces := make([]Workspace, 0, benchmarkSize)
	for n := range benchmarkSize {
		clusters = append(clusters, Cluster{Name: clusterName(fmt.Sprintf("cluster%09d", n)), Type: "root:universal"})
		workspaces = append(workspaces, Workspace{Parent: clusterName("root"), Name: fmt.Sprintf("workspace-%06d", n), Cluster: clusterName(fmt.Sprintf("cluster%09d", n))})
	}
	return clusters, workspaces
}

func newFilledIndex(clusters []Cluster, workspaces []Workspace) *Index {
	i := New()
	i.SetShard(newShard("root"))
	i.ReplaceClusters("root", clusters)
	i.ReplaceWorkspaces("root", workspaces)
	return i
}

func heapAlloc() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestBytesPerWorkspace checks the limit of 300 bytes per workspace.
func TestBytesPerWorkspace(t *testing.T) {
	clusters, workspaces := manyWorkspaces()
	before := heapAlloc()
	i := newFilledIndex(clusters, workspaces)
	if s := i.Load(); s.clusters.Len() != benchmarkSize+1 || s.workspaces.Len() != benchmarkSize {
		t.Fatalf("indexed %d clusters and %d workspaces", s.clusters.Len(), s.workspaces.Len())
	}
	perWorkspace := float64(heapAlloc()-before) / benchmarkSize
	t.Logf("%.0f bytes per workspace", perWorkspace)
	if perWorkspace > 300 {
		t.Errorf("%.0f bytes per workspace, at most 300 are allowed", perWorkspace)
	}
	runtime.KeepAlive(i)
	runtime.KeepAlive(clusters)
	runtime.KeepAlive(workspaces)
}

func BenchmarkFill(b *testing.B) {
	clusters, workspaces := manyWorkspaces()
	for b.Loop() {
		newFilledIndex(clusters, workspaces)
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(time.Millisecond), "ms/100k")
}

func BenchmarkUpdate(b *testing.B) {
	i := newFilledIndex(manyWorkspaces())
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		w := Workspace{Parent: clusterName("root"), Name: fmt.Sprintf("workspace-%06d", n%benchmarkSize), Cluster: clusterName("cluster000000001"), Unavailable: n%2 == 0}
		i.PutWorkspace("root", w)
		n++
	}
}

func BenchmarkResolve(b *testing.B) {
	i := newFilledIndex(manyWorkspaces())
	path := logicalcluster.MustParsePath("root:workspace-054321")
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, resolution := i.Load().Resolve(path); resolution != Found {
				b.Error("not found")
			}
		}
	})
}
