// Package syncagent contains the acceptance tests of the sync agent: three shards, a stock kube-apiserver as service cluster, and agents
// in this process or as the binary. One installation and one service cluster serve all tests; each test has its own API group, provider,
// agent and consumers. Tests that stop a server run first and alone, all others are parallel.
package syncagent

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/atoll-dev/atoll/test/fixture"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/kubeapiserver"
	"github.com/atoll-dev/atoll/test/programs"
)

func TestMain(m *testing.M) {
	shared.Fixture = fixture.New("syncagent", shared.run)
	code := m.Run()
	os.Exit(max(code, shared.Stop()))
}

// shared contains the servers of all tests. The first test starts them, and they stop after the last.
var shared = &servers{}

type servers struct {
	*fixture.Fixture
	installation *installation.Installation
	service      *kubeapiserver.Cluster
}

func (s *servers) run() {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	bin := filepath.Join(s.Directory(), "bin")
	root := filepath.Join("..", "..")
	if err := installation.Build(context.Background(), root, bin, "./cmd/etcd", "./cmd/sync-agent"); err != nil {
		s.Fatal(err)
	}
	if err := programs.Build(context.Background(), filepath.Join(root, "hack", "devcluster"), bin, "k8s.io/kubernetes/cmd/kube-apiserver"); err != nil {
		s.Fatal(err)
	}
	s.service = kubeapiserver.Start(s, bin)
	s.installation = installation.Start(s, bin)
	s.service.WaitReady(s)
	s.service.FinalizeNamespaces(s)
}
