package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/sharded"
)

// workspacesPerRound is the number of workspaces created in a round, concurrency how many concurrently.
const workspacesPerRound, concurrency = 30, 5

// TestShardsKilledDuringPlacement creates and deletes workspaces below one on alpha, while alpha, another shard or both
// are killed at any moment. Every acknowledged workspace becomes ready with one logical cluster, no logical cluster is
// orphaned, and after the deletion no object remains.
func TestShardsKilledDuringPlacement(t *testing.T) {
	s := newEnv(t, sharded.Options{})
	for n, round := range []struct {
		name               string
		creating, deleting []string
	}{
		{"the shard of the parent", []string{alpha}, []string{beta}},
		{"a selected shard", []string{beta}, []string{alpha}},
		{"the root shard", []string{root}, nil},
		{"both", []string{beta, alpha}, []string{alpha, beta}},
	} {
		s.step(t, round.name, func(s *env) {
			p := s.newPlacements(fmt.Sprint("parent-", n), workspacesPerRound)
			p.killDuring(p.create, round.creating...)
			p.waitUntilReady()
			p.killDuring(p.delete, round.deleting...)
			p.waitUntilDeleted()
		})
	}
	s.waitForRecovery(root, alpha, beta)
	s.finish()
}

// killDuring runs work, kills shards at some moment of it, and starts them again. work calls done for each completed
// part.
func (p *placements) killDuring(work func(done func()), shards ...string) {
	s := p.env
	s.Helper()
	moment, wait := rand.Int64N(int64(p.count)), time.Duration(rand.Int64N(int64(200*time.Millisecond)))
	reached, ended := make(chan struct{}), make(chan struct{})
	var count atomic.Int64
	go func() {
		defer close(ended)
		work(func() {
			if count.Add(1) == moment+1 {
				close(reached)
			}
		})
	}()
	<-reached
	time.Sleep(wait) // not a wait for a state: any moment serves
	for _, shard := range shards {
		s.Kill(s.T, shard)
		s.Logf("killed %s after %d of %d were acknowledged", shard, count.Load(), p.count)
	}
	for _, shard := range shards {
		s.restart(shard)
	}
	<-ended
	for _, shard := range shards {
		s.WaitReady(s.T, shard)
	}
}

// placements are the workspaces of one round.
type placements struct {
	*env
	parent string
	// count is their number.
	count int
	// shard is that of all of them, if it is set.
	shard string
	// shards are clients of each shard.
	shards map[string]client.Client
}

// timeout bounds each part of a round.
func (p *placements) timeout() time.Duration { return time.Minute + time.Duration(p.count)*time.Second }

// eventually is shardtesting.Eventually with the timeout of a part.
func (p *placements) eventually(what string, condition func(context.Context) error) {
	p.Helper()
	shardtesting.EventuallyWithin(p.T, p.timeout(), what, condition)
}

func (e *env) newPlacements(parent string, count int) *placements {
	e.Helper()
	p := &placements{env: e, parent: e.createWorkspace(parent, alpha), count: count, shards: map[string]client.Client{}}
	for _, shard := range e.Shards() {
		direct, err := loopback.NewClient(e.Masters(e.T, shard))
		if err != nil {
			e.Fatal(err)
		}
		p.shards[shard] = direct
	}
	return p
}

// forEach calls do for every workspace, a few concurrently, and retries until it succeeds.
func (p *placements) forEach(done func(), do func(ctx context.Context, workspace *tenancyv1alpha1.Workspace) error) {
	ctx, cancel := context.WithTimeout(shardtesting.In(p.Context(), p.parent), p.timeout())
	defer cancel()
	names := make(chan string, p.count)
	for n := range p.count {
		names <- fmt.Sprint("w", n)
	}
	close(names)
	var all sync.WaitGroup
	for range concurrency {
		all.Go(func() {
			for name := range names {
				for {
					request, cancel := context.WithTimeout(ctx, 5*time.Second)
					workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
					if p.shard != "" {
						shardtesting.OnShard(p.shard)(workspace)
					}
					err := do(request, workspace)
					cancel()
					if err == nil {
						break
					}
					if ctx.Err() != nil {
						p.Errorf("workspace %s: %v", name, err)
						break
					}
					time.Sleep(writeInterval)
				}
				done()
			}
		})
	}
	all.Wait()
}

func (p *placements) create(done func()) {
	p.forEach(done, func(ctx context.Context, workspace *tenancyv1alpha1.Workspace) error {
		if err := p.admin.Create(ctx, workspace); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil // done by the previous attempt, whose response was lost
	})
}

func (p *placements) delete(done func()) {
	p.forEach(done, func(ctx context.Context, workspace *tenancyv1alpha1.Workspace) error {
		return client.IgnoreNotFound(p.admin.Delete(ctx, workspace))
	})
}

// waitUntilReady waits until every workspace is ready, and refers to the only logical cluster that was created for it.
func (p *placements) waitUntilReady() {
	p.Helper()
	var workspaces tenancyv1alpha1.WorkspaceList
	p.eventually("all workspaces become ready", func(ctx context.Context) error {
		if err := p.admin.List(shardtesting.In(ctx, p.parent), &workspaces); err != nil {
			return err
		}
		if len(workspaces.Items) != p.count {
			return fmt.Errorf("there are %d of %d", len(workspaces.Items), p.count)
		}
		for i := range workspaces.Items {
			if workspace := &workspaces.Items[i]; workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
				return fmt.Errorf("%s is %q: %+v", workspace.Name, workspace.Status.Phase, workspace.Status.Conditions)
			}
		}
		return nil
	})
	on := map[string]int{}
	p.eventually("every workspace has one logical cluster", func(ctx context.Context) error {
		found, err := p.clusters(ctx)
		if err != nil {
			return err
		}
		clear(on)
		for i := range workspaces.Items {
			workspace := &workspaces.Items[i]
			shard := workspace.Annotations[corev1alpha1.ShardAnnotationKey]
			want := []string{fmt.Sprintf("%s on %s, %s", workspace.Spec.Cluster, shard, corev1alpha1.LogicalClusterPhaseReady)}
			if got := found[workspace.Name+" "+string(workspace.UID)]; !slices.Equal(got, want) {
				return fmt.Errorf("workspace %s has %q, want %q", workspace.Name, got, want)
			}
			on[shard]++
		}
		if len(found) != p.count {
			return fmt.Errorf("%d workspaces have logical clusters: %q", len(found), found)
		}
		return nil
	})
	p.waitForEmptyCache()
	p.Logf("%d workspaces are ready: %v", p.count, on)
	for i := range workspaces.Items { // the front proxy may still have to connect to a shard that was killed
		p.eventually("requests to workspace "+workspaces.Items[i].Name, func(context.Context) error {
			return p.checkStatus(workspaces.Items[i].Spec.Cluster)
		})
	}
}

// clusters returns the logical clusters of workspaces below the parent, by name and UID of the workspace.
func (p *placements) clusters(ctx context.Context) (map[string][]string, error) {
	found := map[string][]string{}
	for shard, direct := range p.shards {
		var clusters corev1alpha1.LogicalClusterList
		if err := direct.List(logicalcluster.With(ctx, logicalcluster.Wildcard), &clusters); err != nil {
			return nil, fmt.Errorf("listing the logical clusters on %s: %w", shard, err)
		}
		for i := range clusters.Items {
			cluster := &clusters.Items[i]
			if owner := cluster.Spec.Owner; owner != nil && owner.Cluster == p.parent {
				key := owner.Name + " " + string(owner.UID)
				found[key] = append(found[key], fmt.Sprintf("%s on %s, %s", logicalcluster.Of(cluster), shard, cluster.Status.Phase))
			}
		}
	}
	return found, nil
}

// waitForEmptyCache waits until the cache has no LogicalClusterRequest or LogicalClusterReport of these workspaces.
func (p *placements) waitForEmptyCache() {
	p.Helper()
	config := p.Masters(p.T, sharded.CacheServer)
	cache, err := rest.HTTPClientFor(config)
	if err != nil {
		p.Fatal(err)
	}
	defer cache.CloseIdleConnections()
	for _, resource := range []string{"logicalclusterrequests", "logicalclusterreports"} {
		url := config.Host + "/services/cache/shards/*/clusters/*/apis/sharding.kcp.io/v1alpha1/" + resource
		p.eventually("the cache has no "+resource, func(context.Context) error {
			response, err := cache.Get(url)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			var published struct {
				Items []struct {
					Spec struct {
						Owner corev1alpha1.LogicalClusterOwner `json:"owner"`
					} `json:"spec"`
				} `json:"items"`
			}
			if err := json.NewDecoder(response.Body).Decode(&published); err != nil || response.StatusCode != http.StatusOK {
				return fmt.Errorf("%s returns %s: %w", url, response.Status, err)
			}
			for _, item := range published.Items {
				if item.Spec.Owner.Cluster == p.parent {
					return fmt.Errorf("one of workspace %s exists", item.Spec.Owner.Name)
				}
			}
			return nil
		})
	}
}

// waitUntilDeleted waits until the workspaces and all their content are deleted.
func (p *placements) waitUntilDeleted() {
	p.Helper()
	p.eventually("all workspaces are deleted", func(ctx context.Context) error {
		var workspaces tenancyv1alpha1.WorkspaceList
		if err := p.admin.List(shardtesting.In(ctx, p.parent), &workspaces); err != nil {
			return err
		}
		if len(workspaces.Items) > 0 {
			return fmt.Errorf("%d remain, %s with %+v", len(workspaces.Items), workspaces.Items[0].Name, workspaces.Items[0].Status.Conditions)
		}
		return nil
	})
	p.eventually("all logical clusters are deleted", func(ctx context.Context) error {
		found, err := p.clusters(ctx)
		if err == nil && len(found) > 0 {
			return fmt.Errorf("some remain: %q", found)
		}
		return err
	})
	p.waitForEmptyCache()
	for shard, direct := range p.shards {
		p.eventually("no orphans on "+shard, func(ctx context.Context) error { return checkOrphans(ctx, direct) })
	}
}

// checkOrphans returns an error if a shard stores objects in a logical cluster that does not exist.
func checkOrphans(ctx context.Context, shard client.Client) error {
	wildcardContext := logicalcluster.With(ctx, logicalcluster.Wildcard)
	lists := []client.ObjectList{&corev1.NamespaceList{}, &corev1.ConfigMapList{}, &corev1.ServiceAccountList{}, &rbacv1.ClusterRoleBindingList{}}
	for _, list := range lists {
		if err := shard.List(wildcardContext, list); err != nil {
			return err
		}
	}
	var clusters corev1alpha1.LogicalClusterList
	if err := shard.List(wildcardContext, &clusters); err != nil {
		return err
	}
	exists := map[logicalcluster.Name]bool{}
	for i := range clusters.Items {
		exists[logicalcluster.Of(&clusters.Items[i])] = true
	}
	var errs []error
	for _, list := range lists {
		errs = append(errs, meta.EachListItem(list, func(item runtime.Object) error {
			object, err := meta.Accessor(item)
			if err != nil {
				return err
			}
			if of := logicalcluster.Of(object); !of.IsSystem() && !exists[of] {
				return fmt.Errorf("%T %s remains in %s", item, object.GetName(), of)
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}
