package index

import (
	"fmt"
	"math/rand"
	"net/url"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func name(s string) logicalcluster.Name { return logicalcluster.MustParseName(s) }

func shard(name string) Shard {
	return Shard{Name: name, BaseURL: &url.URL{Scheme: "https", Host: name + ".example"}}
}

// tree is an installation of two shards: root and alpha.
func tree() *Index {
	i := New()
	i.SetShard(shard("root"))
	i.SetShard(shard("alpha"))
	i.SetShard(Shard{Name: "nourl"})
	i.SetShard(Shard{Name: "badurl", Err: fmt.Errorf("bad")})
	for _, name := range []string{"root", "alpha"} {
		i.ReplaceClusters(name, nil)
		i.ReplaceWorkspaces(name, nil)
	}
	home := logicalcluster.HomeName("alice")
	for _, c := range []string{"root", "org1", home.String(), "system:admin"} {
		i.PutCluster("root", Cluster{Name: name(c)})
	}
	for _, c := range []string{"team1", "broken1", "deep1"} {
		i.PutCluster("alpha", Cluster{Name: name(c)})
	}
	i.PutCluster("nourl", Cluster{Name: name("lost1")})
	i.PutCluster("badurl", Cluster{Name: name("bad1")})
	put := func(shard, parent, ws, cluster string, more ...func(*Workspace)) {
		w := Workspace{Parent: name(parent), Name: ws}
		if cluster != "" {
			w.Cluster = name(cluster)
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

func TestLookup(t *testing.T) {
	home := logicalcluster.HomeName("alice").String()
	s := tree().Load()
	for sentence, tc := range map[string]struct {
		path    string
		verdict Verdict
		want    string // "<shard>/<cluster>", or the mount's URL
	}{
		"root is found":                                        {"root", Found, "root/root"},
		"a bare name is found":                                 {"team1", Found, "alpha/team1"},
		"a path is followed across shards":                     {"root:org:team", Found, "alpha/team1"},
		"a name may start a path":                              {"org1:team", Found, "alpha/team1"},
		"a home path starts with user":                         {"user:alice", Found, "root/" + home},
		"workspaces below a home are found":                    {"user:alice:mine", Found, "alpha/team1"},
		"the home of an unknown user is not found":             {"user:bob", NotFound, ""},
		"user alone is a name like any other":                  {"user", NotFound, ""},
		"an unknown name is not found":                         {"nobody", NotFound, ""},
		"an unknown child is not found":                        {"root:nobody", NotFound, ""},
		"an unknown first segment is not found":                {"nobody:org", NotFound, ""},
		"the wildcard is not found":                            {"*", NotFound, ""},
		"a system cluster is not found":                        {"system:admin", NotFound, ""},
		"a child whose cluster no shard has is not found":      {"root:org:unindexed", NotFound, ""},
		"a cluster on a shard without a base URL is not found": {"lost1", NotFound, ""},
		"a cluster on a shard with a bad base URL is found, so that the error can be told": {"bad1", Found, "badurl/bad1"},
		"a path ending in an Unavailable workspace":                                        {"root:org:broken", Unavailable, ""},
		"a path through an Unavailable workspace":                                          {"root:org:broken:deep", Unavailable, ""},
		"a path through an Unavailable workspace that leads nowhere":                       {"root:org:broken:none", NotFound, ""},
		"an Unavailable workspace whose cluster is unknown":                                {"root:org:brokenlost", NotFound, ""},
		"the bare name of an Unavailable workspace's cluster is never 503":                 {"broken1", Found, "alpha/broken1"},
		"a mount":                             {"root:org:mount", Mounted, "https://mount.example/x"},
		"segments behind a mount are dropped": {"root:org:mount:a:b", Mounted, "https://mount.example/x"},
		"a mount that is Unavailable":         {"root:org:downmount", Unavailable, ""},
		"a mount that was never available":    {"root:org:newmount", Unavailable, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			route, verdict := s.Lookup(logicalcluster.MustParsePath(tc.path))
			got := route.Mount
			if route.Shard != nil {
				got = route.Shard.Name + "/" + route.Cluster.String()
			}
			if verdict != tc.verdict || got != tc.want {
				t.Fatalf("Lookup(%q) = %q, %v; want %q, %v", tc.path, got, verdict, tc.want, tc.verdict)
			}
		})
	}
}

// TestWhatIsNotReadIsNotAbsent: a proxy that starts while a shard is down must not say that its workspaces do not exist.
func TestWhatIsNotReadIsNotAbsent(t *testing.T) {
	for sentence, tc := range map[string]struct {
		do      func(*Index)
		path    string
		verdict Verdict
	}{
		"an unknown name may be on a shard that was not read":     {func(*Index) {}, "nobody", Undecided},
		"so may what an unknown name leads to":                    {func(*Index) {}, "nobody:below", Undecided},
		"so may the logical cluster of a workspace that is known": {func(*Index) {}, "root:org:unindexed", Undecided},
		"and what is below it":                                    {func(*Index) {}, "root:org:unindexed:below", Undecided},
		"what a shard that was read does not have does not exist": {func(*Index) {}, "root:nobody", NotFound},
		"what it has is found":                                    {func(*Index) {}, "root:org:team", Found},
		"system clusters are not found":                           {func(*Index) {}, "system:admin", NotFound},
		"the wildcard is not found":                               {func(*Index) {}, "*", NotFound},
		"half of a shard is not all":                              {func(i *Index) { i.ReplaceClusters("beta", nil) }, "nobody", Undecided},
		"workspaces of a shard whose clusters alone were read":    {func(i *Index) { i.ReplaceClusters("beta", []Cluster{{Name: name("b1")}}) }, "b1:team", Undecided},
		"when all is read the unknown does not exist":             {func(i *Index) { i.ReplaceClusters("beta", nil); i.ReplaceWorkspaces("beta", nil) }, "nobody", NotFound},
		"when the shard is gone the unknown does not exist":       {func(i *Index) { i.RemoveShard("beta") }, "nobody", NotFound},
		"a shard that comes back was not read": {func(i *Index) {
			i.ReplaceClusters("beta", nil)
			i.ReplaceWorkspaces("beta", nil)
			i.RemoveShard("beta")
			i.SetShard(shard("beta"))
		}, "nobody", Undecided},
		"a shard that moves stays read": {func(i *Index) {
			i.ReplaceClusters("beta", nil)
			i.ReplaceWorkspaces("beta", nil)
			i.SetShard(shard("beta"))
		}, "nobody", NotFound},
		"a shard elsewhere is no way, but paths lead through it":         {func(i *Index) { i.SetShard(Shard{Name: "root", BaseURL: shard("root").BaseURL, Elsewhere: true}) }, "root:org:team", Found},
		"what is on a shard elsewhere is not found":                      {func(i *Index) { i.SetShard(Shard{Name: "root", BaseURL: shard("root").BaseURL, Elsewhere: true}) }, "root:org", NotFound},
		"a shard without an address does not leave everything undecided": {func(i *Index) { i.RemoveShard("beta"); i.SetShard(Shard{Name: "gamma"}) }, "nobody", NotFound},
	} {
		t.Run(sentence, func(t *testing.T) {
			i := tree()
			i.SetShard(shard("beta"))
			tc.do(i)
			if _, verdict := i.Load().Lookup(logicalcluster.MustParsePath(tc.path)); verdict != tc.verdict {
				t.Errorf("%s: verdict %d, want %d", tc.path, verdict, tc.verdict)
			}
		})
	}
}

func TestUpdates(t *testing.T) {
	at := func(i *Index, path string) string {
		route, verdict := i.Load().Lookup(logicalcluster.MustParsePath(path))
		if verdict != Found {
			return ""
		}
		return route.Shard.Name
	}
	for sentence, tc := range map[string]struct {
		do   func(*Index)
		path string
		want string
	}{
		"a deleted cluster is gone":               {func(i *Index) { i.DeleteCluster("alpha", name("team1")) }, "team1", ""},
		"a deleted workspace is gone":             {func(i *Index) { i.DeleteWorkspace("root", name("org1"), "team") }, "root:org:team", ""},
		"its cluster keeps its bare name":         {func(i *Index) { i.DeleteWorkspace("root", name("org1"), "team") }, "team1", "alpha"},
		"a workspace that stops leading anywhere": {func(i *Index) { i.PutWorkspace("root", Workspace{Parent: name("org1"), Name: "team"}) }, "root:org:team", ""},
		"a removed shard takes its clusters":      {func(i *Index) { i.RemoveShard("alpha") }, "team1", ""},
		"a removed shard leaves those of others":  {func(i *Index) { i.RemoveShard("alpha") }, "org1", "root"},
		"a removed shard that returns is empty":   {func(i *Index) { i.RemoveShard("alpha"); i.SetShard(shard("alpha")) }, "team1", ""},
		"a relist removes what it lacks":          {func(i *Index) { i.ReplaceClusters("alpha", []Cluster{{Name: name("deep1")}}) }, "team1", ""},
		"a relist keeps what it has":              {func(i *Index) { i.ReplaceClusters("alpha", []Cluster{{Name: name("deep1")}}) }, "deep1", "alpha"},
		"a relist adds what is new":               {func(i *Index) { i.ReplaceClusters("alpha", []Cluster{{Name: name("new1")}}) }, "new1", "alpha"},
		"a relist of workspaces removes what it lacks": {func(i *Index) {
			i.ReplaceWorkspaces("root", []Workspace{{Parent: name("root"), Name: "org", Cluster: name("org1")}})
		}, "root:org:team", ""},
		"a relist of one shard leaves the other's": {func(i *Index) { i.ReplaceClusters("alpha", nil) }, "root:org", "root"},
		"of two shards the first is believed":      {func(i *Index) { i.PutCluster("root", Cluster{Name: name("team1")}) }, "team1", "alpha"},
		"a claim that is made again is not another one": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: name("team1"), Type: "a"})
			i.PutCluster("root", Cluster{Name: name("team1"), Type: "b"})
		}, "team1", "alpha"},
		"nor is one of a list": {func(i *Index) { i.ReplaceClusters("root", []Cluster{{Name: name("root")}, {Name: name("team1")}}) }, "team1", "alpha"},
		"the first goes on to be, whatever it says of it": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: name("team1")})
			i.PutCluster("alpha", Cluster{Name: name("team1"), Type: "other"})
			i.ReplaceClusters("alpha", []Cluster{{Name: name("team1")}})
		}, "team1", "alpha"},
		"the next is believed when the first lets go": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: name("team1")})
			i.DeleteCluster("alpha", name("team1"))
		}, "team1", "root"},
		"or is gone": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: name("team1")})
			i.RemoveShard("alpha")
		}, "team1", "root"},
		"what is not believed can be taken back": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: name("team1")})
			i.DeleteCluster("root", name("team1"))
		}, "team1", "alpha"},
		"a path leads where its workspace was put": {func(i *Index) {
			i.PutWorkspace("root", Workspace{Parent: name("org1"), Name: "team", Cluster: name("team1"), Shard: "alpha"})
		}, "root:org:team", "alpha"},
		"also if another shard was first with its name": {func(i *Index) {
			i.PutCluster("nourl", Cluster{Name: name("new1")})
			i.PutCluster("alpha", Cluster{Name: name("new1")})
			i.PutWorkspace("root", Workspace{Parent: name("org1"), Name: "team", Cluster: name("new1"), Shard: "alpha"})
		}, "root:org:team", "alpha"},
		"and nowhere while that shard does not have it": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: name("new1")})
			i.PutWorkspace("root", Workspace{Parent: name("org1"), Name: "team", Cluster: name("new1"), Shard: "alpha"})
		}, "root:org:team", ""},
		"nor further": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: name("new1")})
			i.PutWorkspace("root", Workspace{Parent: name("new1"), Name: "deep", Cluster: name("org1")})
			i.PutWorkspace("root", Workspace{Parent: name("org1"), Name: "team", Cluster: name("new1"), Shard: "alpha"})
		}, "root:org:team:deep", ""},
		"a workspace that was put elsewhere leads there": {func(i *Index) {
			i.PutCluster("root", Cluster{Name: name("team1")})
			i.PutWorkspace("root", Workspace{Parent: name("org1"), Name: "team", Cluster: name("team1"), Shard: "root"})
		}, "root:org:team", "root"},
		"root is where it is, whatever other shards say": {func(i *Index) { i.PutCluster("alpha", Cluster{Name: name("root")}) }, "root", "root"},
		"no shard leads through another shard's logical clusters": {func(i *Index) {
			i.PutWorkspace("alpha", Workspace{Parent: name("root"), Name: "evil", Cluster: name("team1")})
		}, "root:evil", ""},
		"nor astray": {func(i *Index) {
			i.PutWorkspace("alpha", Workspace{Parent: name("root"), Name: "org", Cluster: name("team1")})
		}, "root:org", "root"},
		"a logical cluster that moved is led through by its new shard": {func(i *Index) {
			i.PutCluster("alpha", Cluster{Name: name("org1")})
			i.PutWorkspace("alpha", Workspace{Parent: name("org1"), Name: "team", Cluster: name("org1")})
			i.DeleteCluster("root", name("org1"))
		}, "root:org:team", "alpha"},
		"and by its old one until that lets go": {func(i *Index) {
			i.PutCluster("alpha", Cluster{Name: name("org1")})
			i.PutWorkspace("alpha", Workspace{Parent: name("org1"), Name: "team", Cluster: name("root")})
		}, "root:org:team", "alpha"},
	} {
		t.Run(sentence, func(t *testing.T) {
			i := tree()
			before := i.Load()
			tc.do(i)
			if got := at(i, tc.path); got != tc.want {
				t.Errorf("%s leads to shard %q, want %q", tc.path, got, tc.want)
			}
			if _, verdict := before.Lookup(logicalcluster.MustParsePath("root:org:team")); verdict != Found {
				t.Error("the update changed a snapshot taken before it")
			}
		})
	}
}

// TestClaimsOfWhatOthersHaveAreCounted, and leave nothing behind.
func TestClaimsOfWhatOthersHaveAreCounted(t *testing.T) {
	i := tree()
	i.PutCluster("root", Cluster{Name: name("team1")})
	i.PutCluster("root", Cluster{Name: name("deep1")})
	i.PutCluster("root", Cluster{Name: name("deep1"), Type: "other"})
	i.PutCluster("alpha", Cluster{Name: name("root")})
	if got := i.Load().Contested(); got["root"] != 2 || got["alpha"] != 0 || len(got) != 4 {
		t.Errorf("contested are %v", got)
	}
	i.DeleteCluster("root", name("team1"))
	i.DeleteCluster("alpha", name("deep1"))
	if got := i.Load().Contested(); got["root"] != 0 {
		t.Errorf("in the end, contested are %v", got)
	}
}

func TestMovedShardKeepsItsEntries(t *testing.T) {
	i := tree()
	i.SetShard(Shard{Name: "alpha", BaseURL: &url.URL{Scheme: "https", Host: "elsewhere.example"}})
	route, verdict := i.Load().Lookup(logicalcluster.MustParsePath("root:org:team"))
	if verdict != Found || route.Shard.BaseURL.Host != "elsewhere.example" {
		t.Fatalf("got %+v, %v", route, verdict)
	}
}

// TestNothingStays is wall W2: what was added and removed again leaves no entry behind.
func TestNothingStays(t *testing.T) {
	i := New()
	i.SetShard(shard("root"))
	for n := range 2000 {
		i.PutCluster("root", Cluster{Name: name(fmt.Sprintf("c%d", n))})
		i.PutWorkspace("root", Workspace{Parent: name("root"), Name: fmt.Sprintf("w%d", n), Cluster: name(fmt.Sprintf("c%d", n))})
	}
	for n := range 2000 {
		i.DeleteCluster("root", name(fmt.Sprintf("c%d", n)))
		i.DeleteWorkspace("root", name("root"), fmt.Sprintf("w%d", n))
	}
	s := i.Load()
	if s.clusters.size != 0 || s.workspaces.size != 0 || s.clusters.root != nil || s.workspaces.root != nil {
		t.Fatalf("left over: %d clusters, %d workspaces, roots %v %v", s.clusters.size, s.workspaces.size, s.clusters.root, s.workspaces.root)
	}
	i.RemoveShard("root")
	if len(i.owners) != 0 || len(i.Load().shards) != 0 {
		t.Fatal("the removed shard left something behind")
	}
}

func TestReadersNeverWait(t *testing.T) {
	i := tree()
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
				if _, verdict := i.Load().Lookup(logicalcluster.MustParsePath("root:org:team")); verdict != Found {
					t.Error("an unrelated update hid a workspace")
					return
				}
			}
		})
	}
	for n := range 5000 {
		i.PutCluster("alpha", Cluster{Name: name(fmt.Sprintf("c%d", n%100))})
		i.DeleteCluster("alpha", name(fmt.Sprintf("c%d", (n+50)%100)))
	}
	close(stop)
	wg.Wait()
}

type pair struct {
	k int
	v int
}

func (p *pair) key() int { return p.k }

// TestTrieAgainstMap compares with a plain map, with a hash so poor that all levels and the collision lists are used.
func TestTrieAgainstMap(t *testing.T) {
	for sentence, hash := range map[string]func(int) uint64{
		"a good hash":               func(k int) uint64 { return uint64(k) * 0x9E3779B97F4A7C15 },
		"only the last bits differ": func(k int) uint64 { return uint64(k%7) << 61 },
		"all hashes are equal":      func(int) uint64 { return 42 },
	} {
		t.Run(sentence, func(t *testing.T) {
			random := rand.New(rand.NewSource(1))
			tr := trie[int, *pair]{hash: hash}
			want := map[int]int{}
			for n := range 20000 {
				k := random.Intn(300)
				if random.Intn(2) == 0 {
					tr = tr.put(&pair{k, n})
					want[k] = n
				} else {
					tr = tr.remove(k)
					delete(want, k)
				}
			}
			if tr.size != len(want) {
				t.Fatalf("size %d, want %d", tr.size, len(want))
			}
			for k := range 300 {
				got, ok := tr.get(k)
				v, wanted := want[k]
				if ok != wanted || (ok && got.v != v) || (!ok && got != nil) {
					t.Fatalf("get(%d) = %v, %v; want %d, %v", k, got, ok, v, wanted)
				}
			}
			seen := 0
			tr.each(func(p *pair) { seen++ })
			if seen != len(want) {
				t.Fatalf("each saw %d, want %d", seen, len(want))
			}
			for k := range 300 {
				tr = tr.remove(k)
			}
			if tr.root != nil || tr.size != 0 {
				t.Fatal("an emptied trie keeps nodes")
			}
		})
	}
}

const many = 100_000

// manyWorkspaces returns the names as events bring them: every mention is a string of its own.
func manyWorkspaces() ([]Cluster, []Workspace) {
	clusters := make([]Cluster, 0, many+1)
	clusters = append(clusters, Cluster{Name: name("root"), Type: "root:root"})
	workspaces := make([]Workspace, 0, many)
	for n := range many {
		clusters = append(clusters, Cluster{Name: name(fmt.Sprintf("cluster%09d", n)), Type: "root:universal"})
		workspaces = append(workspaces, Workspace{Parent: name("root"), Name: fmt.Sprintf("workspace-%06d", n), Cluster: name(fmt.Sprintf("cluster%09d", n))})
	}
	return clusters, workspaces
}

func filled(clusters []Cluster, workspaces []Workspace) *Index {
	i := New()
	i.SetShard(shard("root"))
	i.ReplaceClusters("root", clusters)
	i.ReplaceWorkspaces("root", workspaces)
	return i
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestBytesPerWorkspace holds the bound of 300 bytes for each of 100,000 workspaces.
func TestBytesPerWorkspace(t *testing.T) {
	clusters, workspaces := manyWorkspaces()
	before := heap()
	i := filled(clusters, workspaces)
	if s := i.Load(); s.clusters.size != many+1 || s.workspaces.size != many {
		t.Fatalf("indexed %d clusters and %d workspaces", s.clusters.size, s.workspaces.size)
	}
	perWorkspace := float64(heap()-before) / many
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
		filled(clusters, workspaces)
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(time.Millisecond), "ms/100k")
}

func BenchmarkUpdate(b *testing.B) {
	i := filled(manyWorkspaces())
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		w := Workspace{Parent: name("root"), Name: fmt.Sprintf("workspace-%06d", n%many), Cluster: name("cluster000000001"), Unavailable: n%2 == 0}
		i.PutWorkspace("root", w)
		n++
	}
}

func BenchmarkLookup(b *testing.B) {
	i := filled(manyWorkspaces())
	path := logicalcluster.MustParsePath("root:workspace-054321")
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, verdict := i.Load().Lookup(path); verdict != Found {
				b.Error("not found")
			}
		}
	})
}
