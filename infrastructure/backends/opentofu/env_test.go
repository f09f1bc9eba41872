package opentofu_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backends/opentofu"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/jobs"
	"github.com/atoll-dev/atoll/test/kubeapiserver"
	"github.com/atoll-dev/atoll/test/programs"
)

const group = infrastructurev1alpha1.GroupName

// env is a stock kube-apiserver whose Jobs are run with the real runner and the real tofu.
type env struct {
	cluster  *kubeapiserver.Cluster
	c        client.Client
	metadata metadata.Interface
	jobs     *jobs.Executor
	backend  *opentofu.Backend
}

func newEnv(t *testing.T) *env {
	ctrl.SetLogger(logr.Discard())
	bin, root := t.TempDir(), filepath.Join("..", "..", "..")
	for _, build := range []func() error{
		func() error { return programs.Build(t.Context(), root, bin, "./cmd/etcd") },
		func() error {
			return programs.Build(t.Context(), filepath.Join(root, "hack", "devcluster"), bin, "k8s.io/kubernetes/cmd/kube-apiserver")
		},
		func() error { return jobs.Build(t.Context(), root, bin) },
	} {
		if err := build(); err != nil {
			t.Fatal(err)
		}
	}
	e := &env{cluster: kubeapiserver.Start(t, bin)}
	e.cluster.WaitReady(t)
	e.cluster.FinalizeNamespaces(t)
	var err error
	if e.c, err = runtimecluster.NewClient(e.cluster.Config); err != nil {
		t.Fatal(err)
	}
	if e.metadata, err = metadata.NewForConfig(e.cluster.Config); err != nil {
		t.Fatal(err)
	}
	e.jobs = jobs.Start(t, e.cluster.Config, bin)
	e.backend = e.newBackend()
	return e
}

// newBackend returns a backend without any state, as in a process that has just started.
func (e *env) newBackend(changes ...func(*opentofu.Config)) *opentofu.Backend {
	config := opentofu.Config{
		Config: runtimecluster.Config{Group: group, Runtime: e.c, Metadata: e.metadata, Log: logr.Discard()},
		Image:  "registry.example.org/runner:1", Namespace: "default", Unrestricted: true, Retry: 10 * time.Millisecond, LeaseDuration: 2 * time.Second,
	}
	for _, change := range changes {
		change(&config)
	}
	b := opentofu.New(config)
	b.Cluster.SetProvider("provider.export.example.org")
	return b
}

// order is an instance that a tenant has ordered.
type order struct {
	*env
	instance.Instance
}

// order returns an instance that does not exist yet.
func (e *env) order(tenant, name string, config map[string]any, spec map[string]any) *order {
	text, err := json.Marshal(config)
	if err != nil {
		panic(err) // constant
	}
	cluster, err := logicalcluster.ParseName(tenant)
	if err != nil {
		panic(err) // constant
	}
	return &order{e, instance.Instance{
		Cluster: cluster,
		Template: &infrastructurev1alpha1.Template{ObjectMeta: metav1.ObjectMeta{Name: "database"},
			Spec: infrastructurev1alpha1.TemplateSpec{Version: "1.0.0", Backend: opentofu.Name, BackendConfig: &runtime.RawExtension{Raw: text}}},
		Object: &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name, "uid": tenant + "-" + name}, "spec": spec}},
	}}
}

func (o *order) namespace() string { return o.Cluster.String() }

// apply does what the platform does with an instance, once.
func (o *order) apply(t *testing.T) instance.State {
	t.Helper()
	state, err := o.backend.Apply(t.Context(), o.Instance)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// reach applies an instance until its state fulfils a condition.
func (o *order) reach(t *testing.T, what string, wanted func(instance.State) bool) instance.State {
	t.Helper()
	var state instance.State
	shardtesting.Eventually(t, what, func(context.Context) error {
		if state = o.apply(t); !wanted(state) {
			return fmt.Errorf("the state is %+v", state)
		}
		return nil
	})
	return state
}

func (o *order) reachReady(t *testing.T) instance.State {
	t.Helper()
	return o.reach(t, "the instance to be ready", func(s instance.State) bool { return s.Phase == infrastructurev1alpha1.PhaseReady })
}

// remove deletes an instance until it is gone.
func (o *order) remove(t *testing.T) {
	t.Helper()
	shardtesting.Eventually(t, "the instance to be gone", func(ctx context.Context) error {
		gone, err := o.backend.Delete(ctx, o.Instance)
		if err == nil && !gone {
			err = fmt.Errorf("it is there; runs: %+v", o.jobs.Runs(o.namespace()))
		}
		return err
	})
}

// secret returns a Secret of the instance, which is the only one in its namespace.
func (o *order) secret(t *testing.T, suffix string) *corev1.Secret {
	t.Helper()
	var list corev1.SecretList
	if err := o.c.List(t.Context(), &list, client.InNamespace(o.namespace()), client.MatchingLabels{group + "/instance": o.Object.GetName()}); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if name := list.Items[i].Name; len(name) > len(suffix) && name[len(name)-len(suffix):] == suffix {
			return &list.Items[i]
		}
	}
	return nil
}

// operations returns the operations that ran in the namespace, in order. It fails if runs overlap.
func (o *order) operations(t *testing.T) []string {
	t.Helper()
	var operations []string
	var ended time.Time
	for _, run := range o.jobs.Runs(o.namespace()) {
		if run.Started.Before(ended) {
			t.Errorf("run %s started before the one before it had ended", run.Name)
		}
		ended = run.Ended
		operations = append(operations, run.Args[0])
	}
	return operations
}

// left returns the names of the remaining objects in a namespace, except events.
func (e *env) left(t *testing.T, namespace string) []string {
	t.Helper()
	var left []string
	for _, kind := range []string{"Secret", "ConfigMap", "ServiceAccount", "Pod", "Job/batch", "Lease/coordination.k8s.io", "Role/rbac.authorization.k8s.io", "RoleBinding/rbac.authorization.k8s.io"} {
		list := &metav1.PartialObjectMetadataList{}
		gvk := parseKind(kind)
		list.SetGroupVersionKind(gvk)
		if err := e.c.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			left = append(left, kind+" "+list.Items[i].Name+" "+list.Items[i].Labels[group+"/instance"])
		}
	}
	return left
}

// waitNothing waits until a namespace has no objects left: the garbage collector deletes pods later.
func (e *env) waitNothing(t *testing.T, namespace string) {
	t.Helper()
	shardtesting.Eventually(t, "nothing to be left", func(context.Context) error {
		if left := e.left(t, namespace); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}
