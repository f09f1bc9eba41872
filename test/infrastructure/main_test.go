package infrastructure

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
	"github.com/atoll-dev/atoll/test/jobs"
	"github.com/atoll-dev/atoll/test/kubeapiserver"
	"github.com/atoll-dev/atoll/test/programs"
)

// Tests that stop a server run first and alone, all others are parallel.
func TestMain(m *testing.M) {
	shared.Fixture = fixture.New("infrastructure", shared.run)
	code := m.Run()
	os.Exit(max(code, shared.Stop()))
}

// shared contains the servers of all tests. The first test starts them, and they stop after the last.
var shared = &servers{}

type servers struct {
	*fixture.Fixture
	installation Installation
	runtime      *kubeapiserver.Cluster
	jobs         *jobs.Executor // of the runtime cluster
}

func (s *servers) run() {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	bin := filepath.Join(s.Directory(), "bin")
	root := filepath.Join("..", "..")
	if err := installation.Build(context.Background(), root, bin, "./cmd/etcd"); err != nil {
		s.Fatal(err)
	}
	if err := programs.Build(context.Background(), filepath.Join(root, "hack", "devcluster"), bin, "k8s.io/kubernetes/cmd/kube-apiserver"); err != nil {
		s.Fatal(err)
	}
	if err := jobs.Build(context.Background(), root, bin); err != nil {
		s.Fatal(err)
	}
	s.runtime = kubeapiserver.Start(s, bin)
	s.installation = Installation{installation.Start(s, bin, "--feature-gates="+FeatureGates)}
	s.runtime.WaitReady(s)
	s.runtime.FinalizeNamespaces(s)
	s.jobs = jobs.Start(s, s.runtime.Config, bin)
}
