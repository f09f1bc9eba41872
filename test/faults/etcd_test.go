package faults

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/programs"
	"github.com/atoll-dev/atoll/test/sharded"
)

// etcdMember is one of the members of a shard's etcd.
type etcdMember struct {
	*programs.Process
	name string
	args []string
}

// memberNames are those of an etcd that tolerates the loss of one.
var memberNames = []string{"member-0", "member-1", "member-2"}

// startEtcd runs an etcd of the named members in a directory, and returns their client URLs.
func startEtcd(t *testing.T, directory string, names ...string) ([]*etcdMember, string) {
	t.Helper()
	if err := programs.Build(t.Context(), "../..", binaries, "./cmd/etcd"); err != nil {
		t.Fatal(err)
	}
	var members []*etcdMember
	var peers, clients []string
	for _, name := range names {
		m := &etcdMember{name: name}
		client, peer := "http://"+programs.FreeAddress(t), "http://"+programs.FreeAddress(t)
		m.args = []string{"--name=" + m.name, "--data-dir=" + m.name, "--unsafe-no-fsync", "--log-level=error",
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer}
		members, clients, peers = append(members, m), append(clients, client), append(peers, m.name+"="+peer)
	}
	for _, m := range members {
		m.args = append(m.args, "--initial-cluster="+strings.Join(peers, ","))
		m.run(t, directory)
	}
	waitForHealth(t, clients) // a busy machine may take longer than a shard waits for its etcd
	return members, strings.Join(clients, ",")
}

// waitForHealth waits until etcd serves writes at each of the URLs.
func waitForHealth(t *testing.T, urls []string) {
	t.Helper()
	for _, url := range urls {
		shardtesting.Eventually(t, "the member at "+url+" is healthy", func(ctx context.Context) error { return checkMember(ctx, url) })
	}
}

// checkMember returns an error unless the member at a URL is healthy.
func checkMember(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

func (m *etcdMember) run(t *testing.T, directory string) {
	m.Process = programs.StartAs(t, m.name, directory, filepath.Join(binaries, "etcd"), m.args...)
}

// TestEtcdMemberKilled checks that the shard works with two of three members. A request in flight at that moment may
// fail; acknowledged writes persist, and other shards are unaffected.
func TestEtcdMemberKilled(t *testing.T) {
	members, urls := startEtcd(t, t.TempDir(), memberNames...)
	s := newEnv(t, sharded.Options{Flags: map[string][]string{alpha: {"--etcd-servers=" + urls}}})
	for _, m := range members {
		before := s.countFailures()
		m.Signal(t, syscall.SIGKILL)
		m.Exit(t)
		s.waitForRecovery(alpha)
		s.expectServing(before, root, beta)
		m.run(t, m.Directory())
		s.waitForRecovery(alpha)
	}
	s.step(t, "all members", func(s *env) { s.testEtcdAway(members, strings.Split(urls, ",")) })
	s.finish()
}

const (
	// etcdAway is so long that a client with gRPC's own backoff pauses for more than maxReconnect.
	etcdAway = 30 * time.Second
	// maxReconnect is the time from when etcd works until the shard writes each resource.
	maxReconnect = 5 * time.Second
)

// testEtcdAway checks that all clients of a shard reconnect to an etcd that was away: storage has one for each resource.
func (e *env) testEtcdAway(members []*etcdMember, urls []string) {
	for _, m := range members {
		m.Signal(e.T, syscall.SIGKILL)
		m.Exit(e.T)
	}
	before := e.countFailures()
	<-time.After(etcdAway) // the fault itself
	e.expectServing(before, root, beta)
	for _, m := range members {
		m.run(e.parentT, m.Directory())
	}
	waitForHealth(e.T, urls)
	healthy := time.Now()
	ctx := shardtesting.In(e.Context(), e.consumers[alpha])
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "after-etcd"}
	var written sync.WaitGroup
	for name, object := range map[string]client.Object{
		"configmaps":      &corev1.ConfigMap{ObjectMeta: meta},
		"secrets":         &corev1.Secret{ObjectMeta: meta},
		"serviceaccounts": &corev1.ServiceAccount{ObjectMeta: meta},
		"roles":           &rbacv1.Role{ObjectMeta: meta},
		"namespaces":      &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: meta.Name}},
		"leases":          &coordinationv1.Lease{ObjectMeta: meta},
	} {
		written.Go(func() {
			attempt, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			last := e.admin.Create(attempt, object)
			for last != nil && !apierrors.IsAlreadyExists(last) && attempt.Err() == nil {
				time.Sleep(writeInterval)
				last = e.admin.Create(attempt, object)
			}
			took := time.Since(healthy)
			e.Logf("%s: the first write %s after etcd was back", name, took.Round(time.Millisecond))
			if took > maxReconnect {
				e.Errorf("%s: the first write %s after etcd was back, want at most %s: %v", name, took, maxReconnect, last)
			}
		})
	}
	written.Wait()
	e.waitForRecovery(alpha)
}
