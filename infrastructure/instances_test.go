package infrastructure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	"github.com/atoll-dev/atoll/infrastructure/backendtest/stub"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// manifests is the backendConfig of a Template: each instance has a ConfigMap, and large ones have a second one.
const manifests = `{
  "manifests": [
    {"id": "main", "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "redis-${self.metadata.name}"}, "data": {"size": "${self.spec.size}", "marker": "confidential"}},
     "readyWhen": ["other.main.data.size == self.spec.size"]},
    {"id": "extra", "includeWhen": "self.spec.size == 'large'", "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "redis-${self.metadata.name}-extra"}, "data": {"a": "b"}}}
  ],
  "outputs": {"endpoint": "${self.metadata.name}.example.org:${6379 + 1}"},
  "connection": {"uri": "redis://${other.main.data.marker}@${self.metadata.name}", "size": "${self.spec.size}"}
}`

// instancesEnv is an installation with the manifest backend, whose runtime cluster is another workspace.
type instancesEnv struct {
	*env
	second  string // another tenant
	lost    string // a tenant that is deleted
	runtime client.Client
	view    *instance.View
}

func newInstancesEnv(t *testing.T, configure ...func(*options.Options)) *instancesEnv {
	e := &instancesEnv{env: newWorkspaces(t, configure...)}
	e.second = e.shard.NewWorkspace(t, "root", "second").Spec.Cluster
	config := shardtesting.At(e.shard.Admin(t), e.shard.NewWorkspace(t, "root", "runtime").Spec.Cluster)
	var err error
	if e.runtime, err = client.New(config, client.Options{}); err != nil {
		t.Fatal(err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	e.backend = stub.New("kro")
	e.view = &instance.View{Workspace: e.workspace(t), Client: e.c, Export: export}
	e.run(t, e.view,
		manifest.New(manifest.Config{Group: group, Export: export, Runtime: e.runtime, Metadata: objects, SweepInterval: time.Second, Log: klog.Background()}), e.backend)
	e.create(t, newTemplate("redis", "Redis", func(t *infrastructurev1alpha1.Template) {
		t.Spec.Backend, t.Spec.BackendConfig = manifest.Name, &runtime.RawExtension{Raw: []byte(manifests)}
	}))
	e.ready(t, "redis")
	for _, tenant := range []string{e.tenant, e.second} {
		e.shard.Bind(t, tenant, e.provider, export)
	}
	return e
}

func (e *instancesEnv) of(tenant string) *env { return &env{shard: e.shard, tenant: tenant} }

func newInstance(name, size string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1alpha1", "kind": "Redis",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"name": name, "size": size}}}
}

// provision creates an instance, and waits until it is ready.
func (e *instancesEnv) provision(t *testing.T, tenant, name, size string) *unstructured.Unstructured {
	t.Helper()
	shardtesting.Eventually(t, "instances to be served", func(ctx context.Context) error {
		_, err := e.of(tenant).inTenant(t, "redis").Create(ctx, newInstance(name, size), metav1.CreateOptions{})
		return err
	})
	return e.waitPhase(t, tenant, name, infrastructurev1alpha1.PhaseReady)
}

func (e *instancesEnv) waitPhase(t *testing.T, tenant, name string, phase infrastructurev1alpha1.InstancePhase) *unstructured.Unstructured {
	t.Helper()
	var got *unstructured.Unstructured
	shardtesting.Eventually(t, fmt.Sprintf("%s to be %s", name, phase), func(ctx context.Context) (err error) {
		if got, err = e.of(tenant).inTenant(t, "redis").Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		current, _, _ := unstructured.NestedString(got.Object, "status", "phase")
		generation, _, _ := unstructured.NestedInt64(got.Object, "status", "observedGeneration")
		if current != string(phase) || generation != got.GetGeneration() {
			return fmt.Errorf("status %v", got.Object["status"])
		}
		return nil
	})
	return got
}

// data returns the data of a ConfigMap of a tenant in the runtime cluster.
func (e *instancesEnv) data(ctx context.Context, tenant, name string) (map[string]string, error) {
	found := &corev1.ConfigMap{}
	err := e.runtime.Get(ctx, client.ObjectKey{Namespace: tenant, Name: name}, found)
	return found.Data, err
}

func (e *instancesEnv) waitData(t *testing.T, tenant, name, size string) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("%s of %s to have size %s", name, tenant, size), func(ctx context.Context) error {
		if data, err := e.data(ctx, tenant, name); err != nil || data["size"] != size {
			return fmt.Errorf("got %v, %w", data, err)
		}
		return nil
	})
}

func (e *instancesEnv) waitAbsent(t *testing.T, tenant, name string) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("%s of %s to be gone", name, tenant), func(ctx context.Context) error {
		if data, err := e.data(ctx, tenant, name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v, %w", data, err)
		}
		return nil
	})
}

func TestInstances(t *testing.T) {
	e := newInstancesEnv(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"tenants provision", e.testProvision},
		{"a condition that cannot be evaluated deletes nothing", e.testUnclearCondition},
		{"connections are handed over to tenants who accept that", e.testConnection},
		{"values that make no objects, and outputs that are too large", e.testValues},
		{"events on the tenant's object", e.testEvents},
		{"the provider reports expressions that it cannot evaluate", e.testMistakes},
		{"an export that is deleted by hand is created again", e.testExportDeleted},
		{"a version that is retired", e.testRetirement},
		{"metrics of Templates", e.testMetrics},
		{"a connection is gone with its instance", e.testDeletion},
		{"a workspace that is gone is purged, with its namespace", e.testWorkspaceGone},
		{"the provider reports a purge", e.testPurge},
		{"G5: another backend takes over", e.testTakeOver},
		{"metrics of a Template are gone with it", e.testTemplateRemoved},
		{"workspace of the provider is deleted", e.testProviderDeleted},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

func (e *instancesEnv) testProvision(t *testing.T) {
	labelled := newInstance("labelled", "small")
	labelled.SetLabels(map[string]string{"team": "one"})
	labelled.SetAnnotations(map[string]string{"example.org/note": "kept"})
	shardtesting.Eventually(t, "instances to be served", func(ctx context.Context) error {
		_, err := e.inTenant(t, "redis").Create(ctx, labelled, metav1.CreateOptions{})
		return err
	})
	if got := e.waitPhase(t, e.tenant, "labelled", infrastructurev1alpha1.PhaseReady); got.GetLabels()["team"] != "one" || got.GetAnnotations()["example.org/note"] != "kept" {
		t.Errorf("a reconciliation has changed the metadata: labels %v, annotations %v", got.GetLabels(), got.GetAnnotations())
	}
	if err := e.inTenant(t, "redis").Delete(t.Context(), "labelled", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitAbsent(t, e.tenant, "redis-labelled")
	e.provision(t, e.tenant, "mine", "small")
	e.provision(t, e.second, "mine", "large")
}

func (e *instancesEnv) resize(t *testing.T, tenant, size string) {
	t.Helper()
	patch := `{"spec":{"size":"` + size + `"}}`
	if _, err := e.of(tenant).inTenant(t, "redis").Patch(t.Context(), "mine", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// replace edits backendConfig, which the server stores as compact JSON with sorted keys.
func (e *instancesEnv) replace(t *testing.T, previous, later string) {
	t.Helper()
	e.change(t, "redis", func(template *infrastructurev1alpha1.Template) {
		text := string(template.Spec.BackendConfig.Raw)
		if !strings.Contains(text, previous) {
			t.Fatalf("backendConfig does not have %s: %s", previous, text)
		}
		template.Spec.BackendConfig.Raw = []byte(strings.Replace(text, previous, later, 1))
	})
	e.ready(t, "redis")
}

func (e *instancesEnv) testUnclearCondition(t *testing.T) {
	e.replace(t, "self.spec.size == 'large'", "self.spec.tier == 'large'")
	e.waitPhase(t, e.second, "mine", infrastructurev1alpha1.PhaseFailed)
	if _, err := e.data(t.Context(), e.second, "redis-mine-extra"); err != nil {
		t.Errorf("what the condition is of: %v", err)
	}
	e.replace(t, "self.spec.tier == 'large'", "self.spec.size == 'large'")
	for _, tenant := range []string{e.tenant, e.second} {
		e.waitPhase(t, tenant, "mine", infrastructurev1alpha1.PhaseReady)
	}
}

func (e *instancesEnv) testDeletion(t *testing.T) {
	if err := e.of(e.tenant).inTenant(t, "redis").Delete(t.Context(), "mine", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitAbsent(t, e.tenant, "redis-mine")
	e.waitSecretGone(t, e.tenant, "mine-redis")
}

func (e *instancesEnv) testWorkspaceGone(t *testing.T) {
	third := e.shard.NewWorkspace(t, "root", "third")
	e.shard.Bind(t, third.Spec.Cluster, e.provider, export)
	tenant := third.Spec.Cluster
	e.lost = tenant
	e.provision(t, tenant, "lost", "small")
	e.waitData(t, tenant, "redis-lost", "small")
	root := e.shard.Client(t, e.shard.Admin(t))
	if err := root.Delete(shardtesting.In(t.Context(), "root"), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "third"}}); err != nil {
		t.Fatal(err)
	}
	e.waitAbsent(t, tenant, "redis-lost")
	shardtesting.Eventually(t, "the namespace of the workspace to be deleted", func(ctx context.Context) error {
		namespace := &corev1.Namespace{}
		err := e.runtime.Get(ctx, client.ObjectKey{Name: tenant}, namespace)
		if err == nil && namespace.DeletionTimestamp == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
	e.waitData(t, e.second, "redis-mine", "large")
}

func (e *instancesEnv) testTemplateRemoved(t *testing.T) {
	template := e.ready(t, "redis")
	if err := e.c.Delete(t.Context(), template); err != nil {
		t.Fatal(err)
	}
	e.gone(t, template)
	waitSeriesGone(t, "redis")
}
