package tenancy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	cacheclient "github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// env has three shards and the cache that root embeds.
type env struct {
	// t is the parent test: shards outlive the subtest that restarts them.
	t       *testing.T
	shards  map[string]*shardtesting.Shard
	clients map[string]client.Client
}

func startEnv(t *testing.T, names ...string) *env {
	t.Helper()
	root := shardtesting.Start(t)
	in := &env{t: t, shards: map[string]*shardtesting.Shard{}, clients: map[string]client.Client{}}
	in.setShard(t, "root", root)
	for _, name := range names {
		in.setShard(t, name, shardtesting.StartShard(t, root, name))
	}
	for _, name := range names {
		in.waitShardReady(t, name)
	}
	return in
}

func (e *env) setShard(t *testing.T, name string, shard *shardtesting.Shard) {
	e.shards[name], e.clients[name] = shard, shard.Client(t, shard.Masters(t))
}

// stop stops a shard, restart starts it again.
func (e *env) stop(t *testing.T, name string) {
	t.Helper()
	if err := e.shards[name].Stop(); err != nil {
		t.Fatal(err)
	}
}

func (e *env) restart(t *testing.T, name string, configure ...func(*options.Options)) {
	t.Helper()
	e.setShard(t, name, shardtesting.StartShardIn(e.t, e.shards[name].Directory, e.shards["root"], name, configure...))
}

// waitShardReady waits until a shard accepts workspaces of root.
func (e *env) waitShardReady(t *testing.T, name string) {
	t.Helper()
	shardtesting.Eventually(t, "shard "+name+" to report", func(ctx context.Context) error {
		shard := &corev1alpha1.Shard{}
		if err := e.clients["root"].Get(shardtesting.In(ctx, "root"), client.ObjectKey{Name: name}, shard); err != nil {
			return err
		}
		if !conditionsv1alpha1.IsTrue(shard, conditionsv1alpha1.Ready) {
			return fmt.Errorf("conditions %+v", shard.Status.Conditions)
		}
		return nil
	})
}

// create creates a workspace on a shard, with its logical cluster on another.
func (e *env) create(t *testing.T, at, parent, name, on string) *tenancyv1alpha1.Workspace {
	t.Helper()
	workspace := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}},
	}
	if on != "" {
		shardtesting.OnShard(on)(workspace)
	}
	if err := e.clients[at].Create(shardtesting.In(t.Context(), parent), workspace); err != nil {
		t.Fatal(err)
	}
	return workspace
}

func (e *env) createReady(t *testing.T, at, parent, name, on string) *tenancyv1alpha1.Workspace {
	t.Helper()
	e.create(t, at, parent, name, on)
	return waitReady(t, e.clients[at], parent, name)
}

func (e *env) delete(t *testing.T, at, parent, name string) {
	t.Helper()
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := e.clients[at].Delete(shardtesting.In(t.Context(), parent), workspace); err != nil {
		t.Fatal(err)
	}
}

func (e *env) waitDeleted(t *testing.T, at, parent, name string) {
	t.Helper()
	shardtesting.Eventually(t, "the deletion of workspace "+name, func(ctx context.Context) error {
		workspace := &tenancyv1alpha1.Workspace{}
		err := e.clients[at].Get(shardtesting.In(ctx, parent), client.ObjectKey{Name: name}, workspace)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it exists (%v): %+v", err, workspace.Status)
	})
}

// assertOn checks that a workspace and its logical cluster are on a shard, and match.
func (e *env) assertOn(t *testing.T, workspace *tenancyv1alpha1.Workspace, shard string) *corev1alpha1.LogicalCluster {
	t.Helper()
	cluster := &corev1alpha1.LogicalCluster{}
	get(t, e.clients[shard], shardtesting.In(t.Context(), workspace.Spec.Cluster), cluster, "", corev1alpha1.LogicalClusterName)
	if workspace.Annotations[corev1alpha1.ShardAnnotationKey] != shard || cluster.Annotations[corev1alpha1.ShardAnnotationKey] != shard {
		t.Errorf("on shard %q and %q, want %q", workspace.Annotations[corev1alpha1.ShardAnnotationKey], cluster.Annotations[corev1alpha1.ShardAnnotationKey], shard)
	}
	if cluster.Spec.Owner.UID != workspace.UID || cluster.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
		t.Errorf("got %+v", cluster)
	}
	return cluster
}

// assertNoKey checks that a shard stores no key of a logical cluster, except in its snapshot of other shards. Its usage is deleted last.
func (e *env) assertNoKey(t *testing.T, shard, cluster string) {
	t.Helper()
	shardtesting.Eventually(t, "no key of "+cluster, func(context.Context) error {
		for _, key := range e.shards[shard].Keys(t, "/"+cluster+"/") {
			if !strings.Contains(key, "/cache/") && !strings.Contains(key, "/~elsewhere/") {
				return fmt.Errorf("shard %s: key %s remains", shard, key)
			}
		}
		return nil
	})
}

// assertNothingPublished checks that no shard publishes requests, reports or counts any more.
func (e *env) assertNothingPublished(t *testing.T) {
	t.Helper()
	cache, err := cacheclient.New(e.shards["root"].Masters(t), "")
	if err != nil {
		t.Fatal(err)
	}
	defer cache.CloseIdleConnections()
	shardtesting.Eventually(t, "an empty cache", func(ctx context.Context) error {
		var found []string
		for _, resource := range []string{"logicalclusterrequests", "logicalclusterreports", "workspacecounts"} {
			objects, _, err := cache.List(ctx, shardingv1alpha1.SchemeGroupVersion.WithResource(resource))
			if err != nil {
				return err
			}
			for _, object := range objects {
				found = append(found, string(object.Raw))
			}
		}
		if len(found) > 0 {
			return fmt.Errorf("the cache has %v", found)
		}
		return nil
	})
}

func TestRemoteWorkspaces(t *testing.T) {
	in := startEnv(t, "alpha", "beta")

	t.Run("workspace is scheduled by the selector", func(t *testing.T) {
		workspace := in.createReady(t, "root", "root", "selected", "alpha")
		cluster := in.assertOn(t, workspace, "alpha")
		if want := "https://" + in.shards["alpha"].Server.Host() + "/clusters/root:selected"; workspace.Spec.URL != want {
			t.Errorf("URL %q, want %q", workspace.Spec.URL, want)
		}
		if path := cluster.Annotations[corev1alpha1.LogicalClusterPathAnnotationKey]; path != "root:selected" {
			t.Errorf("path %q", path)
		}
		in.assertNoKey(t, "root", workspace.Spec.Cluster)
		in.assertNothingPublished(t)
	})

	t.Run("tree over all shards is deleted from its leaves", func(t *testing.T) {
		top := in.createReady(t, "root", "root", "top", "alpha")
		middle := in.createReady(t, "alpha", top.Spec.Cluster, "middle", "beta")
		leaf := in.createReady(t, "beta", middle.Spec.Cluster, "leaf", "root")
		if got := in.assertOn(t, leaf, "root").Annotations[corev1alpha1.LogicalClusterPathAnnotationKey]; got != "root:top:middle:leaf" {
			t.Errorf("path %q", got)
		}
		for shard, workspace := range map[string]*tenancyv1alpha1.Workspace{"alpha": top, "beta": middle, "root": leaf} {
			fill(t, in.clients[shard], shardtesting.In(t.Context(), workspace.Spec.Cluster))
		}
		in.delete(t, "root", "root", "top")
		in.waitDeleted(t, "root", "root", "top")
		for shard, workspace := range map[string]*tenancyv1alpha1.Workspace{"alpha": top, "beta": middle, "root": leaf} {
			in.assertNoKey(t, shard, workspace.Spec.Cluster)
		}
		in.assertNothingPublished(t)
	})

	t.Run("deleted logical cluster makes the workspace unavailable", func(t *testing.T) {
		workspace := in.createReady(t, "root", "root", "bereft", "beta")
		inside := shardtesting.In(t.Context(), workspace.Spec.Cluster)
		if err := in.clients["beta"].Delete(inside, &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "the workspace to be unavailable", func(context.Context) error {
			get(t, in.clients["root"], shardtesting.In(t.Context(), "root"), workspace, "", "bereft")
			if workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseUnavailable || conditionsv1alpha1.GetReason(workspace, corev1alpha1.WorkspaceInitialized) != corev1alpha1.ReasonWorkspaceDisappeared {
				return fmt.Errorf("status %+v", workspace.Status)
			}
			return nil
		})
		shardtesting.Eventually(t, "the logical cluster to be deleted", func(ctx context.Context) error {
			if err := in.clients["beta"].Get(inside, client.ObjectKey{Name: "cluster"}, &corev1alpha1.LogicalCluster{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it exists: %w", err)
			}
			return nil
		})
		in.delete(t, "root", "root", "bereft")
		in.waitDeleted(t, "root", "root", "bereft")
		in.assertNothingPublished(t)
	})

	t.Run("limits of workspaces apply to trees over all shards", func(t *testing.T) { testWorkspaceLimits(t, in) })

	t.Run("workspaces are spread over all shards", func(t *testing.T) {
		const count = 30
		for i := range count {
			in.create(t, "root", "root", fmt.Sprintf("spread-%d", i), "")
		}
		on := map[string]int{}
		for i := range count {
			on[waitReady(t, in.clients["root"], "root", fmt.Sprintf("spread-%d", i)).Annotations[corev1alpha1.ShardAnnotationKey]]++
		}
		for _, shard := range []string{"root", "alpha", "beta"} {
			if on[shard] < count/6 {
				t.Errorf("%d of %d workspaces are on shard %s: %v", on[shard], count, shard, on)
			}
		}
		in.assertNothingPublished(t)
	})

	t.Run("workspace has the region and the address of the shard", func(t *testing.T) {
		workspace := in.createReady(t, "root", "root", "regional", "alpha")
		shard := &corev1alpha1.Shard{}
		root, owned := shardtesting.In(t.Context(), "root"), shardtesting.In(t.Context(), "system:shard")
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			get(t, in.clients["alpha"], owned, shard, "", "alpha")
			shard.Labels[corev1alpha1.RegionLabelKey] = "north"
			return in.clients["alpha"].Update(owned, shard)
		})
		if err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "the region", func(context.Context) error {
			get(t, in.clients["root"], root, workspace, "", "regional")
			if region := workspace.Labels[tenancyv1alpha1.RegionLabelKey]; region != "north" {
				return fmt.Errorf("region %q", region)
			}
			return nil
		})
	})

	t.Run("creation and deletion wait for an unavailable shard, and report it", func(t *testing.T) {
		kept := in.createReady(t, "root", "root", "kept", "alpha")
		in.createReady(t, "root", "root", "leaving", "alpha")
		in.stop(t, "alpha")
		in.create(t, "root", "root", "later", "alpha")
		in.delete(t, "root", "root", "leaving")
		in.waitForReason(t, "later", tenancyv1alpha1.WorkspaceScheduled, tenancyv1alpha1.ReasonWaitingForShard)
		in.waitForReason(t, "leaving", corev1alpha1.WorkspaceContentDeleted, tenancyv1alpha1.ReasonWaitingForShard)
		in.restart(t, "alpha")
		in.assertOn(t, waitReady(t, in.clients["root"], "root", "later"), "alpha")
		in.waitDeleted(t, "root", "root", "leaving")
		in.assertOn(t, kept, "alpha")
		in.assertNothingPublished(t)
	})

	t.Run("full shard gets no new workspaces until it has capacity", func(t *testing.T) {
		in.stop(t, "beta")
		in.restart(t, "beta", func(o *options.Options) { o.Shard.MaxLogicalClusters = 1 })
		in.create(t, "root", "root", "crowded", "beta")
		in.waitForReason(t, "crowded", tenancyv1alpha1.WorkspaceScheduled, tenancyv1alpha1.ReasonUnschedulable)
		for i := range 8 {
			if on := in.createReady(t, "root", "root", fmt.Sprintf("else-%d", i), "").Annotations[corev1alpha1.ShardAnnotationKey]; on == "beta" {
				t.Error("a full shard got a workspace")
			}
		}
		in.stop(t, "beta")
		in.restart(t, "beta")
		in.assertOn(t, waitReady(t, in.clients["root"], "root", "crowded"), "beta")
	})

	t.Run("a shard at the hard limit of its Shard gets no new workspaces until the limit is lifted", func(t *testing.T) {
		in.limit(t, "beta", `"hard":{"workspaces":1}`)
		in.waitForShard(t, "beta", func(shard *corev1alpha1.Shard) bool {
			used := shard.Status.Used["workspaces"]
			return used.Value() > 1 && conditionsv1alpha1.GetMessage(shard, corev1alpha1.ShardResourceLimitsApplied) == "soft/hard: workspaces=-/1"
		})
		in.create(t, "root", "root", "limited", "beta")
		in.waitForReason(t, "limited", tenancyv1alpha1.WorkspaceScheduled, tenancyv1alpha1.ReasonUnschedulable)
		in.limit(t, "beta", `"hard":null`)
		in.assertOn(t, waitReady(t, in.clients["root"], "root", "limited"), "beta")
	})

	t.Run("other shards are preferred to one at its soft limit", func(t *testing.T) {
		in.limit(t, "beta", `"soft":{"workspaces":1}`)
		in.waitForShard(t, "beta", func(shard *corev1alpha1.Shard) bool {
			return conditionsv1alpha1.GetMessage(shard, corev1alpha1.ShardResourceLimitsApplied) == "soft/hard: workspaces=1/-"
		})
		for i := range 4 {
			if on := in.createReady(t, "root", "root", fmt.Sprintf("preferred-%d", i), "").Annotations[corev1alpha1.ShardAnnotationKey]; on == "beta" {
				t.Error("a shard at its soft limit got a workspace")
			}
		}
		in.assertOn(t, in.createReady(t, "root", "root", "over-soft", "beta"), "beta")
		in.limit(t, "beta", `"soft":null`)
	})
}

// limit merges limits into those of a shard.
func (e *env) limit(t *testing.T, shard, limits string) {
	t.Helper()
	object := &corev1alpha1.Shard{}
	object.Name = shard
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"resourceLimits":{`+limits+`}}}`))
	if err := e.clients["root"].Patch(shardtesting.In(t.Context(), "root"), object, patch); err != nil {
		t.Fatal(err)
	}
}

func (e *env) waitForShard(t *testing.T, name string, is func(*corev1alpha1.Shard) bool) {
	t.Helper()
	shardtesting.Eventually(t, "the status of Shard "+name+" follows its limits", func(ctx context.Context) error {
		shard := &corev1alpha1.Shard{}
		get(t, e.clients["root"], shardtesting.In(ctx, "root"), shard, "", name)
		if !is(shard) {
			return fmt.Errorf("status %+v", shard.Status)
		}
		return nil
	})
}

func (e *env) waitForReason(t *testing.T, name string, condition conditionsv1alpha1.Type, reason string) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("reason %s of workspace %s", reason, name), func(ctx context.Context) error {
		workspace := &tenancyv1alpha1.Workspace{}
		get(t, e.clients["root"], shardtesting.In(ctx, "root"), workspace, "", name)
		if conditionsv1alpha1.GetReason(workspace, condition) != reason {
			return fmt.Errorf("status %+v", workspace.Status)
		}
		return nil
	})
}

// TestShardRestartDuringPlacement stops the shard of a workspace, or the one that it is scheduled on, at various
// moments of its creation and of its deletion.
func TestShardRestartDuringPlacement(t *testing.T) {
	in := startEnv(t, "alpha", "beta")
	parent := in.createReady(t, "root", "root", "parent", "alpha")
	for _, moment := range []struct {
		ended string
		delay time.Duration
	}{{"alpha", 0}, {"beta", 40}, {"alpha", 80}, {"beta", 150}} {
		ended, delay := moment.ended, moment.delay*time.Millisecond
		name := fmt.Sprintf("child-%s-%d", ended, moment.delay)
		t.Run(fmt.Sprintf("shard %s stops after %s", ended, delay), func(t *testing.T) {
			in.create(t, "alpha", parent.Spec.Cluster, name, "beta")
			time.Sleep(delay) // the moment is what is tested
			in.stop(t, ended)
			in.restart(t, ended)
			workspace := waitReady(t, in.clients["alpha"], parent.Spec.Cluster, name)
			in.assertOn(t, workspace, "beta")
			in.delete(t, "alpha", parent.Spec.Cluster, name)
			time.Sleep(delay) // as above
			in.stop(t, ended)
			in.restart(t, ended)
			in.waitDeleted(t, "alpha", parent.Spec.Cluster, name)
			in.assertNoKey(t, "beta", workspace.Spec.Cluster)
			in.assertNothingPublished(t)
		})
	}
}
