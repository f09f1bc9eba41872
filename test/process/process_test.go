package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/programs"
)

// launch starts a program from bin.
func launch(t *testing.T, directory, program string, args ...string) *programs.Process {
	t.Helper()
	return programs.Start(t, directory, filepath.Join(bin, program), args...)
}

// shard is a running `kcp start`.
type shard struct {
	*programs.Process
	directory string
}

// loopbackFlags are the flags that bind a shard to free ports of the loopback interface.
var loopbackFlags = []string{
	"start", "--bind-address=127.0.0.1", "--secure-port=0", "--experimental-bind-free-port",
	"--embedded-etcd-client-port=0", "--embedded-etcd-peer-port=0", "--embedded-etcd-wal-size-bytes=1000000",
}

// newRootDirectory returns a new root directory with a key for service accounts: a shard would generate one of 4096
// bits, which takes seconds.
func newRootDirectory(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "kcp")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	programs.SigningKey(t, filepath.Join(root, "sa.key"))
	return root
}

// start runs a shard in a root directory and waits until it is ready.
func start(t *testing.T, root string, flags ...string) *shard {
	t.Helper()
	s := launchShard(t, root, flags...)
	s.waitReady(t)
	return s
}

func launchShard(t *testing.T, root string, flags ...string) *shard {
	t.Helper()
	args := append(append([]string{}, loopbackFlags...), "--root-directory="+root)
	return &shard{Process: launch(t, filepath.Dir(root), "kcp", append(args, flags...)...), directory: root}
}

func (s *shard) waitReady(t *testing.T) {
	t.Helper()
	shardtesting.Eventually(t, "the shard becomes ready", func(ctx context.Context) error {
		select {
		case <-s.Exited():
			t.Fatalf("the shard ended before it was ready:\n%s", s.Tail())
		default:
		}
		config, err := s.loadConfig("shard-base") // may be the file of an earlier run at first
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func (s *shard) loadConfig(contextName string) (*rest.Config, error) {
	raw, err := os.ReadFile(filepath.Join(s.directory, "admin.kubeconfig"))
	if err != nil {
		return nil, err
	}
	kubeconfig, err := clientcmd.Load(raw)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*kubeconfig, contextName, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Timeout = -1, 10*time.Second
	return config, nil
}

// config returns the client configuration of a context of admin.kubeconfig.
func (s *shard) config(t *testing.T, contextName string) *rest.Config {
	t.Helper()
	config, err := s.loadConfig(contextName)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// client returns a client whose requests go to the logical cluster of their context (shardtesting.In).
func (s *shard) client(t *testing.T, contextName string) client.Client {
	t.Helper()
	c, err := loopback.NewClient(s.config(t, contextName))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *shard) kubernetes(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clientset
}

// stop terminates the shard as an init system does, and fails the test unless it exits cleanly.
func (s *shard) stop(t *testing.T) {
	t.Helper()
	s.Signal(t, syscall.SIGTERM)
	if code := s.Exit(t); code != 0 {
		t.Errorf("after SIGTERM: exit code %d\n%s", code, s.Tail())
	}
}

// kill ends the shard as a power failure does.
func (s *shard) kill(t *testing.T) {
	t.Helper()
	s.Signal(t, syscall.SIGKILL)
	s.Exit(t)
}

func status(t *testing.T, config *rest.Config, path string) int {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := httpClient.Get(config.Host + path)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func expectStatus(t *testing.T, config *rest.Config, path string, want int) {
	t.Helper()
	if got := status(t, config, path); got != want {
		t.Errorf("GET %s: got %d (%s), want %d", path, got, http.StatusText(got), want)
	}
}

var errDifferent = errors.New("different")

func diffError(what string, got, want any) error {
	return fmt.Errorf("%s is %v, want %v: %w", what, got, want, errDifferent)
}
