package infrastructure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	"github.com/atoll-dev/atoll/infrastructure/backendtest"
	"github.com/atoll-dev/atoll/infrastructure/template/removal"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// evolution is a kind whose schema changes while tenants on two shards have an instance each.
type evolution struct {
	*env
	tenants []*consumer
	version string
	schema  string
}

// TestEvolution changes the schema of a kind in all possible ways.
func TestEvolution(t *testing.T) {
	t.Parallel()
	e := &evolution{env: newEnv(t), version: "v1alpha1", schema: backendtest.Schema}
	e.run(t, e.workspace, e.backends(t)...)
	e.publish(t, e.newTemplate(manifest.Name, manifests))
	e.tenants = []*consumer{e.newConsumer(t, installation.Alpha), e.newConsumer(t, installation.Beta)}
	for _, of := range e.tenants {
		of.create(t, e.env, "grown", "small")
		of.patch(t, "grown", `{"spec":{"note":"grown"}}`)
		of.waitSize(t, "grown", "small")
	}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"what is added is accepted", e.testAdditive},
		{"what schemas do not prove, instances do", e.testUnproven},
		{"a version is served beside those that exist", e.testVersion},
		{"failure: a definition is deleted by hand", e.testDefinitionDeleted},
		{"a version is retired once all instances are stored in another", e.testRetirement},
		{"a default reaches instances that nobody writes", e.testDefault},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

// set changes the schema.
func (e *evolution) set(t *testing.T, version string, replace ...string) {
	t.Helper()
	e.version, e.schema = version, strings.NewReplacer(replace...).Replace(e.schema)
	e.change(t, func(t *infrastructurev1alpha1.Template) {
		t.Spec.InstanceCRD.Version, t.Spec.Schema.Raw = version, []byte(e.schema)
	})
}

// eventually changes the instances of all tenants in a version, when its schema has arrived there.
func (e *evolution) eventually(t *testing.T, version, patch string) {
	t.Helper()
	for _, of := range e.tenants {
		shardtesting.Eventually(t, patch+" to be accepted", func(ctx context.Context) error {
			_, err := of.resource(version, "samples").Patch(ctx, "grown", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict})
			return err
		})
	}
}

// stay checks that the instances are ready, and have their previous content.
func (e *evolution) stay(t *testing.T, size string) {
	t.Helper()
	for _, of := range e.tenants {
		if note, _, _ := unstructured.NestedString(of.waitSize(t, "grown", size).Object, "spec", "note"); note != "grown" {
			t.Errorf("the note is %q", note)
		}
	}
}

func (e *evolution) testAdditive(t *testing.T) {
	e.set(t, "v1alpha1", `"large"`, `"large","huge"`)
	e.waitReady(t, manifest.Name)
	e.eventually(t, "v1alpha1", `{"spec":{"size":"huge"}}`)
	e.stay(t, "huge")
}

func (e *evolution) testUnproven(t *testing.T) {
	e.set(t, "v1alpha1", `"note":{`, `"note":{"pattern":"^[a-f]+$",`)
	message := e.unready(t, "sample", infrastructurev1alpha1.ReasonInvalidSpec)
	if !strings.Contains(message, "2 existing instances would become invalid: spec.note: Invalid value") || strings.Contains(message, "grown") {
		t.Errorf("the message is %q", message)
	}
	e.set(t, "v1alpha1", `[a-f]`, `[a-z]`)
	e.waitReady(t, manifest.Name)
	e.stay(t, "huge")
}

func (e *evolution) testVersion(t *testing.T) {
	e.set(t, "v1beta1", `"required":["size"]`, `"required":["size","owner"]`, `"note":{`, `"owner":{`, `[a-z]`, `[a-m]`)
	if message := e.unready(t, "sample", infrastructurev1alpha1.ReasonInvalidSpec); !strings.Contains(message, "spec.owner: Required value") {
		t.Errorf("the message is %q", message)
	}
	e.set(t, "v1beta1", `,"owner"]`, `]`)
	e.waitReady(t, manifest.Name)
	if got := e.get(t, "sample").Status.Registered.Versions; !slices.Equal(got, []string{"v1alpha1", "v1beta1"}) {
		t.Errorf("versions %v are served", got)
	}
	e.eventually(t, "v1beta1", `{"spec":{"owner":"me"}}`)
	for _, of := range e.tenants { // writes in one version keep the fields of the other
		of.resize(t, "grown", "small")
	}
	e.stay(t, "small")
	for _, of := range e.tenants {
		got, err := of.resource("v1beta1", "samples").Get(t.Context(), "grown", metav1.GetOptions{})
		if err != nil || fmt.Sprint(got.Object["spec"]) != "map[note:grown owner:me size:small]" {
			t.Errorf("the instance is %v, %v", got, err)
		}
	}
}

func (e *evolution) testDefinitionDeleted(t *testing.T) {
	name := client.ObjectKey{Name: "samples." + e.group}
	deleted := &apiextensionsv1.CustomResourceDefinition{}
	if err := e.c.Get(t.Context(), name, deleted); err != nil {
		t.Fatal(err)
	}
	if err := e.c.Delete(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the definition to be created again with all versions", func(ctx context.Context) error {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := e.c.Get(ctx, name, definition); err != nil {
			return err
		}
		if len(definition.Spec.Versions) != 2 || definition.UID == deleted.UID {
			return fmt.Errorf("it has %d versions", len(definition.Spec.Versions))
		}
		return nil
	})
	e.waitReady(t, manifest.Name)
	e.stay(t, "small")
}

func (e *evolution) testRetirement(t *testing.T) {
	before := e.resourceVersions(t)
	e.change(t, func(t *infrastructurev1alpha1.Template) { t.Spec.RetiredVersions = []string{"v1alpha1"} })
	e.waitReady(t, manifest.Name)
	// A cleaner without grace period is called until it has done the expected work.
	cleaner := &removal.Cleaner{Client: e.c, Group: e.group, Export: e.group, Instances: e.view(), Events: events.NewFakeRecorder(100), Log: logr.Discard()}
	shardtesting.Eventually(t, "the previous version and previous schemas to go", func(ctx context.Context) error {
		if err := errors.Join(cleaner.Retire(ctx), cleaner.Clean(ctx)); err != nil {
			return err
		}
		versions, schemas := e.get(t, "sample").Status.Registered.Versions, e.schemas(t)
		if !slices.Equal(versions, []string{"v1beta1"}) || len(schemas) != 1 || schemas[0].Name != e.exported(t)["samples"] {
			return fmt.Errorf("versions %v are served, there are %d schemas", versions, len(schemas))
		}
		return nil
	})
	for i, after := range e.resourceVersions(t) {
		if after == before[i] {
			t.Errorf("the instance of %s is stored as it was", e.tenants[i].cluster)
		}
	}
	for _, of := range e.tenants {
		shardtesting.Eventually(t, "the previous version not to be served", func(ctx context.Context) error {
			if _, err := of.instances.Get(ctx, "grown", metav1.GetOptions{}); err == nil {
				return errors.New("it is served")
			}
			return nil
		})
		of.instances = of.resource("v1beta1", "samples")
		of.waitSize(t, "grown", "small")
	}
}

// resourceVersions returns the resource versions of the instances of all tenants, in the new version.
func (e *evolution) resourceVersions(t *testing.T) (versions []string) {
	t.Helper()
	for _, of := range e.tenants {
		found, err := of.resource("v1beta1", "samples").Get(t.Context(), "grown", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, found.GetResourceVersion())
	}
	return versions
}

func (e *evolution) testDefault(t *testing.T) {
	e.change(t, func(t *infrastructurev1alpha1.Template) {
		t.Spec.BackendConfig.Raw = []byte(strings.Replace(string(t.Spec.BackendConfig.Raw), backendtest.Confidential, "${self.spec.tier}", 1))
	})
	for _, of := range e.tenants {
		shardtesting.Eventually(t, "an instance without the value to fail", func(ctx context.Context) error {
			object, err := of.instances.Get(ctx, "grown", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if phase, _, _ := unstructured.NestedString(object.Object, "status", "phase"); phase != string(infrastructurev1alpha1.PhaseFailed) {
				return errors.New("it is " + phase)
			}
			return nil
		})
	}
	e.set(t, "v1beta1", `"owner":{`, `"tier":{"type":"string","default":"gold"},"owner":{`)
	for _, of := range e.tenants {
		shardtesting.Eventually(t, "the default to be applied", func(ctx context.Context) error {
			made := &corev1.ConfigMap{}
			if err := e.made.Get(ctx, client.ObjectKey{Namespace: of.cluster.String(), Name: "sample-grown"}, made); err != nil || made.Data["marker"] != "gold" {
				return fmt.Errorf("got %v, %w", made.Data, err)
			}
			return nil
		})
		of.remove(t, "grown")
		e.expectMade(t, of, 0)
	}
}
