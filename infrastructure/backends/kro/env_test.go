package kro

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/kubeapiserver"
	"github.com/atoll-dev/atoll/test/programs"
)

const group = infrastructurev1alpha1.GroupName

// env is a runtime cluster without controllers, and the backend.
type env struct {
	cluster *kubeapiserver.Cluster
	c       client.Client
	backend *Backend
}

func newEnv(t *testing.T) *env {
	ctrl.SetLogger(logr.Discard())
	bin := filepath.Join(t.TempDir(), "bin")
	root := filepath.Join("..", "..", "..")
	if err := programs.Build(t.Context(), root, bin, "./cmd/etcd"); err != nil {
		t.Fatal(err)
	}
	if err := programs.Build(t.Context(), filepath.Join(root, "hack", "devcluster"), bin, "k8s.io/kubernetes/cmd/kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	e := &env{cluster: kubeapiserver.Start(t, bin)}
	e.cluster.WaitReady(t)
	var err error
	if e.c, err = runtimecluster.NewClient(e.cluster.Config); err != nil {
		t.Fatal(err)
	}
	e.backend = e.newBackend(t)
	ctx, cancel := context.WithCancel(context.Background())
	var running background.Group
	running.Go(func() { e.backend.Watches.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return e
}

// newBackend returns a backend without any state, as after a restart.
func (e *env) newBackend(t *testing.T) *Backend {
	t.Helper()
	objects, err := metadata.NewForConfig(e.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := discovery.NewDiscoveryClientForConfig(e.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(Config{Config: runtimecluster.Config{Group: group, Export: "export", Runtime: e.c, Metadata: objects, Log: klog.Background()}, Discovery: schemas})
	if err != nil {
		t.Fatal(err)
	}
	b.Cluster.SetProvider("provider.export.example.org")
	return b
}

// newTemplate returns a Template with backendConfig in YAML.
func newTemplate(t *testing.T, name, backendConfig string) *infrastructurev1alpha1.Template {
	t.Helper()
	return &infrastructurev1alpha1.Template{
		ObjectMeta: metaOf(name),
		Spec: infrastructurev1alpha1.TemplateSpec{
			DisplayName: name, Version: "0.1.0", Backend: Name,
			InstanceCRD: infrastructurev1alpha1.InstanceCRD{Group: group, Version: "v1alpha1", Kind: "Redis", Resource: "redis"},
			Schema: runtime.RawExtension{Raw: []byte(`{"type":"object","required":["size"],"properties":{
				"size":{"type":"string","enum":["small","large"]},"replicas":{"type":"integer"},"users":{"type":"array","items":{"type":"string"}},
				"backup":{"type":"boolean"},"image":{"type":"string"}}}`)},
			BackendConfig: &runtime.RawExtension{Raw: toJSON(t, backendConfig)},
		},
	}
}

func toJSON(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// change returns a new generation of a Template.
func change(t *testing.T, template *infrastructurev1alpha1.Template, backendConfig string) *infrastructurev1alpha1.Template {
	t.Helper()
	changed := template.DeepCopy()
	changed.Generation++
	changed.Spec.BackendConfig.Raw = toJSON(t, backendConfig)
	return changed
}

// setUp sets up a Template, which must succeed.
func (e *env) setUp(t *testing.T, template *infrastructurev1alpha1.Template) {
	t.Helper()
	status, err := e.backend.SetupTemplate(t.Context(), template)
	if err != nil || !status.Ready {
		t.Fatalf("setting %s up: %+v, %v", template.Name, status, err)
	}
}

// instance returns an instance with a spec in YAML.
func newInstance(t *testing.T, template *infrastructurev1alpha1.Template, tenant, name, spec string) instance.Instance {
	t.Helper()
	var values map[string]any
	if err := json.Unmarshal(toJSON(t, spec), &values); err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1alpha1", "kind": "Redis",
		"metadata": map[string]any{"name": name, "uid": tenant + "-" + name, "labels": map[string]any{"of": "tenant"}}, "spec": values}}
	text, err := object.MarshalJSON()
	if err == nil {
		err = object.UnmarshalJSON(text) // so that numbers have the types that objects of a server have
	}
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := logicalcluster.ParseName(tenant)
	if err != nil {
		t.Fatal(err)
	}
	return instance.Instance{Cluster: cluster, Template: template, Object: object}
}

// apply applies an instance once.
func (e *env) apply(t *testing.T, i instance.Instance) instance.State {
	t.Helper()
	state, err := e.backend.Apply(t.Context(), i)
	if err != nil {
		t.Fatalf("applying %s of %s: %v", i.Object.GetName(), i.Cluster, err)
	}
	return state
}

// remove deletes an instance.
func (e *env) remove(t *testing.T, i instance.Instance) {
	t.Helper()
	shardtesting.Eventually(t, i.Object.GetName()+" to be gone", func(ctx context.Context) error {
		gone, err := e.backend.Delete(ctx, i)
		if err == nil && !gone {
			err = fmt.Errorf("it is there")
		}
		return err
	})
}

// get returns an object of a tenant in the runtime cluster, or nil.
func (e *env) get(t *testing.T, tenant, apiVersion, kind, name string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	err := e.c.Get(t.Context(), types.NamespacedName{Namespace: tenant, Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return object
}

// setReady does what the controller of StatefulSets does.
func (e *env) setReady(t *testing.T, tenant, name string, replicas int64) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": map[string]any{"namespace": tenant, "name": name}}}
	patch := fmt.Sprintf(`{"status":{"replicas":%d,"readyReplicas":%d}}`, replicas, replicas)
	if err := e.c.Status().Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}
