package infrastructure

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backends/kro"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	"github.com/atoll-dev/atoll/infrastructure/backendtest"
	"github.com/atoll-dev/atoll/infrastructure/backendtest/stub"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestStub(t *testing.T) {
	t.Parallel()
	shared.Start(t)
	runtime := stub.NewRuntime()
	backendtest.Run(t, backendtest.Suite{
		Environment: shared.installation,
		New: func(_ testing.TB, cfg backendtest.Config) backend.Backend {
			return stub.NewServing(stub.Config{Name: "stub", Group: cfg.Group, Export: cfg.Export, Runtime: runtime, SweepInterval: cfg.SweepInterval, Log: cfg.Log})
		},
		BackendConfig: `{"outputs":["size"],"marker":"` + backendtest.Confidential + `"}`,
		InvalidConfig: `{"outputs":"size"}`,
		Made:          stubbed{runtime},
		Instances:     30,
	})
}

// stubbed observes the objects that stubs have created.
type stubbed struct{ *stub.Runtime }

func (s stubbed) List(_ context.Context, tenant logicalcluster.Name) ([]string, error) {
	return s.Runtime.List(tenant), nil
}

func (s stubbed) Size(_ context.Context, tenant logicalcluster.Name, instance string) (string, error) {
	size, _ := s.Get(tenant, instance)["size"].(string)
	return size, nil
}

func (s stubbed) Damage(ctx context.Context, tenant logicalcluster.Name, instance string) error {
	return s.Change(ctx, tenant, instance, "size", "damaged")
}

// manifests are a Template's: a config map per instance, and another one for large ones.
const manifests = `{
  "manifests": [
    {"id": "main", "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sample-${self.metadata.name}"}, "data": {"size": "${self.spec.size}", "marker": "` + backendtest.Confidential + `"}},
     "readyWhen": ["other.main.data.size == self.spec.size"]},
    {"id": "extra", "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sample-${self.metadata.name}-extra"}, "data": {"a": "b"}}}
  ],
  "outputs": {"endpoint": "${self.metadata.name}.example.org", "size": "${other.main.data.size}"}
}`

func TestManifest(t *testing.T) {
	t.Parallel()
	shared.Start(t)
	backendtest.Run(t, backendtest.Suite{
		Environment:   shared.installation,
		New:           func(t testing.TB, cfg backendtest.Config) backend.Backend { return manifest.New(inRuntime(t, cfg)) },
		BackendConfig: manifests,
		InvalidConfig: `{"manifests":[{"id":"Main"}]}`,
		Made:          newConfigMaps(t),
		Words:         []string{"configmap", "inventory", "runtimecluster"},
	})
}

// graph is the equivalent for kro.
const graph = `{
  "resources": [
    {"id": "main", "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sample-${schema.metadata.name}"}, "data": {"size": "${schema.spec.size}", "marker": "` + backendtest.Confidential + `"}},
     "readyWhen": ["${main.data.size != ''}"]},
    {"id": "extra", "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "${main.metadata.name}-extra"}, "data": {"a": "b"}}}
  ],
  "statusMapping": {"endpoint": "${schema.metadata.name}.example.org", "size": "${main.data.size}"}
}`

func TestKro(t *testing.T) {
	t.Parallel()
	shared.Start(t)
	backendtest.Run(t, backendtest.Suite{
		Environment: shared.installation,
		New: func(t testing.TB, cfg backendtest.Config) backend.Backend {
			config := inRuntime(t, cfg)
			schemas, err := discovery.NewDiscoveryClientForConfig(shared.runtime.Config)
			if err != nil {
				t.Fatal(err)
			}
			b, err := kro.New(kro.Config{Config: config, Discovery: schemas})
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		BackendConfig: graph,
		InvalidConfig: `{"resources":[{"id":"schema","template":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}}]}`,
		Made:          newConfigMaps(t),
		Words:         []string{"kro.run", "configmap", "graph", "inventory", "runtimecluster"},
	})
}

// inRuntime returns the configuration of a backend whose instances are objects in the runtime cluster.
func inRuntime(t testing.TB, cfg backendtest.Config) runtimecluster.Config {
	t.Helper()
	config := rest.CopyConfig(shared.runtime.Config)
	config.Wrap(cfg.Wrap)
	runtime, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return runtimecluster.Config{Group: cfg.Group, Export: cfg.Export, Runtime: runtime, Metadata: objects, SweepInterval: cfg.SweepInterval, Log: cfg.Log}
}

func newConfigMaps(t *testing.T) configMaps {
	t.Helper()
	made, err := runtimecluster.NewClient(shared.runtime.Config)
	if err != nil {
		t.Fatal(err)
	}
	return configMaps{made}
}

// configMaps observes instances that are config maps "sample-<instance>" in the namespaces of tenants.
type configMaps struct{ client.Client }

func (c configMaps) List(ctx context.Context, tenant logicalcluster.Name) ([]string, error) {
	var found corev1.ConfigMapList
	if err := c.Client.List(ctx, &found, client.InNamespace(tenant.String()), client.MatchingLabels{"app.kubernetes.io/managed-by": "infrastructure-provider"}); err != nil {
		return nil, err
	}
	var names []string
	for i := range found.Items {
		names = append(names, "ConfigMap "+found.Items[i].Name)
	}
	return names, nil
}

func (c configMaps) Size(ctx context.Context, tenant logicalcluster.Name, instance string) (string, error) {
	found := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: tenant.String(), Name: "sample-" + instance}, found)
	return found.Data["size"], client.IgnoreNotFound(err)
}

func (c configMaps) Damage(ctx context.Context, tenant logicalcluster.Name, instance string) error {
	found := &corev1.ConfigMap{}
	found.Namespace, found.Name = tenant.String(), "sample-"+instance
	return c.Patch(ctx, found, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"data":{"size":%q}}`, "damaged")))
}

// owner returns the backend that has created an instance.
func (c configMaps) owner(ctx context.Context, tenant logicalcluster.Name, instance, group string) (string, error) {
	found := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: tenant.String(), Name: "sample-" + instance}, found)
	return found.Labels[group+"/backend"], err
}
