package index

import (
	"maps"
	"testing"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// newMoveIndex returns an index with the shards root, alpha, beta, gamma and evil, all synced. The path root:org is the
// logical cluster org1, which alpha reports, and so does the workspace. Paths below it lead to deep1 on the root shard.
func newMoveIndex() *Index {
	i := New()
	for _, shard := range []string{"root", "alpha", "beta", "gamma", "evil"} {
		i.SetShard(newShard(shard))
		i.ReplaceClusters(shard, nil)
		i.ReplaceWorkspaces(shard, nil)
	}
	i.PutCluster("root", Cluster{Name: clusterName("root")})
	i.PutCluster("root", Cluster{Name: clusterName("deep1")})
	reports("alpha")(i)
	names("alpha")(i)
	hasChild("alpha")(i)
	return i
}

type step func(*Index)

func reports(shard string) step { return movedTo(shard, "") }

// movedTo is the report of a shard that has handed org1 over.
func movedTo(shard, to string) step {
	return func(i *Index) { i.PutCluster(shard, Cluster{Name: clusterName("org1"), MovedTo: to}) }
}

// arriving is the report of a shard to which org1 moves.
func arriving(shard string) step {
	return func(i *Index) { i.PutCluster(shard, Cluster{Name: clusterName("org1"), Arriving: true}) }
}

func deletes(shard string) step {
	return func(i *Index) { i.DeleteCluster(shard, clusterName("org1")) }
}

// names sets the shard that the workspace root:org names.
func names(shard string) step {
	return func(i *Index) {
		i.PutWorkspace("root", Workspace{Parent: clusterName("root"), Name: "org", Cluster: clusterName("org1"), Shard: shard})
	}
}

func hasChild(shard string) step {
	return func(i *Index) {
		i.PutWorkspace(shard, Workspace{Parent: clusterName("org1"), Name: "deep", Cluster: clusterName("deep1"), Shard: "root"})
	}
}

func deletesChild(shard string) step {
	return func(i *Index) { i.DeleteWorkspace(shard, clusterName("org1"), "deep") }
}

func relists(shard string, clusters ...Cluster) step {
	return func(i *Index) { i.ReplaceClusters(shard, clusters) }
}

func removed(shard string) step { return func(i *Index) { i.RemoveShard(shard) } }

// TestMovedCluster checks where the name of a logical cluster, the path to it and paths through it lead in the states of
// a move, as proxies see them in any order.
func TestMovedCluster(t *testing.T) {
	const retry, missing = "503", "403"
	for description, tc := range map[string]struct {
		steps []step
		// name and path are the shards to which they lead, child is that for a workspace below; retry or missing if they
		// lead nowhere.
		name, path, child string
	}{
		"before the move":                                     {nil, "alpha", "alpha", "root"},
		"the origin alone reports the move":                   {[]step{movedTo("alpha", "beta")}, "alpha", "alpha", "root"},
		"the origin removes workspaces meanwhile":             {[]step{movedTo("alpha", "beta"), deletesChild("alpha")}, "alpha", "alpha", retry},
		"the destination is arriving":                         {[]step{movedTo("alpha", "beta"), arriving("beta")}, "alpha", "alpha", "root"},
		"the destination is complete":                         {[]step{movedTo("alpha", "beta"), arriving("beta"), hasChild("beta"), reports("beta")}, "beta", "beta", "root"},
		"the destination's workspaces are late":               {[]step{movedTo("alpha", "beta"), reports("beta")}, "beta", "beta", retry},
		"they are late, the workspace names the destination":  {[]step{movedTo("alpha", "beta"), reports("beta"), names("beta")}, "beta", "beta", retry},
		"a workspace is deleted at the destination":           {[]step{movedTo("alpha", "beta"), reports("beta"), hasChild("beta"), deletesChild("alpha"), deletesChild("beta")}, "beta", "beta", missing},
		"the origin has deleted the workspaces":               {[]step{movedTo("alpha", "beta"), reports("beta"), hasChild("beta"), deletesChild("alpha")}, "beta", "beta", "root"},
		"the destination is seen first":                       {[]step{reports("beta"), hasChild("beta"), movedTo("alpha", "beta")}, "beta", "beta", "root"},
		"the destination without the origin's word":           {[]step{reports("beta"), hasChild("beta")}, "alpha", "alpha", "root"},
		"the destination without the word and the workspace":  {[]step{reports("beta"), names("gamma")}, "alpha", retry, retry},
		"the move is complete":                                {[]step{movedTo("alpha", "beta"), reports("beta"), hasChild("beta"), names("beta"), deletesChild("alpha"), deletes("alpha")}, "beta", "beta", "root"},
		"the origin's deletion is seen before the workspace":  {[]step{movedTo("alpha", "beta"), reports("beta"), hasChild("beta"), deletes("alpha")}, "beta", retry, retry},
		"the workspace is seen before the destination":        {[]step{movedTo("alpha", "beta"), names("beta")}, "alpha", retry, retry},
		"nobody reports the cluster":                          {[]step{deletes("alpha")}, missing, missing, missing},
		"another shard claims the cluster":                    {[]step{movedTo("alpha", "beta"), reports("evil"), hasChild("evil")}, "alpha", "alpha", "root"},
		"it claims the cluster before the destination":        {[]step{reports("evil"), movedTo("alpha", "beta"), reports("beta"), hasChild("beta")}, "beta", "beta", "root"},
		"it does not follow the origin":                       {[]step{reports("evil"), movedTo("alpha", "beta"), reports("beta"), hasChild("beta"), names("beta"), deletes("alpha")}, "beta", "beta", "root"},
		"it hands over what it does not have":                 {[]step{movedTo("evil", "beta"), reports("beta")}, "alpha", "alpha", "root"},
		"it hands over to itself what it does not have":       {[]step{movedTo("evil", "evil"), hasChild("evil")}, "alpha", "alpha", "root"},
		"it is named by the destination, which is not used":   {[]step{movedTo("beta", "evil"), reports("evil"), hasChild("evil")}, "alpha", "alpha", "root"},
		"the origin names itself":                             {[]step{movedTo("alpha", "alpha")}, "alpha", "alpha", "root"},
		"the origin names an unknown shard":                   {[]step{movedTo("alpha", "unknown"), reports("beta")}, "alpha", "alpha", "root"},
		"the origin is restored from a backup":                {[]step{movedTo("alpha", "beta"), reports("beta"), hasChild("beta"), names("beta"), reports("alpha")}, "beta", "beta", "root"},
		"the destination is removed":                          {[]step{movedTo("alpha", "beta"), reports("beta"), removed("beta")}, "alpha", "alpha", "root"},
		"the origin is removed":                               {[]step{movedTo("alpha", "beta"), reports("beta"), hasChild("beta"), names("beta"), removed("alpha")}, "beta", "beta", "root"},
		"the destination deletes the cluster":                 {[]step{movedTo("alpha", "beta"), reports("beta"), names("beta"), deletes("alpha"), deletes("beta")}, missing, missing, missing},
		"the origin deletes the cluster before it is indexed": {[]step{movedTo("alpha", "beta"), deletes("alpha"), reports("beta"), names("beta"), hasChild("beta")}, "beta", "beta", "root"},
		"lists instead of events": {[]step{
			relists("beta", Cluster{Name: clusterName("org1"), Arriving: true}), relists("alpha", Cluster{Name: clusterName("org1"), MovedTo: "beta"}),
			relists("beta", Cluster{Name: clusterName("org1")}), hasChild("beta"),
		}, "beta", "beta", "root"},
		"a chain of two moves": {[]step{
			movedTo("alpha", "beta"), movedTo("beta", "gamma"), reports("gamma"), hasChild("gamma"),
		}, "gamma", "gamma", "root"},
		"a chain of two moves, seen in reverse": {[]step{
			reports("gamma"), hasChild("gamma"), movedTo("beta", "gamma"), movedTo("alpha", "beta"),
		}, "gamma", "gamma", "root"},
		"a chain whose last shard is not seen yet": {[]step{
			movedTo("alpha", "beta"), movedTo("beta", "gamma"), hasChild("beta"),
		}, "beta", "beta", "root"},
		"the middle of a chain is deleted": {[]step{
			movedTo("alpha", "beta"), movedTo("beta", "gamma"), reports("gamma"), hasChild("gamma"), names("gamma"), deletes("beta"),
		}, "gamma", "gamma", "root"},
		"there and back": {[]step{
			movedTo("alpha", "beta"), reports("beta"), deletes("alpha"), names("beta"), movedTo("beta", "alpha"), arriving("alpha"), reports("alpha"),
		}, "alpha", "alpha", "root"},
		"there and back before the origin deletes the cluster": {[]step{
			movedTo("alpha", "beta"), reports("beta"), names("beta"), movedTo("beta", "alpha"), reports("alpha"),
		}, "alpha", "alpha", "root"},
		"there and back, seen in reverse": {[]step{movedTo("alpha", "beta"), movedTo("beta", "alpha"), reports("alpha")}, "alpha", "alpha", "root"},
		"a circle of outdated entries":    {[]step{movedTo("alpha", "beta"), movedTo("beta", "alpha")}, "alpha", "alpha", "root"},
		"a circle behind the origin":      {[]step{movedTo("beta", "gamma"), movedTo("gamma", "beta"), movedTo("alpha", "beta")}, "alpha", "alpha", "root"},
		"a circle of three":               {[]step{movedTo("beta", "gamma"), movedTo("gamma", "alpha"), movedTo("alpha", "beta")}, "alpha", "alpha", "root"},
	} {
		t.Run(description, func(t *testing.T) {
			i := newMoveIndex()
			for _, apply := range tc.steps {
				apply(i)
			}
			for path, want := range map[string]string{"org1": tc.name, "root:org": tc.path, "root:org:deep": tc.child} {
				route, resolution := i.Load().Resolve(logicalcluster.MustParsePath(path))
				got := map[Resolution]string{NotSynced: retry, Moving: retry, NotFound: missing}[resolution]
				if resolution == Found {
					got = route.Shard.Name
				}
				if got != want {
					t.Errorf("%s leads to %q, want %q", path, got, want)
				}
			}
		})
	}
}

// TestRootDoesNotMove: no other shard may report root, so that nothing can be handed over.
func TestRootDoesNotMove(t *testing.T) {
	i := newMoveIndex()
	i.PutCluster("evil", Cluster{Name: logicalcluster.Root})
	i.PutCluster("root", Cluster{Name: logicalcluster.Root, MovedTo: "evil"})
	if route, resolution := i.Load().Resolve(logicalcluster.MustParsePath("root")); resolution != Found || route.Shard.Name != "root" {
		t.Errorf("root leads to %+v, %v", route.Shard, resolution)
	}
}

// TestConflictsOfMoves: a logical cluster that its shard has handed over is no conflict, and is not logged.
func TestConflictsOfMoves(t *testing.T) {
	for description, tc := range map[string]struct {
		steps []step
		// conflicts are those that are counted, logged the shards of which one was logged.
		conflicts map[string]int
		logged    map[string]bool
	}{
		"a move": {[]step{movedTo("alpha", "beta"), arriving("beta"), reports("beta")}, nil, nil},
		"a move of which the destination is read first": {[]step{deletes("alpha"), reports("beta"), movedTo("alpha", "beta")}, nil, nil},
		"a chain of moves": {[]step{movedTo("alpha", "beta"), reports("beta"), movedTo("beta", "gamma"), reports("gamma")}, nil, nil},
		"a claim during a move": {
			[]step{movedTo("alpha", "beta"), reports("evil"), reports("beta")},
			map[string]int{"evil": 1}, map[string]bool{"evil": true},
		},
		"a claim that becomes a destination": {[]step{reports("beta"), movedTo("alpha", "beta")}, nil, map[string]bool{"beta": true}},
		"a move that the holder did not name": {
			[]step{movedTo("beta", "gamma"), reports("gamma")},
			map[string]int{"beta": 1, "gamma": 1}, map[string]bool{"beta": true, "gamma": true},
		},
		"an origin that is restored from a backup": {
			[]step{movedTo("alpha", "beta"), reports("beta"), reports("alpha")},
			map[string]int{"alpha": 1}, map[string]bool{"alpha": true},
		},
	} {
		t.Run(description, func(t *testing.T) {
			i := newMoveIndex()
			for _, apply := range tc.steps {
				apply(i)
			}
			conflicts, logged := i.Load().Conflicts(), map[string]bool{}
			maps.DeleteFunc(conflicts, func(_ string, n int) bool { return n == 0 })
			for name, o := range i.owners {
				if o.conflictLogged {
					logged[name] = true
				}
			}
			if !maps.Equal(conflicts, tc.conflicts) || !maps.Equal(logged, tc.logged) {
				t.Errorf("got %v, logged %v; want %v, logged %v", conflicts, logged, tc.conflicts, tc.logged)
			}
		})
	}
}
