//go:build e2e

// Package e2e proves the main job on a real cluster, through what a user touches: manifests, the Secret with the
// administrator's kubeconfig, the front proxy, the kubectl plug-ins. Nothing here reaches into our own packages but the
// types of the API.
//
// hack/e2e.sh brings the cluster and the operator and runs this package; `make test-e2e` calls it. The build tag keeps
// it out of `go test ./...`.
package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

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
)

// What hack/e2e.sh hands over.
const (
	envKubeconfig = "E2E_KUBECONFIG" // of a cluster in which the operator runs
	envBinaries   = "E2E_BIN"        // folder with the kubectl plug-ins
	envRoute      = "E2E_ROUTE"      // optional: "forward" goes through port-forwards everywhere
	envNextImage  = "E2E_NEXT_IMAGE" // another image of the servers, repository:tag, that the nodes have
)

// The namespace the installation lives in. It is made and removed here.
const namespace = "kcp-e2e"

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

// TestInstallation walks one installation from its manifests to its end. The steps share it and stand in the order a user
// would come to them; the last one takes it away.
func TestInstallation(t *testing.T) {
	in := newInstallation(t, "development")
	if !t.Run("the manifests become an installation that can be used", in.becomesReady) {
		t.FailNow()
	}
	t.Run("status tells in the words of kstatus how each object does", in.statusIsKstatus)
	if !t.Run("workspaces nest", in.workspacesNest) {
		t.FailNow()
	}
	t.Run("workspaces with equal names in them do not see each other", in.workspacesAreIsolated)
	t.Run("a user gets in with access only, and does what RBAC says there", in.accessIsNeeded)
	t.Run("the kubectl plug-ins work", in.pluginsWork)
	t.Run("applying the manifests again changes nothing", in.applyingAgainChangesNothing)
	t.Run("a killed shard comes back with all data", in.killedShardComesBack)
	t.Run("a deleted workspace leaves no key", in.deletedWorkspaceLeavesNoKey)
	t.Run("a deleted installation leaves no object", in.deletedInstallationLeavesNoObject)
}

// hostConfig is the connection to the cluster underneath.
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

// eventually polls until attempt returns nil. When the time is over it fails with attempt's last error, so that error
// says what was still missing.
func eventually(t *testing.T, limit time.Duration, what string, attempt func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	started := time.Now()
	var shown string
	for {
		err := attempt(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			logNew(t, time.Since(started), what, shown, err.Error())
			shown = err.Error()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s did not happen within %s: %s", what, limit, shown)
		}
	}
}

// logNew logs the lines of now that are not in before, each cut to what fits on a screen.
func logNew(t *testing.T, after time.Duration, what, before, now string) {
	t.Helper()
	had := strings.Split(before, "\n")
	for line := range strings.SplitSeq(now, "\n") {
		if slices.Contains(had, line) {
			continue
		}
		const fits = 180
		if len(line) > fits {
			line = line[:fits] + "..."
		}
		t.Logf("%4.1fs waiting for %s: %s", after.Seconds(), what, line)
	}
}
