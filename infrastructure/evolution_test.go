package infrastructure_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// cleaner returns a cleaner without grace period. It is called until it has done what is waited for.
func (e *instancesEnv) cleaner() *template.Cleaner {
	return &template.Cleaner{Client: e.c, Group: group, Export: export, Instances: e.view, Events: events.NewFakeRecorder(100), Log: klog.Background()}
}

// testEvolution changes the schema of a kind that has an instance, in all ways that there are.
func (e *instancesEnv) testEvolution(t *testing.T) {
	e.provision(t, e.tenant, "grown", "small")
	set := func(version string, replace ...string) {
		e.change(t, "redis", func(t *infrastructurev1alpha1.Template) {
			t.Spec.InstanceCRD.Version = version
			t.Spec.Schema.Raw = []byte(strings.NewReplacer(replace...).Replace(string(t.Spec.Schema.Raw)))
		})
	}
	stays := func() {
		t.Helper()
		object := e.waitPhase(t, e.tenant, "grown", infrastructurev1alpha1.PhaseReady)
		if name, _, _ := unstructured.NestedString(object.Object, "spec", "name"); name != "grown" {
			t.Errorf("the instance is %v", object.Object["spec"])
		}
	}
	// Additive.
	set("v1alpha1", `"large"`, `"large","huge"`)
	e.ready(t, "redis")
	shardtesting.Eventually(t, "the new value to be allowed", func(ctx context.Context) error {
		_, err := e.of(e.tenant).inTenant(t, "redis").Patch(ctx, "grown", types.MergePatchType, []byte(`{"spec":{"size":"huge"}}`), metav1.PatchOptions{})
		return err
	})
	stays()
	// What the schemas do not prove, instances do.
	set("v1alpha1", `"name":{"type":"string"`, `"name":{"type":"string","pattern":"^[a-f]+$"`)
	if _, message := e.unready(t, "redis", infrastructurev1alpha1.ReasonInvalidSpec); !strings.Contains(message, "existing instances would become invalid: spec.name: Invalid value") || strings.Contains(message, "grown") {
		t.Errorf("the message is %q", message)
	}
	set("v1alpha1", `[a-f]`, `[a-z]`)
	e.ready(t, "redis")
	stays()
	// A new version with another field instead of one.
	set("v1beta1", `"required":["name"],`, `"required":["owner"],`, `"size":{`, `"owner":{"type":"string"},"volume":{`)
	if _, message := e.unready(t, "redis", infrastructurev1alpha1.ReasonInvalidSpec); !strings.Contains(message, "spec.owner: Required value") {
		t.Errorf("the message is %q", message)
	}
	set("v1beta1", `"required":["owner"],`, ``)
	if got := e.ready(t, "redis").Status.Registered.Versions; !slices.Equal(got, []string{"v1alpha1", "v1beta1"}) {
		t.Errorf("versions %v are served", got)
	}
	newer := e.inTenantIn(t, "v1beta1", "redis")
	shardtesting.Eventually(t, "writing the new version", func(ctx context.Context) error {
		_, err := newer.Patch(ctx, "grown", types.MergePatchType, []byte(`{"spec":{"owner":"me"}}`), metav1.PatchOptions{})
		return err
	})
	// Writes in one version keep the fields of the other.
	if _, err := e.of(e.tenant).inTenant(t, "redis").Patch(t.Context(), "grown", types.MergePatchType, []byte(`{"spec":{"size":"small"}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	stays()
	if got, err := newer.Get(t.Context(), "grown", metav1.GetOptions{}); err != nil || fmt.Sprint(got.Object["spec"]) != "map[name:grown owner:me size:small volume:small]" {
		t.Errorf("the instance is %v, %v", got, err)
	}
	// A definition that somebody deletes is made anew with all versions; instances are not touched.
	if err := e.c.Delete(t.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "redis." + group}}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the definition to be made anew", func(ctx context.Context) error {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := e.c.Get(ctx, client.ObjectKey{Name: "redis." + group}, definition); err != nil {
			return err
		}
		if len(definition.Spec.Versions) != 2 || definition.DeletionTimestamp != nil {
			return fmt.Errorf("it has %d versions", len(definition.Spec.Versions))
		}
		return nil
	})
	stays()
	e.testRetirement(t)
	// A new default reaches instances that are not written.
	e.change(t, "redis", func(t *infrastructurev1alpha1.Template) {
		t.Spec.BackendConfig.Raw = []byte(strings.NewReplacer("self.spec.size", "self.spec.volume", `"confidential"`, `"${self.spec.tier}"`).Replace(string(t.Spec.BackendConfig.Raw)))
	})
	shardtesting.Eventually(t, "an instance without the value to fail", func(ctx context.Context) error {
		object, err := newer.Get(ctx, "grown", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(object.Object, "status", "phase"); phase != string(infrastructurev1alpha1.PhaseFailed) {
			return errors.New("it is " + phase)
		}
		return nil
	})
	set("v1beta1", `"volume":{`, `"tier":{"type":"string","default":"gold"},"volume":{`)
	shardtesting.Eventually(t, "the default to be applied", func(ctx context.Context) error {
		if data, err := e.data(ctx, e.tenant, "redis-grown"); err != nil || data["marker"] != "gold" {
			return fmt.Errorf("got %v, %w", data, err)
		}
		return nil
	})
	if err := newer.Delete(t.Context(), "grown", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitAbsent(t, e.tenant, "redis-grown")
}

// testRetirement retires the old version: instances are stored in the new one, then the old one goes.
func (e *instancesEnv) testRetirement(t *testing.T) {
	if stored := e.storedVersions(t); !strings.Contains(stored, "v1alpha1") {
		t.Fatalf("before, instances are stored in %s", stored)
	}
	e.change(t, "redis", func(t *infrastructurev1alpha1.Template) { t.Spec.RetiredVersions = []string{"v1alpha1"} })
	e.ready(t, "redis")
	cleaner := e.cleaner()
	shardtesting.Eventually(t, "the old version to go", func(ctx context.Context) error {
		if err := cleaner.Clean(ctx); err != nil {
			return err
		}
		template := &infrastructurev1alpha1.Template{}
		if err := e.c.Get(ctx, client.ObjectKey{Name: "redis"}, template); err != nil {
			return err
		}
		if got := template.Status.Registered.Versions; !slices.Equal(got, []string{"v1beta1"}) {
			return fmt.Errorf("versions %v are served", got)
		}
		return nil
	})
	if stored := e.storedVersions(t); stored != "v1beta1" {
		t.Errorf("instances are stored in %s", stored)
	}
	shardtesting.Eventually(t, "former schemas to be deleted", func(ctx context.Context) error {
		if err := cleaner.Clean(ctx); err != nil {
			return err
		}
		var schemas apisv1alpha1.APIResourceSchemaList
		if err := e.c.List(ctx, &schemas, client.MatchingLabels{template.LabelTemplate(group): "redis"}); err != nil {
			return err
		}
		if len(schemas.Items) != 1 || schemas.Items[0].Name != e.exported(t)["redis"] {
			return fmt.Errorf("there are %d", len(schemas.Items))
		}
		return nil
	})
	shardtesting.Eventually(t, "the old version not to be served", func(ctx context.Context) error {
		if _, err := e.of(e.tenant).inTenant(t, "redis").Get(ctx, "grown", metav1.GetOptions{}); err == nil {
			return errors.New("it is served")
		}
		return nil
	})
}

// storedVersions returns the versions in which instances are stored.
func (e *instancesEnv) storedVersions(t *testing.T) string {
	t.Helper()
	var versions []string
	for key, value := range e.shard.Stored(t) {
		if !strings.Contains(key, "/"+group+"/redis/") {
			continue
		}
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			if strings.Contains(string(value), `"apiVersion":"`+group+"/"+version+`","kind":"Redis"`) && !slices.Contains(versions, version) {
				versions = append(versions, version)
			}
		}
	}
	slices.Sort(versions)
	return strings.Join(versions, " ")
}
