package process

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/programs"
)

// leadingMessage is the log message of a replica that starts the controllers, stoppedMessage of one that stopped them.
const (
	leadingMessage = "Leading: controllers start"
	stoppedMessage = "Controllers stopped"
)

// takeoverTimeout is how soon a replica must lead after the leader released the lease: a few retry periods of 2 s.
const takeoverTimeout = 15 * time.Second

// etcdServer is a separate etcd, which serves TLS and requires client certificates.
type etcdServer struct {
	*programs.Process
	url string
	// directory and args are for the restart.
	directory string
	args      []string
	// flags are those of a shard that connects to it.
	flags []string
}

func startEtcd(t *testing.T) *etcdServer {
	t.Helper()
	ca := shardtesting.NewCA(t, "etcd")
	cert, key := ca.Issue(t, "etcd")
	clientCert, clientKey := ca.Issue(t, "kcp")
	s := &etcdServer{url: "https://" + programs.FreeAddress(t), directory: t.TempDir()}
	peer := "http://" + programs.FreeAddress(t)
	s.flags = []string{"--etcd-servers=" + s.url, "--etcd-cafile=" + ca.CertFile, "--etcd-certfile=" + clientCert, "--etcd-keyfile=" + clientKey}
	s.args = []string{
		"--data-dir=data", "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + s.url, "--advertise-client-urls=" + s.url,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
		"--cert-file=" + cert, "--key-file=" + key, "--trusted-ca-file=" + ca.CertFile, "--client-cert-auth",
	}
	s.Process = launch(t, s.directory, "etcd", s.args...)
	return s
}

// TestReplicas runs two replicas of one shard on one etcd.
func TestReplicas(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	// etcd refuses a client without a certificate, which the client observes as a missing response. The shard fails
	// only after the timeout of its etcd client, so it runs concurrently with the rest.
	unauthenticated := launchShard(t, newRootDirectory(t), "--etcd-servers="+etcd.url, "--etcd-cafile="+strings.TrimPrefix(etcd.flags[1], "--etcd-cafile="))

	roots := []string{newRootDirectory(t), newRootDirectory(t)}
	flags := append([]string{
		// The address of both, which this test does not use.
		"--enable-leader-election", "--shard-base-url=https://localhost:6443",
		"--service-account-private-key-file=" + filepath.Join(roots[0], "sa.key"),
		"--usage-flush-interval=1s",
	}, etcd.flags...)
	a, b := launchShard(t, roots[0], flags...), launchShard(t, roots[1], flags...) // concurrently, on an empty etcd
	a.waitReady(t)
	b.waitReady(t)

	leader, follower := waitForLeader(t, a, b)
	cluster := newWorkspace(t, follower, "ours") // made Ready by the controllers of the other replica
	t.Run("writes through one replica are read through the other", func(t *testing.T) { testReadsAcrossReplicas(t, a, b, cluster) })
	t.Run("a watch at one replica delivers writes at the other", func(t *testing.T) { testWatchAcrossReplicas(t, a, b, cluster) })
	t.Run("replicas accept each other's tokens", func(t *testing.T) { testTokenAcrossReplicas(t, a, b, cluster) })

	meter := newMeter(t, a, b)
	t.Run("requests to both are counted", func(t *testing.T) { meter.send(t, meter.total*2/5, a, b) })
	t.Run("a stopped leader releases its lease", func(t *testing.T) {
		leader.stop(t)
		if !strings.Contains(leader.Output(), stoppedMessage) {
			t.Error("the controllers did not end before the lease was released")
		}
		waitForLeadership(t, follower)
		newWorkspace(t, follower, "after-stop")
	})
	t.Run("a killed leader is replaced after its lease expires", func(t *testing.T) {
		restarted := start(t, leader.directory, flags...)
		if strings.Contains(restarted.Output(), leadingMessage) {
			t.Fatal("a second replica leads while the first holds the lease")
		}
		meter.send(t, meter.total*2/5, restarted, follower)
		meter.expect(t, restarted) // what the leader has counted until it was stopped, too
		meter.sendBeforeKill(t, meter.total/100, follower)
		follower.kill(t)
		shortenLease(t, restarted)
		waitForLeadership(t, restarted)
		newWorkspace(t, restarted, "after-kill")
		if got := getConfigMap(t, restarted, cluster, "from-a"); got != "0" {
			t.Errorf("the config map has value %q", got)
		}
		again := start(t, follower.directory, flags...)
		meter.send(t, meter.total-meter.requests(), restarted, again)
		restarted.stop(t)
		meter.expect(t, again)
		again.stop(t)
	})
	t.Run("etcd that refuses the credentials ends the start", func(t *testing.T) {
		if code := unauthenticated.Exit(t); code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
		if want := "etcd at " + etcd.url + " does not respond"; !strings.Contains(unauthenticated.Output(), want) {
			t.Errorf("the output does not contain %q:\n%s", want, unauthenticated.Tail())
		}
	})
}

// waitForLeader waits until exactly one of the replicas leads, and returns it first.
func waitForLeader(t *testing.T, a, b *shard) (leader, follower *shard) {
	t.Helper()
	shardtesting.Eventually(t, "one replica leads", func(context.Context) error {
		for _, pair := range [][2]*shard{{a, b}, {b, a}} {
			if strings.Contains(pair[0].Output(), leadingMessage) {
				leader, follower = pair[0], pair[1]
				return nil
			}
		}
		return fmt.Errorf("no replica leads")
	})
	newWorkspace(t, leader, "first") // gives the other replica time to start its controllers erroneously
	if strings.Contains(follower.Output(), leadingMessage) {
		t.Fatal("both replicas lead")
	}
	return leader, follower
}

func waitForLeadership(t *testing.T, s *shard) {
	t.Helper()
	began := time.Now()
	shardtesting.Eventually(t, "the other replica leads", func(context.Context) error {
		if !strings.Contains(s.Output(), leadingMessage) {
			return fmt.Errorf("not leading after %s", time.Since(began))
		}
		return nil
	})
	if took := time.Since(began); took > takeoverTimeout {
		t.Errorf("it took %s, want at most %s", took, takeoverTimeout)
	}
}

// shortenLease makes the lease of a killed leader expire now instead of within a minute.
func shortenLease(t *testing.T, s *shard) {
	t.Helper()
	leases := s.kubernetes(t, s.config(t, "system:admin")).CoordinationV1().Leases("kube-system")
	lease, err := leases.Patch(t.Context(), "kcp-controllers", types.MergePatchType, []byte(`{"spec":{"leaseDurationSeconds":1}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		t.Error("the lease has no holder")
	}
}

func testReadsAcrossReplicas(t *testing.T, a, b *shard, cluster string) {
	for i := range 20 {
		name := fmt.Sprintf("turn-%d", i)
		writer, reader := a, b
		if i%2 == 1 {
			writer, reader = b, a
		}
		createConfigMap(t, writer, cluster, name, name)
		if got := getConfigMap(t, reader, cluster, name); got != name {
			t.Fatalf("%s has value %q", name, got)
		}
		var list corev1.ConfigMapList
		if err := reader.client(t, "base").List(shardtesting.In(t.Context(), cluster), &list, client.InNamespace("default")); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != i+2 { // and kube-root-ca.crt
			t.Fatalf("a list after write %d has %d config maps", i+1, len(list.Items))
		}
	}
}

func testWatchAcrossReplicas(t *testing.T, a, b *shard, cluster string) {
	config := clusterConfig(b.config(t, "base"), cluster)
	config.Timeout = 0
	ctx, cancel := context.WithTimeout(t.Context(), programs.ExitTimeout)
	defer cancel()
	watcher, err := b.kubernetes(t, config).CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=from-a"})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	createConfigMap(t, a, cluster, "from-a", "0")
	if event := <-watcher.ResultChan(); event.Object == nil || event.Object.(*corev1.ConfigMap).Name != "from-a" {
		t.Errorf("the first event is %v", event)
	}
}

func testTokenAcrossReplicas(t *testing.T, a, b *shard, cluster string) {
	accounts := a.kubernetes(t, clusterConfig(a.config(t, "base"), cluster)).CoreV1().ServiceAccounts("default")
	request, err := accounts.CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*shard{a, b} {
		config := rest.AnonymousClientConfig(s.config(t, "base"))
		config.BearerToken = request.Status.Token
		review, err := s.kubernetes(t, config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil || review.Status.UserInfo.Username != "system:serviceaccount:default:default" {
			t.Errorf("at %s: %v, %v", config.Host, review, err)
		}
	}
}

// TestEtcdOutage checks that a shard without its etcd is not ready, keeps running, and recovers.
func TestEtcdOutage(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	s := start(t, newRootDirectory(t), etcd.flags...)
	cluster := newWorkspace(t, s, "before")
	anonymous := rest.AnonymousClientConfig(s.config(t, "base"))
	etcd.Signal(t, syscall.SIGKILL)
	etcd.Exit(t)
	shardtesting.Eventually(t, "the shard is not ready", func(context.Context) error {
		if got := status(t, anonymous, "/readyz"); got == http.StatusOK {
			return fmt.Errorf("/readyz returns %d", got)
		}
		return nil
	})
	expectStatus(t, anonymous, "/livez/ping", http.StatusForbidden) // alive: only the aggregated checks are open to all
	launch(t, etcd.directory, "etcd", etcd.args...)
	s.waitReady(t)
	createConfigMap(t, s, cluster, "after", "1")
	newWorkspace(t, s, "after") // the informers of the controllers work again
	s.stop(t)
}
