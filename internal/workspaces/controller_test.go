package workspaces

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
)

// Independent of the number of objects in one workspace, the first object of another waits for at most one of them.
func TestWorkspacesHaveTheirTurns(t *testing.T) {
	for workers := 1; workers <= 3; workers++ {
		queue := newRequestQueue(ControllerOptions[Key]{ClusterOf: func(key Key) string { return key.Cluster }, WorkersOfCluster: workers}, nil)
		defer queue.ShutDown()
		for n := range 1000 {
			queue.Add(Key{Cluster: "many", Name: fmt.Sprint(n)})
		}
		other := Key{Cluster: "few", Name: "first"}
		queue.Add(other)
		for turn := 0; ; turn++ {
			key, _ := queue.Get()
			if key == other {
				break
			}
			if turn > 1 || key.Cluster != "many" {
				t.Fatalf("with %d workers of a cluster, turn %d has %s", workers, turn, key)
			}
			queue.Done(key)
		}
	}
}

func TestLogsNameTheRequest(t *testing.T) {
	var got string
	construct := newLogConstructor(ControllerOptions[Key]{
		Name: "instances", LogValues: func(key Key) []any { return []any{"cluster", key.Cluster, "name", key.Name} },
		Log: funcr.New(func(_, args string) { got = args }, funcr.Options{}),
	})
	construct(&Key{Cluster: "1a2b", Name: "mine"}).Info("Failed")
	if want := `"cluster"="1a2b" "name"="mine"`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	construct(nil).Info("Starting")
	if !strings.Contains(got, `"controller"="instances"`) || strings.Contains(got, "cluster") {
		t.Errorf("got %s", got)
	}
}
