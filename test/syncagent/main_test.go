// Package syncagent has the acceptance tests of the sync agent: three shards, a stock kube-apiserver as service cluster, and agents in
// this process or as the binary. One installation and one service cluster serve all tests; each test has its own API group, provider,
// agent and consumers. Tests that stop a server run first and alone, all others are parallel.
package syncagent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/kubeapiserver"
	"github.com/atoll-dev/atoll/test/programs"
)

func TestMain(m *testing.M) {
	code := m.Run()
	os.Exit(max(code, shared.stop()))
}

// shared is what all tests share. It is started by the first one, and stops after the last.
var shared = &fixture{}

// fixture implements testing.TB for what outlives a test.
type fixture struct {
	testing.TB // nil: methods that are not below are not called

	once     sync.Once
	failure  string
	cleanups []func()

	directory    string
	installation *installation.Installation
	service      *kubeapiserver.Cluster
}

// start starts the servers once.
func (f *fixture) start(t *testing.T) {
	t.Helper()
	f.once.Do(func() {
		ended := make(chan struct{})
		go func() { // Fatal ends the goroutine
			defer close(ended)
			f.run()
		}()
		<-ended
	})
	if f.failure != "" {
		t.Fatal(f.failure)
	}
}

func (f *fixture) run() {
	f.failure = "the servers did not start"
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	var err error
	if f.directory, err = os.MkdirTemp("", "syncagent-"); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = os.RemoveAll(f.directory) })
	bin := filepath.Join(f.directory, "bin")
	root := filepath.Join("..", "..")
	if err := installation.Build(context.Background(), root, bin); err != nil {
		f.Fatal(err)
	}
	if err := programs.Build(context.Background(), root, bin, "./cmd/etcd", "./cmd/sync-agent"); err != nil {
		f.Fatal(err)
	}
	if err := programs.Build(context.Background(), filepath.Join(root, "hack", "devcluster"), bin, "k8s.io/kubernetes/cmd/kube-apiserver"); err != nil {
		f.Fatal(err)
	}
	f.service = kubeapiserver.Start(f, bin)
	f.installation = installation.Start(f, bin)
	f.service.WaitReady(f)
	f.service.FinalizeNamespaces(f)
	f.failure = ""
}

// stop stops the servers and returns an exit code.
func (f *fixture) stop() int {
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		f.cleanups[i]()
	}
	if f.failure != "" {
		return 1
	}
	return 0
}

func (f *fixture) Helper()          {}
func (f *fixture) Failed() bool     { return f.failure != "" }
func (f *fixture) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }
func (f *fixture) Log(args ...any)  { fmt.Fprintln(os.Stderr, args...) }

func (f *fixture) Logf(format string, args ...any) { f.Log(fmt.Sprintf(format, args...)) }

// Context returns a context that is never canceled: servers end by their own cleanup.
func (f *fixture) Context() context.Context { return context.Background() }

func (f *fixture) TempDir() string {
	directory, err := os.MkdirTemp(f.directory, "")
	if err != nil {
		f.Fatal(err)
	}
	return directory
}

func (f *fixture) Error(args ...any) {
	f.Log(args...)
	f.failure = fmt.Sprintln(args...)
}

func (f *fixture) Errorf(format string, args ...any) { f.Error(fmt.Sprintf(format, args...)) }

func (f *fixture) Fatal(args ...any) {
	f.Error(args...)
	runtime.Goexit()
}

func (f *fixture) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }
