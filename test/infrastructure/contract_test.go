package infrastructure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backendtest/stub"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// opaque is a backendConfig that the platform does not read.
const opaque = `{"resources":[{"id":"confidential"}],"number":1.50}`

// contract is a provider with a backend that provides nothing, and tenants on two shards.
type contract struct {
	*env
	backend *stub.Backend
	tenants []*consumer
}

// TestTemplates tests rows of acceptance criteria and of the failure matrix about Templates, with tenants on other shards than the
// provider.
func TestTemplates(t *testing.T) {
	t.Parallel()
	c := &contract{env: newEnv(t), backend: stub.New("stub")}
	c.run(t, c.workspace, &panicking{c.backend})
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"A1 A2 a template becomes a kind in the export", c.testPublished},
		{"A4 of a template whose backend is unknown there is nothing", c.testUnknownBackend},
		{"A5 a schema is replaced by one of other content, and an unchanged pass writes nothing", c.testChangedSchema},
		{"B1 tenants read the catalogue, and do not write it", c.testCatalogue},
		{"B2 the catalogue follows its templates, and is not there without a binding", c.testCatalogueFollows},
		{"failure: a backend that fails or panics with one template", c.testBackendFails},
		{"failure: an entry of the export is edited by hand", c.testRepair},
		{"A3 removal tears down, and leaves nothing", c.testRemoval},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

// panicking panics where it sets up the Template "panicking".
type panicking struct{ *stub.Backend }

func (p *panicking) SetupTemplate(ctx context.Context, t *infrastructurev1alpha1.Template) (backend.Status, error) {
	if t.Name == "panicking" {
		panic("a mistake of the backend")
	}
	return p.Backend.SetupTemplate(ctx, t)
}

func (c *contract) testPublished(t *testing.T) {
	c.publish(t, c.newTemplate("stub", opaque))
	got := c.get(t, "sample")
	entry := c.exported(t)["samples"]
	if r := got.Status.Registered; !r.CRDEstablished || !r.SchemaInAPIExport || entry == "" || r.SchemaName != entry || !slices.Equal(r.Versions, []string{"v1alpha1"}) {
		t.Errorf("registered is %+v, the export lists %q", r, entry)
	}
	if c.exported(t)["templates"] == "" {
		t.Error("the export does not list templates")
	}
	calls := c.backend.SetUp()
	var config, want any
	if err := errors.Join(json.Unmarshal(calls[0].Spec.BackendConfig.Raw, &config), json.Unmarshal([]byte(opaque), &want)); err != nil || fmt.Sprint(config) != fmt.Sprint(want) {
		t.Errorf("the backend was given %v, %v", config, err)
	}
	c.tenants = []*consumer{c.newConsumer(t, installation.Alpha), c.newConsumer(t, installation.Beta)}
	c.waitAllowed(t, "small")
}

// waitAllowed waits until all tenants may order a size.
func (c *contract) waitAllowed(t *testing.T, size string) {
	t.Helper()
	for _, of := range c.tenants {
		shardtesting.Eventually(t, size+" is allowed", func(ctx context.Context) error {
			_, err := of.instances.Create(ctx, c.newInstance("asked", size), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
	}
}

func (c *contract) testUnknownBackend(t *testing.T) {
	unknown := c.newTemplateOf("Unknown", "terraform", opaque)
	if err := c.c.Create(t.Context(), unknown); err != nil {
		t.Fatal(err)
	}
	c.unready(t, unknown.Name, infrastructurev1alpha1.ReasonBackendNotFound)
	c.expectNotPublished(t, unknown)
	for _, of := range c.tenants {
		if _, err := of.resource("v1alpha1", "unknowns").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a tenant lists instances: %v", err)
		}
	}
	c.remove(t, unknown)
}

// expectNotPublished checks that a Template has no definition and no entry in the export.
func (e *env) expectNotPublished(t *testing.T, of *infrastructurev1alpha1.Template) {
	t.Helper()
	name := of.Spec.InstanceCRD.Resource
	err := e.c.Get(t.Context(), client.ObjectKey{Name: name + "." + e.group}, &apiextensionsv1.CustomResourceDefinition{})
	if entry := e.exported(t)[name]; entry != "" || !apierrors.IsNotFound(err) {
		t.Errorf("the export lists %q, the definition: %v", entry, err)
	}
}

func (c *contract) testChangedSchema(t *testing.T) {
	before := c.exported(t)["samples"]
	c.change(t, func(t *infrastructurev1alpha1.Template) {
		t.Spec.Schema.Raw = []byte(strings.Replace(string(t.Spec.Schema.Raw), `"large"`, `"large","huge"`, 1))
	})
	c.waitReady(t, "stub")
	if after := c.exported(t)["samples"]; after == before {
		t.Error("the export lists the previous schema")
	}
	c.waitAllowed(t, "huge")
	published, calls := c.versions(t), len(c.backend.SetUp())
	c.change(t, func(t *infrastructurev1alpha1.Template) {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, "example.org/touched", "")
	})
	shardtesting.Eventually(t, "another reconciliation", func(context.Context) error {
		if len(c.backend.SetUp()) == calls {
			return errors.New("the backend was not called again")
		}
		return nil
	})
	c.waitReady(t, "stub")
	if after := c.versions(t); after != published {
		t.Errorf("an unchanged pass has written: %s, before %s", after, published)
	}
}

func (c *contract) testCatalogue(t *testing.T) {
	for _, of := range c.tenants {
		of.waitRows(t, "sample")
		row, err := of.resource("v1alpha1", "templates").Get(t.Context(), "sample", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := row.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		for _, hidden := range []string{"confidential", "backend", "stub"} {
			if strings.Contains(strings.ToLower(string(text)), hidden) {
				t.Errorf("%q is in %s", hidden, text)
			}
		}
		row.SetName("own")
		row.SetResourceVersion("")
		_, created := of.resource("v1alpha1", "templates").Create(t.Context(), row, metav1.CreateOptions{})
		_, patched := of.resource("v1alpha1", "templates").Patch(t.Context(), "sample", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		deleted := of.resource("v1alpha1", "templates").Delete(t.Context(), "sample", metav1.DeleteOptions{})
		for _, err := range []error{created, patched, deleted} {
			if !apierrors.IsMethodNotSupported(err) {
				t.Errorf("writing the catalogue: %v", err)
			}
		}
	}
}

func (c *contract) testCatalogueFollows(t *testing.T) {
	c.change(t, func(t *infrastructurev1alpha1.Template) { t.Spec.DisplayName = "Changed" })
	for _, of := range c.tenants {
		shardtesting.Eventually(t, "the row to change", func(ctx context.Context) error {
			row, err := of.resource("v1alpha1", "templates").Get(ctx, "sample", metav1.GetOptions{})
			if err == nil && row.Object["spec"].(map[string]any)["displayName"] != "Changed" {
				err = fmt.Errorf("it is %v", row.Object["spec"])
			}
			return err
		})
	}
	unbound := c.newUnbound(t, installation.Beta)
	if list, err := unbound.resource("v1alpha1", "templates").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a workspace without binding reads %v, %v", list, err)
	}
}

func (c *contract) testBackendFails(t *testing.T) {
	broken := c.newTemplateOf("Panicking", "stub", opaque)
	if err := c.c.Create(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	c.unready(t, broken.Name, infrastructurev1alpha1.ReasonBackendError)
	if entry := c.exported(t)[broken.Spec.InstanceCRD.Resource]; entry != "" {
		t.Errorf("the export lists %q", entry)
	}
	c.waitAllowed(t, "small") // others go on
	if err := c.c.Delete(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	c.waitGone(t, broken)

	before := c.exported(t)["samples"]
	for _, answer := range []struct {
		reason string
		status backend.Status
		err    error
	}{
		{infrastructurev1alpha1.ReasonBackendNotReady, backend.Status{Message: "resources[0].id: is reserved"}, nil},
		{infrastructurev1alpha1.ReasonBackendError, backend.Status{}, errors.New("the runtime cluster does not answer")}, // tried again soon
	} {
		c.backend.Answer(answer.status, answer.err)
		c.change(t, func(t *infrastructurev1alpha1.Template) {
			t.Spec.Schema.Raw = []byte(strings.Replace(string(t.Spec.Schema.Raw), `"enum":[`, `"enum":["`+strings.ToLower(answer.reason)+`",`, 1))
		})
		c.unready(t, "sample", answer.reason)
		if got := c.exported(t)["samples"]; got != before {
			t.Errorf("%s: the export lists %s", answer.reason, got)
		}
		c.waitAllowed(t, "small")
	}
	c.backend.Answer(backend.Status{Ready: true}, nil)
	c.waitReady(t, "stub")
}

func (c *contract) testRepair(t *testing.T) {
	want := c.exported(t)["samples"]
	export := c.getExport(t)
	export.Spec.Resources = slices.DeleteFunc(export.Spec.Resources, isOf("samples"))
	if err := c.c.Update(t.Context(), export); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the entry to be restored", func(context.Context) error {
		if got := c.exported(t)["samples"]; got != want {
			return fmt.Errorf("the export lists %q", got)
		}
		return nil
	})
	c.waitAllowed(t, "small")
}

func (c *contract) testRemoval(t *testing.T) {
	c.backend.FailTeardown(errors.New("something is left"))
	removed := c.get(t, "sample")
	if err := c.c.Delete(t.Context(), removed); err != nil {
		t.Fatal(err)
	}
	c.unready(t, "sample", infrastructurev1alpha1.ReasonBackendError)
	c.backend.FailTeardown(nil)
	c.waitGone(t, removed)
	c.expectPublished(t, 0)
	if got := c.backend.TornDown(); !slices.Contains(got, "sample") {
		t.Errorf("torn down: %v", got)
	}
	for _, of := range c.tenants {
		of.waitRows(t)
		// Existing bindings keep the resources that they have bound, as everywhere in kcp; the kind refuses new instances.
		_, err := of.instances.Create(t.Context(), c.newInstance("late", "small"), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "is being removed from the catalogue") {
			t.Errorf("creating an instance afterwards: %v", err)
		}
	}
}
