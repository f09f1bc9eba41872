package process

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/atoll-dev/atoll/test/programs"
)

// restoreFlags are those with which docs/operator-etcd.md restores a snapshot, beside names and addresses.
const restoreFlags = "--bump-revision 1000000000 --mark-compacted"

// TestRestore restores a snapshot of etcd as docs/operator-etcd.md describes: earlier writes exist, the shard works, and watches of
// clients that have observed later resource versions end.
func TestRestore(t *testing.T) {
	t.Parallel()
	documentation, err := os.ReadFile("../../docs/operator-etcd.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(documentation), "etcdutl snapshot restore snapshot.db "+restoreFlags) {
		t.Errorf("docs/operator-etcd.md restores with other flags than %s", restoreFlags)
	}
	if err := programs.Build(t.Context(), filepath.Join("..", "..", "hack", "tools"), bin, "go.etcd.io/etcd/etcdutl/v3"); err != nil {
		t.Fatal(err)
	}
	etcd := startEtcd(t)
	root := newRootDirectory(t)
	s := start(t, root, etcd.flags...)
	cluster := newWorkspace(t, s, "before")
	createConfigMap(t, s, cluster, "before", "1")
	snapshot := etcd.saveSnapshot(t)
	createConfigMap(t, s, cluster, "later", "1")
	configMaps := s.kubernetes(t, clusterConfig(s.config(t, "base"), cluster)).CoreV1().ConfigMaps("default")
	list, err := configMaps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	etcd.restore(t, snapshot)

	s = start(t, root, etcd.flags...)
	if got := getConfigMap(t, s, cluster, "before"); got != "1" {
		t.Errorf("the config map has value %q", got)
	}
	expectStatus(t, clusterConfig(s.config(t, "base"), "root:before"), "/api/v1/namespaces/default/configmaps/later", http.StatusNotFound)
	newWorkspace(t, s, "after")
	configMaps = s.kubernetes(t, clusterConfig(s.config(t, "base"), cluster)).CoreV1().ConfigMaps("default")
	if err := firstWatchError(t, func() (watch.Interface, error) {
		return configMaps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from before the restore: %v", err)
	}
	created, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if order, err := resourceversion.CompareResourceVersion(created.ResourceVersion, list.ResourceVersion); err != nil || order <= 0 {
		t.Errorf("a write after the restore has resource version %s, one before it %s: %v", created.ResourceVersion, list.ResourceVersion, err)
	}
	s.stop(t)
}

// firstWatchError returns the error with which a watch begins.
func firstWatchError(t *testing.T, open func() (watch.Interface, error)) error {
	t.Helper()
	stream, err := open()
	if err != nil {
		return err
	}
	defer stream.Stop()
	event, ok := <-stream.ResultChan()
	if !ok {
		return errors.New("it ended without an event")
	}
	if event.Type != watch.Error {
		return fmt.Errorf("its first event is %s", event.Type)
	}
	return apierrors.FromObject(event.Object)
}

// saveSnapshot saves a snapshot like `etcdctl snapshot save`, and returns the file.
func (s *etcdServer) saveSnapshot(t *testing.T) string {
	t.Helper()
	client := s.client(t)
	defer client.Close()
	stream, err := client.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "snapshot.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(file, stream); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// restore stops etcd, replaces its data with a snapshot, and starts it again.
func (s *etcdServer) restore(t *testing.T, snapshot string) {
	t.Helper()
	s.Signal(t, syscall.SIGTERM)
	s.Exit(t)
	data := filepath.Join(s.directory, "data")
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"snapshot", "restore", snapshot, "--data-dir", data}, strings.Fields(restoreFlags)...)
	for _, arg := range s.args { // the name of the member is the default one
		if strings.HasPrefix(arg, "--initial-") {
			args = append(args, arg)
		}
	}
	if output, err := exec.CommandContext(t.Context(), filepath.Join(bin, "etcdutl"), args...).CombinedOutput(); err != nil {
		t.Fatalf("etcdutl: %v\n%s", err, output)
	}
	s.Process = launch(t, s.directory, "etcd", s.args...)
}
