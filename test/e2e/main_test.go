//go:build e2e

// Package e2e tests the main function on a real cluster, through the interfaces of a user: manifests, the Secret with
// the administrator's kubeconfig, the front proxy, the kubectl plug-ins. Of this module it imports only the
// API types and helpers of tests.
//
// hack/e2e.sh creates the cluster and the operator and runs this package; `make test-e2e` calls it. The build tag
// excludes it from `go test ./...`.
package e2e

import (
	"fmt"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/go-logr/logr"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/test/hostcluster"
)

// Environment variables that hack/e2e.sh sets.
const (
	envKubeconfig = "E2E_KUBECONFIG" // of a cluster in which the operator runs
	envBinaries   = "E2E_BIN"        // directory with the kubectl plug-ins
	envRoute      = "E2E_ROUTE"      // optional: "forward" uses port-forwards for all connections
	envNextImage  = "E2E_NEXT_IMAGE" // another image of the servers, repository:tag, that is present on the nodes
)

// envTofu is set if the nodes have the image of the component config/infrastructure-provider/opentofu.
const envTofu = "E2E_TOFU"

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, operatorv1alpha1.AddToScheme, corev1alpha1.AddToScheme, tenancyv1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}()

func TestMain(m *testing.M) {
	for _, name := range []string{envKubeconfig, envBinaries} {
		if os.Getenv(name) == "" {
			fmt.Fprintf(os.Stderr, "%s is not set: these tests need a cluster with the operator in it. Run them by hack/e2e.sh, which brings one.\n", name)
			os.Exit(1)
		}
	}
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestInstallation covers one installation from its manifests to its deletion. The steps share it and run in the order
// of a user's tasks; the last one deletes it.
func TestInstallation(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, "kcp-e2e", "development")
	if !t.Run("install", in.testInstall) {
		t.FailNow()
	}
	t.Run("status conditions follow kstatus", in.testStatus)
	if !t.Run("workspaces can be nested", in.testWorkspaceCreation) {
		t.FailNow()
	}
	t.Run("workspaces are isolated", in.testWorkspaceIsolation)
	t.Run("access and RBAC", in.testAccess)
	t.Run("kubectl plug-ins", in.testPlugins)
	t.Run("reapplied manifests change no object", in.testReapply)
	t.Run("a killed shard recovers with all data", in.testShardKill)
	t.Run("workspace deletion removes all keys", in.testWorkspaceDeletion)
	t.Run("installation deletion removes all objects", in.testInstallationDeletion)
}

// hostConfig is the client configuration of the host cluster.
func hostConfig(t *testing.T) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(envKubeconfig))
	if err != nil {
		t.Fatalf("%s: %v", envKubeconfig, err)
	}
	config.QPS, config.Burst = 100, 200
	return config
}

func newClient(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("client for %s: %v", config.Host, err)
	}
	return c
}

var eventually = hostcluster.Eventually
