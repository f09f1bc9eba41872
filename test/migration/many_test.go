package migration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/moves"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// manyMoves is the number of workspaces that move at once, half of them in each direction.
const manyMoves = 10

// testMany moves workspaces of two shards to the other one at once, and back. Each has exactly its own objects afterwards (kcp's
// TestConcurrentMigrationsFromSameOriginShard, M81), is usable on both shards (TestMigrationBackToOriginShard, M87), keeps its usage, nothing
// is left on the other shard, and no more watches are open than before.
func (e *env) testMany(t *testing.T) {
	type one struct {
		workspace *tenancyv1alpha1.Workspace
		client    client.Client
		shard     string
		objects   []*corev1.ConfigMap
		// writes are those which the usage of the workspace had after the last move.
		writes int
	}
	all := make([]*one, manyMoves)
	for i := range all { // one at a time: subtests of one test share its functions
		all[i] = &one{shard: [2]string{installation.Alpha, installation.Beta}[i%2]}
		all[i].workspace, all[i].client = e.workspace(t, fmt.Sprint("many-", i), all[i].shard)
		all[i].objects = []*corev1.ConfigMap{put(t, all[i].client, fmt.Sprint("of-", i))}
	}
	other := map[string]string{installation.Alpha: installation.Beta, installation.Beta: installation.Alpha}
	var clusters []logicalcluster.Name
	for _, one := range all {
		clusters = append(clusters, logicalcluster.MustParseName(one.workspace.Spec.Cluster))
	}
	before, stored := e.watches(t), map[string]map[string]int64{}
	for shard := range other {
		stored[shard] = e.objectsOn(t, shard, clusters)
	}
	for _, direction := range []string{"there", "back"} {
		var creating sync.WaitGroup
		for i, one := range all {
			creating.Go(func() {
				migration := newMove(fmt.Sprint("many-", direction, "-", i), one.workspace.Spec.Cluster, other[one.shard])
				if err := e.operations.Create(t.Context(), migration); err != nil {
					t.Error(err)
				}
			})
		}
		creating.Wait()
		for i, one := range all {
			e.waitPhase(t, fmt.Sprint("many-", direction, "-", i), migrationv1alpha1.LogicalClusterMigrationPhaseCompleted)
			one.shard = other[one.shard]
			checkObjects(t, one.client, one.objects)
			// The usage has arrived with the workspace: after the second move at most one write more. What etcd did not take in time stays behind, but nothing
			// counts twice.
			if writes := e.usedWrites(t, one.workspace.Spec.Cluster); direction == "back" && writes > one.writes+1 {
				t.Errorf("the usage of workspace %s has %d writes, and %d before it moved %s", one.workspace.Name, writes, one.writes, direction)
			} else {
				one.writes = writes
			}
			later := put(t, one.client, direction) // at once, on the shard that has just got it
			var list corev1.ConfigMapList
			if err := one.client.List(t.Context(), &list, client.InNamespace(later.Namespace)); err != nil {
				t.Fatal(err)
			}
			one.objects = append(one.objects, later)
			found := 0
			for _, object := range list.Items {
				if strings.HasPrefix(object.Name, "of-") || object.Name == "there" || object.Name == "back" {
					found++
				}
			}
			if found != len(one.objects) {
				t.Errorf("workspace %s has %d of %d objects", one.workspace.Name, found, len(one.objects))
			}
		}
		e.checkShards(t, func(yield func(string, string) bool) {
			for _, one := range all {
				if !yield(one.workspace.Spec.Cluster, one.shard) {
					return
				}
			}
		})
	}
	for shard := range other { // two objects more on the shard that has a workspace, and nothing on the other one
		shardtesting.Eventually(t, "what is stored on "+shard, func(context.Context) error {
			for cluster, now := range e.objectsOn(t, shard, clusters) {
				want := stored[shard][cluster]
				if want > 0 {
					want += 2
				}
				if now != want {
					return fmt.Errorf("%d objects of %s, want %d", now, cluster, want)
				}
			}
			return nil
		})
	}
	shardtesting.Eventually(t, "the end of watches of moves", func(context.Context) error {
		for shard, after := range e.watches(t) {
			if after > before[shard] {
				return fmt.Errorf("shard %s serves %d watches, and before %d", shard, after, before[shard])
			}
		}
		return nil
	})
}

// usedWrites returns the number of writes in the usage of a logical cluster.
func (e *env) usedWrites(t *testing.T, cluster string) (writes int) {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(e.Admin(t, cluster))
	if err != nil {
		t.Fatal(err)
	}
	text, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) { // of several months, if one ends meanwhile
		if !strings.HasPrefix(line, `atoll_usage_requests_total{class="write"`) {
			continue
		}
		_, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		count, err := strconv.Atoi(value)
		if err != nil {
			t.Fatal(err)
		}
		writes += count
	}
	return writes
}

// checkShards fails unless logical clusters are on the shards that they should be on.
func (e *env) checkShards(t *testing.T, want func(func(cluster, shard string) bool)) {
	t.Helper()
	for cluster, shard := range want {
		object := &corev1alpha1.LogicalCluster{}
		if err := e.at(t, cluster).Get(t.Context(), clusterKey, object); err != nil {
			t.Fatal(err)
		}
		if have := object.Annotations[corev1alpha1.ShardAnnotationKey]; have != shard {
			t.Errorf("%s is on %s, want %s", cluster, have, shard)
		}
	}
}

// objectsOn returns the numbers of objects of logical clusters in the etcd of a shard.
func (e *env) objectsOn(t *testing.T, shard string, clusters []logicalcluster.Name) map[string]int64 {
	t.Helper()
	config := e.Masters(t, shard)
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer transport.CloseIdleConnections()
	sizes, err := moves.Sizes(t.Context(), transport, config.Host, clusters)
	if err != nil {
		t.Fatal(err)
	}
	return sizes
}

// watches returns the number of watches that alpha and beta serve.
func (e *env) watches(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, shard := range []string{installation.Alpha, installation.Beta} {
		for line := range strings.Lines(e.metrics(t, shard)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
			number, err := strconv.ParseFloat(value, 64)
			if err == nil && strings.HasPrefix(name, "apiserver_longrunning_requests{") && strings.Contains(name, `verb="WATCH"`) {
				found[shard] += int(number)
			}
		}
	}
	return found
}
