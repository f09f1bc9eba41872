package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/backup/snapshot"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/internal/reservedkeys"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// longWait is for what takes several starts or moves on a machine with much other work.
const longWait = 3 * time.Minute

// etcdOf is the directory of the etcd that a shard embeds.
func (e *env) etcdOf(shard string) string {
	return filepath.Join(e.Directory(), shard, "etcd-server")
}

// startEtcd starts the etcd of a shard that does not run, until stop is called.
func (e *env) startEtcd(t *testing.T, shard string) (etcd *clientv3.Client, stop func()) {
	t.Helper()
	server, err := embeddedetcd.Start(t.Context(), embeddedetcd.Config{Directory: e.etcdOf(shard), UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	etcd = etcdtest.Connect(t, server)
	return etcd, func() {
		etcd.Close()
		server.Close()
	}
}

// backUp returns a snapshot of the etcd of a shard that does not run.
func (e *env) backUp(t *testing.T, shard string) (file string) {
	t.Helper()
	etcd, stop := e.startEtcd(t, shard)
	defer stop()
	stream, err := etcd.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	file = filepath.Join(t.TempDir(), "snapshot.db")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, stream)
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	return file
}

// restore replaces the etcd of a shard that does not run by a snapshot, as the program etcd restores backups.
func (e *env) restore(t *testing.T, shard, file string) {
	t.Helper()
	const prefix = "/registry"
	state, err := snapshot.Read(file, prefix, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Mark(file, prefix, snapshot.Owner{}, "backup"); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(e.etcdOf(shard)); err != nil {
		t.Fatal(err)
	}
	const peer = "https://localhost:2380"
	target := snapshot.Target{DataDir: e.etcdOf(shard), Name: "embedded", InitialCluster: "embedded=" + peer, InitialClusterToken: "restored", InitialAdvertisePeerURLs: []string{peer}}
	if err := target.Restore(file); err != nil {
		t.Fatal(err)
	}
}

// checkRefused checks that a shard neither reads nor writes a logical cluster. Clients of Kubernetes would repeat the requests.
func (e *env) checkRefused(t *testing.T, shard, cluster string) {
	t.Helper()
	at := shardtesting.At(e.Masters(t, shard), cluster)
	c, err := rest.HTTPClientFor(at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	const object = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "outdated"}}`
	for method, body := range map[string]io.Reader{http.MethodPost: strings.NewReader(object), http.MethodGet: http.NoBody} {
		req, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSuffix(at.Host, "/")+"/api/v1/namespaces/default/configmaps", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		response, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s at shard %s: %s", method, shard, response.Status)
		}
	}
}

// waitMovesKnown waits for a reason of the condition of a shard.
func (e *env) waitMovesKnown(t *testing.T, shard, reason, message string) {
	t.Helper()
	root := e.at(t, "root")
	shardtesting.EventuallyWithin(t, longWait, "reason "+reason, func(ctx context.Context) error {
		object := &corev1alpha1.Shard{}
		if err := root.Get(ctx, client.ObjectKey{Name: shard}, object); err != nil {
			return err
		}
		if got := conditionsv1alpha1.GetMessage(object, corev1alpha1.ShardMovesKnown); conditionsv1alpha1.GetReason(object, corev1alpha1.ShardMovesKnown) != reason || !strings.Contains(got, message) {
			return fmt.Errorf("conditions %+v", object.Status.Conditions)
		}
		return nil
	})
}

// release removes the mark of a restore from the etcd of a shard that does not run.
func (e *env) release(t *testing.T, shard string) {
	t.Helper()
	etcd, stop := e.startEtcd(t, shard)
	defer stop()
	if deleted, err := etcd.Delete(t.Context(), reservedkeys.Restored("/registry")); err != nil || deleted.Deleted != 1 {
		t.Fatalf("removing the mark: %+v, %v", deleted, err)
	}
}

// deleteOutdated asks a shard to delete what it has of a logical cluster that another one has. It waits for an answer with a code and a text: a shard that has
// started answers with the same code, and another text, before it knows the others.
func (e *env) deleteOutdated(t *testing.T, shard, cluster string, code int32, text string) {
	t.Helper()
	config := e.Masters(t, shard)
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	shardtesting.EventuallyWithin(t, longWait, fmt.Sprintf("answer %d with %q", code, text), func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodDelete, config.Host+"/debug/logicalclusters/outdated/"+cluster, http.NoBody)
		if err != nil {
			return err
		}
		response, err := c.Do(req)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		status := metav1.Status{}
		if err := json.NewDecoder(response.Body).Decode(&status); err != nil {
			return err
		}
		switch matches := status.Code == code && strings.Contains(status.Message, text); {
		case !matches && status.Code == http.StatusOK: // there is nothing left to ask for
			t.Fatalf("it was deleted: %s", status.Message)
		case !matches:
			return fmt.Errorf("got %d: %s", status.Code, status.Message)
		}
		return nil
	})
}

// checkNoEndpoint checks that a shard is not known to have consumers of an export.
func (e *env) checkNoEndpoint(t *testing.T, export exported, shard string) {
	t.Helper()
	got, err := e.endpoints(t.Context(), e.everywhere(t), export)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(got, e.viewURL(export, shard)) {
		t.Errorf("endpoints %v", got)
	}
}

// testOutdatedContent deletes what a restored shard has of a workspace and of its child, which have both moved. It refuses that before it is released, and while
// it cannot ask the shard that has the workspace. Then the workspace moves back.
func (e *env) testOutdatedContent(t *testing.T, workspace *tenancyv1alpha1.Workspace, child string, atWorkspace client.Client, later *corev1.ConfigMap, bound exported) {
	cluster := logicalcluster.MustParseName(workspace.Spec.Cluster)
	content := func() int64 {
		t.Helper()
		return e.objectsOn(t, installation.Alpha, []logicalcluster.Name{cluster})[cluster.String()]
	}
	e.deleteOutdated(t, installation.Alpha, cluster.String(), http.StatusConflict, "is not released")
	e.Kill(t, installation.Alpha)
	e.Kill(t, installation.Beta)
	e.release(t, installation.Alpha)
	e.Restart(t, installation.Alpha)
	e.WaitReady(t, installation.Alpha)
	e.deleteOutdated(t, installation.Alpha, cluster.String(), http.StatusServiceUnavailable, `asking shard "beta"`)
	if content() < 2 {
		t.Error("a refused request has deleted content")
	}
	e.Restart(t, installation.Beta)
	e.WaitReady(t, installation.Beta)
	// The child first: the Workspace that this shard has of it never changes.
	for _, one := range []string{child, cluster.String()} {
		e.deleteOutdated(t, installation.Alpha, one, http.StatusOK, `shard "beta" has the logical cluster`)
	}
	if left := content(); left != 0 {
		t.Errorf("%d keys are left", left)
	}
	e.waitMovesKnown(t, installation.Alpha, "", "")
	e.waitEndpoints(t, bound, installation.Beta)
	e.moveTo(t, "back", workspace, atWorkspace, installation.Alpha)
	checkObjects(t, atWorkspace, []*corev1.ConfigMap{later, put(t, atWorkspace, "back")})
}

// testRestoredOrigin restores the origin of a move to a backup of before the move, when nobody but the two shards remembers the move. The origin serves
// nothing until the destination has answered, and afterwards all but what has moved, whose old content is deleted at last. What else has changed on the
// other shards since the backup is listed, and deleted by nobody before the release.
func (e *env) testRestoredOrigin(t *testing.T) {
	moved, atMoved := e.workspace(t, "moved", installation.Alpha)
	stayed, atStayed := e.workspace(t, "stayed", installation.Alpha)
	differences := &restoredDifferences{parent: stayed}
	differences.deleted, _ = e.workspace(t, "restore-deleted", installation.Alpha)
	put(t, atMoved, "before")
	e.child(t, "root:moved", "within", installation.Alpha)
	within := &tenancyv1alpha1.Workspace{}
	if err := atMoved.Get(t.Context(), client.ObjectKey{Name: "within"}, within); err != nil {
		t.Fatal(err)
	}
	provider, _ := e.workspace(t, "restore-provider", installation.Root)
	export := e.export(t, provider.Spec.Cluster, "badges", "Badge")
	e.bind(t, moved.Spec.Cluster, export)
	e.waitEndpoints(t, export, installation.Alpha)
	before := put(t, atStayed, "before")
	e.Kill(t, installation.Alpha)
	backup := e.backUp(t, installation.Alpha)
	e.Restart(t, installation.Alpha)
	e.WaitReady(t, installation.Alpha)
	differences.changeAfterBackup(t, e)
	migration := e.moveTo(t, "moved", moved, atMoved, installation.Beta)
	later := put(t, atMoved, "later")
	e.waitEndpoints(t, export, installation.Beta)
	e.move(t, "within", within.Spec.Cluster, installation.Beta)
	for _, one := range []*migrationv1alpha1.LogicalClusterMigration{migration, e.waitPhase(t, "within", migrationv1alpha1.LogicalClusterMigrationPhaseCompleted)} {
		if err := e.operations.Delete(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		shardtesting.EventuallyWithin(t, longWait, "the end of migration "+one.Name, func(ctx context.Context) error {
			if err := e.operations.Get(ctx, client.ObjectKeyFromObject(one), &migrationv1alpha1.LogicalClusterMigration{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it exists, or %w", err)
			}
			return nil
		})
	}

	e.Kill(t, installation.Alpha)
	e.Kill(t, installation.Beta)
	e.restore(t, installation.Alpha, backup)
	differences.restored = time.Now()
	e.Restart(t, installation.Alpha)
	e.WaitReady(t, installation.Alpha)
	e.checkRefused(t, installation.Alpha, moved.Spec.Cluster)
	e.checkRefused(t, installation.Alpha, stayed.Spec.Cluster)
	e.waitMovesKnown(t, installation.Alpha, corev1alpha1.ReasonOtherShardsNotAsked, `asking shard "beta"`)
	e.checkRefused(t, installation.Alpha, moved.Spec.Cluster)
	e.checkNoEndpoint(t, export, installation.Alpha)

	e.Restart(t, installation.Beta)
	e.WaitReady(t, installation.Beta)
	shardtesting.EventuallyWithin(t, longWait, "what has not moved", func(ctx context.Context) error {
		read := &corev1.ConfigMap{}
		if err := atStayed.Get(ctx, client.ObjectKeyFromObject(before), read); err != nil {
			return err
		}
		read.Data["again"] = "yes"
		return atStayed.Update(ctx, read)
	})
	e.checkRefused(t, installation.Alpha, moved.Spec.Cluster)
	e.waitMovesKnown(t, installation.Alpha, corev1alpha1.ReasonOutdatedLogicalClusters, "for 2 of its logical clusters")
	shardtesting.EventuallyWithin(t, longWait, "what has moved", func(ctx context.Context) error {
		read := &corev1.ConfigMap{}
		if err := atMoved.Get(ctx, client.ObjectKeyFromObject(later), read); err != nil {
			return err
		}
		if read.UID != later.UID {
			t.Fatalf("another object is served: %+v", read)
		}
		read.Data["again"] = "yes"
		return atMoved.Update(ctx, read)
	})
	shardtesting.EventuallyWithin(t, longWait, "the shard of the Workspace", func(ctx context.Context) error {
		read := e.stored(t, "moved")
		if shard := read.Annotations[corev1alpha1.ShardAnnotationKey]; shard != installation.Beta {
			return fmt.Errorf("it is %q", shard)
		}
		return nil
	})
	differences.check(t, e, moved)
	e.testOutdatedContent(t, e.stored(t, "moved"), within.Spec.Cluster, atMoved, later, export)
	differences.checkReleased(t, e)
}
