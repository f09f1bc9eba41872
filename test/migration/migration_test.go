// Package migration tests moves of logical clusters between shards on three shards behind a front proxy, with real processes.
package migration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

const gate = "--feature-gates=LogicalClusterMigration=true,WorkspaceMounts=true"

// bin is the directory of the binaries under test.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	directory, err := os.MkdirTemp("", "migration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	bin = directory
	if err := installation.Build(context.Background(), filepath.Join("..", ".."), bin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// env is an installation with a workspace that contains migrations.
type env struct {
	*installation.Installation
	operations client.Client
}

func start(t testing.TB) *env {
	t.Helper()
	e := &env{Installation: installation.Start(t, bin, gate)}
	e.NewWorkspace(t, "operations", "operator", shardtesting.OnShard(installation.Root))
	e.operations = e.at(t, "root:operations")
	binding := &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "migration.kcp.io"},
		Spec:       apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: "root", Name: "migration.kcp.io"}}},
	}
	if err := e.operations.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the API of migrations", func(ctx context.Context) error {
		return e.operations.List(ctx, &migrationv1alpha1.LogicalClusterMigrationList{})
	})
	return e
}

// at returns a client of the administrator at a path, through the front proxy.
func (e *env) at(t testing.TB, path string) client.Client {
	t.Helper()
	c, err := client.New(e.Admin(t, path), client.Options{Scheme: loopback.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// workspace creates a workspace on a shard, and returns it when it can be used.
func (e *env) workspace(t *testing.T, name, shard string) (*tenancyv1alpha1.Workspace, client.Client) {
	t.Helper()
	e.NewWorkspace(t, name, "tenant", shardtesting.OnShard(shard))
	return e.stored(t, name), e.at(t, "root:"+name)
}

func (e *env) stored(t testing.TB, name string) *tenancyv1alpha1.Workspace {
	t.Helper()
	workspace := &tenancyv1alpha1.Workspace{}
	if err := e.at(t, "root").Get(t.Context(), client.ObjectKey{Name: name}, workspace); err != nil {
		t.Fatal(err)
	}
	return workspace
}

// move creates a migration.
func (e *env) move(t testing.TB, name, cluster, to string) {
	t.Helper()
	if err := e.operations.Create(t.Context(), newMove(name, cluster, to)); err != nil {
		t.Fatal(err)
	}
}

func newMove(name, cluster, to string) *migrationv1alpha1.LogicalClusterMigration {
	return &migrationv1alpha1.LogicalClusterMigration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: cluster, DestinationShard: to},
	}
}

// waitPhase waits for a phase of a migration.
func (e *env) waitPhase(t testing.TB, name string, phase migrationv1alpha1.LogicalClusterMigrationPhaseType) *migrationv1alpha1.LogicalClusterMigration {
	t.Helper()
	migration := &migrationv1alpha1.LogicalClusterMigration{}
	shardtesting.EventuallyWithin(t, longWait, fmt.Sprintf("phase %s of migration %s", phase, name), func(ctx context.Context) error {
		if err := e.operations.Get(ctx, client.ObjectKey{Name: name}, migration); err != nil {
			return err
		}
		if migration.Status.Phase != phase {
			return fmt.Errorf("status %+v", migration.Status)
		}
		return nil
	})
	return migration
}

// moveTo moves a workspace, and checks that it is usable on the other shard at once.
func (e *env) moveTo(t *testing.T, name string, workspace *tenancyv1alpha1.Workspace, c client.Client, to string) *migrationv1alpha1.LogicalClusterMigration {
	t.Helper()
	e.move(t, name, workspace.Spec.Cluster, to)
	migration := e.waitPhase(t, name, migrationv1alpha1.LogicalClusterMigrationPhaseCompleted)
	cluster := &corev1alpha1.LogicalCluster{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, cluster); err != nil {
		t.Fatal(err)
	}
	if err := e.at(t, "root").Get(t.Context(), client.ObjectKeyFromObject(workspace), workspace); err != nil {
		t.Fatal(err)
	}
	for object, shard := range map[string]string{"logical cluster": cluster.Annotations[corev1alpha1.ShardAnnotationKey], "workspace": workspace.Annotations[corev1alpha1.ShardAnnotationKey]} {
		if shard != to {
			t.Errorf("the %s is on %q, want %q", object, shard, to)
		}
	}
	if workspace.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
		t.Errorf("the workspace is in phase %s", workspace.Status.Phase)
	}
	return migration
}

// put creates a config map.
func put(t *testing.T, c client.Client, name string) *corev1.ConfigMap {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}, Data: map[string]string{"name": name}}
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// checkObjects fails unless the config maps are there, with their metadata.
func checkObjects(t *testing.T, c client.Client, all []*corev1.ConfigMap) {
	t.Helper()
	for _, want := range all {
		got := &corev1.ConfigMap{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(want), got); err != nil {
			t.Fatal(err)
		}
		if got.UID != want.UID || !got.CreationTimestamp.Equal(&want.CreationTimestamp) || got.Data["name"] != want.Data["name"] {
			t.Errorf("got %+v, want %+v", got.ObjectMeta, want.ObjectMeta)
		}
	}
}

// deleteWorkspace deletes a workspace, and waits until it is gone.
func (e *env) deleteWorkspace(t *testing.T, workspace *tenancyv1alpha1.Workspace) {
	t.Helper()
	root := e.at(t, "root")
	if err := root.Delete(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the deletion of workspace "+workspace.Name, func(ctx context.Context) error {
		if err := root.Get(ctx, client.ObjectKeyFromObject(workspace), workspace); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it exists (%v): %+v", err, workspace.Status)
		}
		return nil
	})
}

// waitNoKeys waits until no shard has a key of a logical cluster.
func (e *env) waitNoKeys(t *testing.T, name string) {
	t.Helper()
	cluster := logicalcluster.MustParseName(name)
	for _, shard := range e.Shards() {
		shardtesting.Eventually(t, "the end of the keys on "+shard, func(context.Context) error {
			if left := e.objectsOn(t, shard, []logicalcluster.Name{cluster})[cluster.String()]; left != 0 {
				return fmt.Errorf("%d keys are left", left)
			}
			return nil
		})
	}
}

// checkExists asks the root shard, as another shard does before it removes a copy, whether a migration and others exist.
func (e *env) checkExists(t *testing.T, cluster, name string) {
	t.Helper()
	migration := &migrationv1alpha1.LogicalClusterMigration{}
	if err := e.operations.Get(t.Context(), client.ObjectKey{Name: name}, migration); err != nil {
		t.Fatal(err)
	}
	shard, err := e.Layout().Client(e.ServerURL(installation.Root), "system:kcp:shard:"+installation.Beta, "system:kcp:shard")
	if err != nil {
		t.Fatal(err)
	}
	tenant, err := e.Layout().Client(e.ServerURL(installation.Root), "tenant")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		config     *rest.Config
		name, want string
		status     int
	}{
		{shard, name + "/" + string(migration.UID), `{"exists":true}`, http.StatusOK},
		{shard, name + "/another", `{"exists":false}`, http.StatusOK},
		{shard, "another/" + string(migration.UID), `{"exists":false}`, http.StatusOK},
		{tenant, name + "/" + string(migration.UID), "", http.StatusForbidden},
	} {
		transport, err := rest.HTTPClientFor(tc.config)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.Post(tc.config.Host+"/services/migratingworkspaces/clusters/root/exists/"+cluster+"/"+tc.name, "application/json", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != tc.status || tc.want != "" && strings.TrimSpace(string(body)) != tc.want {
			t.Errorf("%s: %s, %s, %v", tc.name, response.Status, body, err)
		}
	}
}

// TestMove checks, among others, what kcp's own tests of migrations do: TestFullMigration (M80, the first subtest), concurrent and returning moves
// (M81, M87, testMany), TestMigrationAPIBindingUnprivileged (M82, the tenant), TestFullMigrationAPIBindings (M83, moveConsumer),
// TestFullMigrationAPIExportVirtualWorkspace and TestFullMigrationAPIExportUpdate (M84, moveProvider),
// TestMigrationControllerRuntimeConfigMapClient (M85, the cache in the first subtest), and TestMigrationAbortOnWorkspaceDeletion (M86, the unknown shard).
func TestMove(t *testing.T) {
	e := start(t)

	t.Run("a workspace moves with all its objects", e.testObjects)

	// Most of a move is a wait until front proxies have learned of it, so workspaces that have nothing to do with each other move at once.
	var moving sync.WaitGroup
	for name, test := range map[string]func(*testing.T){
		"to the shard of its parent, from it, and back again":                e.testJourney,
		"a provider of exports moves":                                        func(t *testing.T) { moveProvider(t, e) },
		"children of a workspace that moves stay usable":                     func(t *testing.T) { testParent(t, e) },
		"children move with their parent":                                    func(t *testing.T) { testChildren(t, e) },
		"a migration to an unknown shard waits, and ends with the workspace": e.testUnknownDestination,
		"of migrations that are created at once, one begins":                 e.testConcurrentMigrations,
		"a workspace with a mount moves":                                     e.testMounts,
		"a home workspace is refused":                                        e.testHome,
	} {
		moving.Go(func() { t.Run(name, test) })
	}
	moving.Wait()

	// These compare times or counts, or close a shard: other moves would disturb them.
	t.Run("a consumer of exports moves", func(t *testing.T) { moveConsumer(t, e) })
	t.Run("reads and writes go on while it moves", e.testLoad)

	t.Run("its content is given to the destination only", func(t *testing.T) {
		workspace, _ := e.workspace(t, "secret", installation.Alpha)
		e.move(t, "secret", workspace.Spec.Cluster, "non-existent")
		e.waitPhase(t, "secret", migrationv1alpha1.LogicalClusterMigrationPhaseMigrating)
		operations := &corev1alpha1.LogicalCluster{}
		if err := e.operations.Get(t.Context(), client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, operations); err != nil {
			t.Fatal(err)
		}
		path := "/services/migratingworkspaces/clusters/" + workspace.Spec.Cluster + "/transfer/" + logicalcluster.Of(operations).String() + "/secret/changes"
		masters := e.Masters(t, installation.Alpha)
		transport, err := rest.HTTPClientFor(masters)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.Post(masters.Host+path, "application/json", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("system:masters get %s", response.Status)
		}
		e.checkExists(t, logicalcluster.Of(operations).String(), "secret")
		migration := &migrationv1alpha1.LogicalClusterMigration{ObjectMeta: metav1.ObjectMeta{Name: "secret"}}
		if err := e.operations.Delete(t.Context(), migration); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "the deletion of the migration", func(ctx context.Context) error {
			if err := e.operations.Get(ctx, client.ObjectKey{Name: "secret"}, migration); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it exists (%v): %+v", err, migration.Status)
			}
			return nil
		})
	})

	t.Run("a workspace that contains the migration is refused", func(t *testing.T) {
		cluster := &corev1alpha1.LogicalCluster{}
		if err := e.operations.Get(t.Context(), client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, cluster); err != nil {
			t.Fatal(err)
		}
		e.move(t, "itself", logicalcluster.Of(cluster).String(), installation.Beta)
		migration := e.waitPhase(t, "itself", migrationv1alpha1.LogicalClusterMigrationPhaseFailed)
		if reason := conditionsv1alpha1.GetReason(migration, migrationv1alpha1.OriginReady); reason != migrationv1alpha1.ReasonLogicalClusterNotMovable {
			t.Errorf("reason %q", reason)
		}
	})

	t.Run("other shards than root store no migrations", func(t *testing.T) {
		workspace, c := e.workspace(t, "elsewhere", installation.Alpha)
		binding := &apisv1alpha2.APIBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "migration.kcp.io"},
			Spec:       apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: "root", Name: "migration.kcp.io"}}},
		}
		if err := c.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "the refusal", func(ctx context.Context) error {
			err := c.Create(ctx, &migrationv1alpha1.LogicalClusterMigration{
				ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"},
				Spec:       migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: workspace.Spec.Cluster, DestinationShard: installation.Beta},
			})
			if !apierrors.IsForbidden(err) {
				return fmt.Errorf("got %v, want 403", err)
			}
			return nil
		})
	})

	t.Run("the rules of placement hold", func(t *testing.T) { testPlacement(t, e) })
	t.Run("a tenant cannot bind the API", func(t *testing.T) {
		e.workspace(t, "tenant", installation.Alpha)
		tenant, err := client.New(e.User(t, "root:tenant", "tenant"), client.Options{Scheme: loopback.Scheme})
		if err != nil {
			t.Fatal(err)
		}
		binding := &apisv1alpha2.APIBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "migration.kcp.io"},
			Spec:       apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: "root", Name: "migration.kcp.io"}}},
		}
		if err := tenant.Create(t.Context(), binding); !apierrors.IsForbidden(err) {
			t.Errorf("got %v, want 403", err)
		}
		put(t, tenant, "own") // though it is the administrator of the workspace
	})

	t.Run("many workspaces move at once, in both directions and back", e.testMany)
	t.Run("all workspaces of a shard move", e.testDrain)
	t.Run("workspaces move from full shards to others", e.testRebalance)
}

// testObjects moves a workspace with its objects, and deletes it.
func (e *env) testObjects(t *testing.T) {
	workspace, c := e.workspace(t, "moving", installation.Alpha)
	var before []*corev1.ConfigMap
	for i := range 5 {
		before = append(before, put(t, c, fmt.Sprint("object-", i)))
	}
	cached := e.startCache(t, "root:moving")
	metadata := newMetadata(t, c)
	checkPhases, checkMetrics := e.watchPhases(t, "moving"), e.measure(t, workspace.Spec.Cluster, installation.Alpha, installation.Beta)
	migration := e.moveTo(t, "moving", workspace, c, installation.Beta)
	checkListed(t, c, before)
	watched := e.watchFromStart(t, "root:moving")
	if migration.Status.OriginShard != installation.Alpha || migration.Status.EntriesCopied == 0 || migration.Status.DumpContinue != "" {
		t.Errorf("status %+v", migration.Status)
	}
	for _, condition := range []conditionsv1alpha1.Type{migrationv1alpha1.OriginReady, migrationv1alpha1.DataCopied, migrationv1alpha1.OriginCleaned, migrationv1alpha1.Completed} {
		if !conditionsv1alpha1.IsTrue(migration, condition) {
			t.Errorf("condition %s is not True: %+v", condition, migration.Status.Conditions)
		}
	}
	later := put(t, c, "later")
	watched.expect(t, later)
	cached.expect(t, later)
	checkObjects(t, c, append(before, later))
	metadata.check(t)
	checkPhases()
	checkMetrics(migration.Status)
	e.deleteWorkspace(t, workspace)
}

// testJourney moves a workspace to the shard of its parent, from it, and back again.
func (e *env) testJourney(t *testing.T) {
	workspace, c := e.workspace(t, "travelling", installation.Alpha)
	tokens := e.newTokens(t, workspace)
	tokens.request(t, installation.Alpha)
	var objects []*corev1.ConfigMap
	var versions []string
	informer := e.startInformer(t, "root:travelling")
	for i, shard := range []string{installation.Root, installation.Beta, installation.Alpha, installation.Beta} {
		objects = append(objects, put(t, c, fmt.Sprint("before-", i)))
		e.moveTo(t, fmt.Sprint("travelling-", i), workspace, c, shard)
		checkObjects(t, c, objects)
		tokens.check(t, shard)
		tokens.request(t, shard)
		versions = append(versions, objects[i].ResourceVersion)
		e.checkVersions(t, "root:travelling", versions, objects[i])
	}
	informer.checkRelisted(t, put(t, c, "after"))
	settled, _ := e.workspace(t, "settled", installation.Beta)
	tokens.checkForeign(t, installation.Alpha, installation.Beta, settled)
	tokens.checkRevoked(t, installation.Beta)
	e.deleteWorkspace(t, workspace)
}

// expectSecondFails creates a migration of a logical cluster that another one moves, in another workspace.
func (e *env) expectSecondFails(t *testing.T, first *migrationv1alpha1.LogicalClusterMigration) {
	t.Helper()
	root := e.at(t, "root")
	second := newMove("second", first.Spec.LogicalCluster, installation.Beta)
	if err := root.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("logical cluster is already migrating with \"%s:%s\"", logicalcluster.Of(first), first.Name)
	shardtesting.Eventually(t, "the failure of a second migration", func(ctx context.Context) error {
		if err := root.Get(ctx, client.ObjectKeyFromObject(second), second); err != nil {
			return err
		}
		if second.Status.Phase != migrationv1alpha1.LogicalClusterMigrationPhaseFailed || !conditionsv1alpha1.IsFalse(second, migrationv1alpha1.OriginReady) ||
			conditionsv1alpha1.GetReason(second, migrationv1alpha1.OriginReady) != migrationv1alpha1.ReasonLogicalClusterAlreadyMigrating ||
			conditionsv1alpha1.GetMessage(second, migrationv1alpha1.OriginReady) != want {
			return fmt.Errorf("status %+v, want the message %q", second.Status, want)
		}
		return nil
	})
}

// testUnknownDestination begins a move to a shard that does not exist. It waits, and ends with the workspace.
func (e *env) testUnknownDestination(t *testing.T) {
	workspace, c := e.workspace(t, "waiting", installation.Alpha)
	e.export(t, workspace.Spec.Cluster, "aborted", "Aborted")
	published := e.publishedBy(t, workspace.Spec.Cluster)
	e.waitPublished(t, published, publishedResources[0], installation.Alpha)
	e.move(t, "waiting", workspace.Spec.Cluster, "non-existent")
	waiting := func(status migrationv1alpha1.LogicalClusterMigrationStatus) bool {
		return status.Phase == migrationv1alpha1.LogicalClusterMigrationPhaseMigrating && status.OriginShard == installation.Alpha &&
			conditionsv1alpha1.IsTrue(&migrationv1alpha1.LogicalClusterMigration{Status: status}, migrationv1alpha1.OriginReady)
	}
	e.waitStatus(t, "waiting", "wait", waiting)
	left := put(t, c, "meanwhile") // a waiting migration refuses no writes
	stays := &migrationv1alpha1.LogicalClusterMigration{}
	if err := e.operations.Get(t.Context(), client.ObjectKey{Name: "waiting"}, stays); err != nil || !waiting(stays.Status) {
		t.Errorf("the migration does not wait: %v, %+v", err, stays.Status)
	}
	e.expectSecondFails(t, stays)
	if err := e.at(t, "root").Delete(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	migration := e.waitPhase(t, "waiting", migrationv1alpha1.LogicalClusterMigrationPhaseFailed)
	for _, condition := range []conditionsv1alpha1.Type{migrationv1alpha1.Aborted, migrationv1alpha1.OriginCleaned} {
		if !conditionsv1alpha1.IsTrue(migration, condition) {
			t.Errorf("condition %s is not True: %+v", condition, migration.Status.Conditions)
		}
	}
	shardtesting.Eventually(t, "the end of the workspace", func(ctx context.Context) error {
		if err := e.at(t, "root").Get(ctx, client.ObjectKeyFromObject(workspace), workspace); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it exists: %v", err)
		}
		if err := e.at(t, workspace.Spec.Cluster).Get(ctx, client.ObjectKeyFromObject(left), left); !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("its object: %v", err)
		}
		return nil
	})
	e.waitNoKeys(t, workspace.Spec.Cluster)
	for _, resource := range publishedResources[:2] {
		e.waitPublished(t, published, resource)
	}
}
