// Package clients proves that unmodified Kubernetes clients work in a workspace: a controller-runtime manager, Helm and
// kubectl, all through the front proxy. It is a separate module because the servers do not need these dependencies.
package clients

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/atoll-dev/atoll/test/installation"
)

// bin is the directory of the servers.
var bin string

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == kubectlName {
		runKubectl()
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctrl.SetLogger(klog.Background())
	directory, err := os.MkdirTemp("", "clients-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	if err := installation.Build(context.Background(), "../..", directory); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bin = directory
	return m.Run()
}

// TestClients shares one installation. Every client has its own workspace.
func TestClients(t *testing.T) {
	i := installation.Start(t, bin)
	for name, test := range map[string]func(*testing.T, *installation.Installation){
		"a controller-runtime manager": testManager,
		"helm":                         testHelm,
		"kubectl":                      testKubectl,
	} {
		t.Run(name, func(t *testing.T) { test(t, i) })
	}
}
