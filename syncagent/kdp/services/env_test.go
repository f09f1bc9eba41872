package services_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	kdpcorev1alpha1 "github.com/atoll-dev/atoll/api/kdp/core/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/syncagent/kdp/services"
)

const (
	group      = "certificates.example.corp"
	definition = "../../../config/sync-agent/kdp/core.kdp.k8c.io_services.yaml"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// env is a shard with the workspace of an organisation, in which the controller runs.
type env struct {
	client.Client // of an administrator of the organisation
	shard         *shardtesting.Shard
	scheme        *runtime.Scheme
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{shard: shardtesting.Start(t), scheme: runtime.NewScheme()}
	for _, register := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, eventsv1.AddToScheme, rbacv1.AddToScheme, apiextensionsv1.AddToScheme, apisv1alpha1.AddToScheme, corev1alpha1.AddToScheme, kdpcorev1alpha1.AddToScheme,
	} {
		if err := register(e.scheme); err != nil {
			t.Fatal(err)
		}
	}
	e.shard.NewWorkspace(t, "root", "corp")
	config := shardtesting.At(e.shard.Admin(t), "root:corp")
	var err error
	if e.Client, err = client.New(config, client.Options{Scheme: e.scheme}); err != nil {
		t.Fatal(err)
	}
	e.run(t)
	return e
}

// run installs the definition and starts the command with a kubeconfig, until the test ends.
func (e *env) run(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig, err := clientcmd.LoadFromFile(filepath.Join(e.shard.Directory, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig.CurrentContext = "base"
	kubeconfig.Clusters[kubeconfig.Contexts["base"].Cluster].Server += "/clusters/root:corp"
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	o := services.NewOptions()
	o.Kubeconfig, o.MetricsAddress, o.LeaderElection = file, "0", true
	config, server, err := o.Complete()
	if err != nil {
		t.Fatal(err)
	}
	if err := services.Run(t.Context(), config, server, o); err == nil || !strings.Contains(err.Error(), "apply their definition first") {
		t.Errorf("without the definition: %v", err)
	}

	content, err := os.ReadFile(definition)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(content, crd); err != nil {
		t.Fatal(err)
	}
	if err := e.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "Services are served", func(ctx context.Context) error { return e.List(ctx, &kdpcorev1alpha1.ServiceList{}) })

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- services.Run(ctx, config, server, o) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the controller ended with %v", err)
		}
	})
}

func (e *env) create(t *testing.T, name, group string, changes ...func(*kdpcorev1alpha1.Service)) *kdpcorev1alpha1.Service {
	t.Helper()
	service := &kdpcorev1alpha1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kdpcorev1alpha1.ServiceSpec{APIGroup: group}}
	for _, change := range changes {
		change(service)
	}
	if err := e.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	return service
}

func (e *env) expectReason(t *testing.T, name, want string) *metav1.Condition {
	t.Helper()
	var ready *metav1.Condition
	shardtesting.Eventually(t, "Service "+name+" is "+want, func(ctx context.Context) error {
		service := &kdpcorev1alpha1.Service{}
		if err := e.Get(ctx, client.ObjectKey{Name: name}, service); err != nil {
			return err
		}
		ready = meta.FindStatusCondition(service.Status.Conditions, kdpcorev1alpha1.ConditionReady)
		if ready == nil || ready.Reason != want || ready.ObservedGeneration != service.Generation {
			return fmt.Errorf("its conditions are %+v", service.Status.Conditions)
		}
		return nil
	})
	if (ready.Status == metav1.ConditionTrue) != (want == kdpcorev1alpha1.ReasonOffered) {
		t.Errorf("Ready is %s with reason %s", ready.Status, want)
	}
	return ready
}

func (e *env) export(t *testing.T, name string) *apisv1alpha1.APIExport {
	t.Helper()
	export := &apisv1alpha1.APIExport{}
	if err := e.Get(t.Context(), client.ObjectKey{Name: name}, export); err != nil {
		t.Fatal(err)
	}
	return export
}

// agent returns a client with the kubeconfig in a Secret.
func (e *env) agent(ctx context.Context, namespace, name string) (client.Client, error) {
	secret := &corev1.Secret{}
	if err := e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"])
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: e.scheme})
}

func (e *env) expectGone(t *testing.T, object client.Object) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("%T %s is deleted", object, object.GetName()), func(ctx context.Context) error {
		if err := e.Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is still there (%v)", err)
		}
		return nil
	})
}
