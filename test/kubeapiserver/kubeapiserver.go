// Package kubeapiserver runs stock kube-apiserver for tests that need a cluster in addition to kcp.
package kubeapiserver

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

// Cluster is a stock kube-apiserver with its etcd, without controllers: no garbage collector runs, and the deletion of a namespace does
// not delete its objects.
type Cluster struct {
	// Config is the configuration of an administrator.
	Config    *rest.Config
	ca        *shardtesting.CA
	directory string
	program   string
	args      []string
	process   *programs.Process
}

// Start starts etcd and kube-apiserver from a directory of programs. WaitReady waits until they are ready.
func Start(t testing.TB, bin string) *Cluster {
	t.Helper()
	etcd, peer := "http://"+programs.FreeAddress(t), "http://"+programs.FreeAddress(t)
	programs.Start(t, t.TempDir(), filepath.Join(bin, "etcd"), "--data-dir=data", "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer)
	ca := shardtesting.NewCA(t, "kube-apiserver")
	cert, key := ca.Issue(t, "kube-apiserver")
	signing := programs.SigningKey(t, filepath.Join(t.TempDir(), "sa.key"))
	address := programs.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	s := &Cluster{
		ca: ca, directory: t.TempDir(), program: filepath.Join(bin, "kube-apiserver"),
		args: []string{
			"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", "--secure-port=" + port, "--tls-cert-file=" + cert, "--tls-private-key-file=" + key,
			"--client-ca-file=" + ca.CertFile, "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
			"--service-account-issuer=https://kubernetes.example.com", "--service-account-key-file=" + signing, "--service-account-signing-key-file=" + signing,
		},
	}
	s.Config = s.User(t, "https://"+address, "admin", "system:masters")
	s.Start(t)
	return s
}

// User returns the configuration of a user.
func (c *Cluster) User(t testing.TB, host, name string, groups ...string) *rest.Config {
	t.Helper()
	return c.ca.Client(t, &rest.Config{Host: host, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAFile: c.ca.CertFile}}, name, groups...)
}

// Start starts kube-apiserver again after Kill.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	c.process = programs.Start(t, c.directory, c.program, c.args...)
}

// Kill ends the API server immediately. Its etcd continues to run.
func (c *Cluster) Kill(t testing.TB) {
	t.Helper()
	c.process.Signal(t, syscall.SIGKILL)
	c.process.Exit(t)
}

// WaitReady waits until kube-apiserver is ready.
func (c *Cluster) WaitReady(t testing.TB) {
	t.Helper()
	shardtesting.Eventually(t, "kube-apiserver is ready", func(ctx context.Context) error { return CheckReady(ctx, c.Config) })
}

// CheckReady returns an error unless the API server of a configuration reports that it is ready.
func CheckReady(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", nil)
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
}
