//go:build gitops

package gitops

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/test/gitops/repository"
	"github.com/atoll-dev/atoll/test/hostcluster"
)

// Environment variables that hack/gitops.sh sets.
const (
	envKubeconfig      = "GITOPS_KUBECONFIG" // of a cluster with cert-manager whose Services this machine reaches
	envPrograms        = "GITOPS_PROGRAMS"   // directory with the tools
	envManifests       = "GITOPS_ARGOCD_MANIFESTS"
	envFluxDefinitions = "GITOPS_FLUX_DEFINITIONS" // directories with the definitions of Flux, as in PATH
	envImage           = "GITOPS_IMAGE"            // of the operator and its servers, repository:tag
	envNextImage       = "GITOPS_NEXT_IMAGE"       // another one that is present on the nodes
	envSteady          = "GITOPS_STEADY"           // how long nothing may change after an installation
	envPictures        = "GITOPS_PICTURES"         // optional: directory for pictures of what the tools show
)

// namespace is the namespace of the installation, which its manifests create.
const namespace = "kcp"

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, operatorv1alpha1.AddToScheme, tenancyv1alpha1.AddToScheme} {
		utilruntime.Must(add(s))
	}
	return s
}()

var eventually = hostcluster.Eventually

func TestMain(m *testing.M) {
	for _, name := range []string{envKubeconfig, envPrograms, envManifests, envFluxDefinitions, envImage, envNextImage, envSteady} {
		if os.Getenv(name) == "" {
			fmt.Fprintf(os.Stderr, "%s is not set: these tests need a cluster and the tools. Run them by hack/gitops.sh, which brings both.\n", name)
			os.Exit(1)
		}
	}
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// environment contains the common parts of all tests.
type environment struct {
	kubeconfig string // file
	config     *rest.Config
	host       client.WithWatch
	repository *repository.Repository
	address    string // of the front proxy: a cluster IP
	steady     time.Duration
}

// newEnvironment publishes config/ in a repository, with no installation yet.
func newEnvironment(t *testing.T) *environment {
	t.Helper()
	kubeconfig, err := filepath.Abs(os.Getenv(envKubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	e := &environment{kubeconfig: kubeconfig, repository: repository.New(t)}
	if e.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		t.Fatalf("%s: %v", envKubeconfig, err)
	}
	e.config.QPS, e.config.Burst = 100, 200
	e.host = newClient(t, e.config)
	if e.steady, err = time.ParseDuration(os.Getenv(envSteady)); err != nil {
		t.Fatalf("%s: %v", envSteady, err)
	}
	kube := &corev1.Service{}
	if err := e.host.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "kubernetes"}, kube); err != nil {
		t.Fatal(err)
	}
	e.address = hostcluster.FreeServiceIP(t, e.host, kube.Spec.ClusterIP)
	e.repository.Write(t, "manifests of the release", repository.Folder(t, "../../config", "config"))
	return e
}

func newClient(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("client for %s: %v", config.Host, err)
	}
	return c
}
