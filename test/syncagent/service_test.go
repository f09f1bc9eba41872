package syncagent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/programs"
)

// serviceCluster is a stock kube-apiserver with its etcd, without controllers: nothing is collected as garbage, and what is in a namespace
// is not deleted with it.
type serviceCluster struct {
	config    *rest.Config
	ca        *shardtesting.CA
	directory string
	program   string
	args      []string
	process   *programs.Process
}

func newServiceCluster(t testing.TB, bin string) *serviceCluster {
	t.Helper()
	etcd, peer := "http://"+programs.FreeAddress(t), "http://"+programs.FreeAddress(t)
	programs.Start(t, t.TempDir(), filepath.Join(bin, "etcd"), "--data-dir=data", "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer)
	ca := shardtesting.NewCA(t, "service")
	cert, key := ca.Issue(t, "kube-apiserver")
	signing := programs.SigningKey(t, filepath.Join(t.TempDir(), "sa.key"))
	address := programs.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	s := &serviceCluster{
		ca: ca, directory: t.TempDir(), program: filepath.Join(bin, "kube-apiserver"),
		args: []string{
			"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", "--secure-port=" + port, "--tls-cert-file=" + cert, "--tls-private-key-file=" + key,
			"--client-ca-file=" + ca.CertFile, "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
			"--service-account-issuer=https://service.example.com", "--service-account-key-file=" + signing, "--service-account-signing-key-file=" + signing,
		},
	}
	s.config = s.user(t, "https://"+address, "admin", "system:masters")
	s.start(t)
	return s
}

// user returns the configuration of a user.
func (s *serviceCluster) user(t testing.TB, host, name string, groups ...string) *rest.Config {
	t.Helper()
	return s.ca.Client(t, &rest.Config{Host: host, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAFile: s.ca.CertFile}}, name, groups...)
}

func (s *serviceCluster) start(t testing.TB) {
	t.Helper()
	s.process = programs.Start(t, s.directory, s.program, s.args...)
}

// kill ends the API server at once. Its etcd stays.
func (s *serviceCluster) kill(t testing.TB) {
	t.Helper()
	s.process.Signal(t, syscall.SIGKILL)
	s.process.Exit(t)
}

func (s *serviceCluster) waitReady(t testing.TB) {
	t.Helper()
	client, err := rest.HTTPClientFor(s.config)
	if err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the service cluster is ready", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.config.Host+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz: %s", response.Status)
		}
		return nil
	})
}
