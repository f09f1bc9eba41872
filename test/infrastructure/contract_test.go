package infrastructure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	"github.com/atoll-dev/atoll/infrastructure/backends/stub"
	"github.com/atoll-dev/atoll/logicalcluster"
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

// TestTemplates proves rows of acceptance criteria and of the failure matrix that are about Templates, with tenants on other shards than
// the provider.
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
		t.Error("the export lists the former schema")
	}
	c.waitAllowed(t, "huge")
	published, calls := c.versions(t), len(c.backend.SetUp())
	c.change(t, func(t *infrastructurev1alpha1.Template) {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, "example.org/touched", "")
	})
	shardtesting.Eventually(t, "another pass", func(context.Context) error {
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
		// Bindings that exist keep what they have bound, as everywhere in kcp; it refuses new instances.
		_, err := of.instances.Create(t.Context(), c.newInstance("late", "small"), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "is being removed from the catalogue") {
			t.Errorf("creating an instance afterwards: %v", err)
		}
	}
}

// TestInstances proves rows of the failure matrix that are about instances, with tenants on other shards than the provider.
func TestInstances(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	stop := e.run(t, e.workspace, e.backends(t)...)
	e.publish(t, e.newTemplate(manifest.Name, manifests))
	tenants := []*consumer{e.newConsumer(t, installation.Alpha), e.newConsumer(t, installation.Beta)}
	for _, of := range tenants {
		of.create(t, e, "kept", "small")
		of.waitSize(t, "kept", "small")
	}
	run := func(name string, test func(*testing.T)) {
		if !t.Run(name, test) {
			t.FailNow()
		}
	}
	run("failure: a template is broken by an edit", func(t *testing.T) { e.testRefusedEdit(t, tenants) })
	run("failure: a view of another shard says nothing of an instance", func(t *testing.T) { e.testOtherView(t, tenants) })
	stop()
	run("failure: somebody writes before a status is written", func(t *testing.T) { e.testConflict(t, tenants) })
	run("failure: the binary does not have the backend", func(t *testing.T) { e.testBackendNotFound(t, tenants) })
	run("failure: a backend ends", func(t *testing.T) { e.testBackendEnds(t, tenants) })
}

// testRefusedEdit has edits refused that leave an object out.
func (e *env) testRefusedEdit(t *testing.T, tenants []*consumer) {
	for reason, edit := range map[string]func(*infrastructurev1alpha1.TemplateSpec){
		infrastructurev1alpha1.ReasonInvalidSpec: func(spec *infrastructurev1alpha1.TemplateSpec) {
			spec.Schema.Raw = []byte(strings.Replace(string(spec.Schema.Raw), `"small","large"`, `"large"`, 1))
		},
		infrastructurev1alpha1.ReasonBackendNotReady: func(spec *infrastructurev1alpha1.TemplateSpec) {
			spec.BackendConfig.Raw = []byte(strings.Replace(string(spec.BackendConfig.Raw), `"ConfigMap"`, `"Nonexistent"`, 1))
		},
	} {
		before := e.get(t, "sample").Spec
		e.change(t, func(t *infrastructurev1alpha1.Template) {
			t.Spec.BackendConfig.Raw = []byte(strings.Replace(string(t.Spec.BackendConfig.Raw), `"id":"extra"`, `"id":"extra","includeWhen":"false"`, 1))
			edit(&t.Spec)
		})
		e.unready(t, "sample", reason)
		for _, of := range tenants {
			of.create(t, e, "new", "small")
			of.waitSize(t, "new", "small")
			if err := e.made.Damage(t.Context(), of.cluster, "kept"); err != nil {
				t.Fatal(err)
			}
			shardtesting.Eventually(t, "drift to be repaired", func(ctx context.Context) error {
				if size, err := e.made.Size(ctx, of.cluster, "kept"); err != nil || size != "small" {
					return fmt.Errorf("the size is %q, %w", size, err)
				}
				return nil
			})
			e.expectMade(t, of, 2*things)
			of.remove(t, "new")
			e.expectMade(t, of, things)
		}
		e.change(t, func(t *infrastructurev1alpha1.Template) { t.Spec = before })
		e.waitReady(t, manifest.Name)
	}
}

// testOtherView reads an instance where its workspace is not: only the shard of a workspace may say that an instance does not exist.
func (e *env) testOtherView(t *testing.T, tenants []*consumer) {
	for _, url := range e.viewURLs(t) {
		found := 0
		for _, of := range tenants {
			_, err := e.inView(t, url).Get(logicalcluster.With(t.Context(), of.cluster), "kept", metav1.GetOptions{})
			switch {
			case err == nil:
				found++
			case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
				t.Errorf("%s says that an instance of %s does not exist", url, of.cluster)
			}
		}
		if found > 1 {
			t.Errorf("%s serves %d tenants of two shards", url, found)
		}
	}
}

// meddler has something happen before the next write of a status.
type meddler struct {
	mu     sync.Mutex
	meddle func()
}

func (m *meddler) wrap(next http.RoundTripper) http.RoundTripper { return &meddled{m, next} }

type meddled struct {
	*meddler
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (m *meddled) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodPut && strings.HasSuffix(request.URL.Path, "/samples/kept/status") {
		m.mu.Lock()
		meddle := m.meddle
		m.meddle = nil
		m.mu.Unlock()
		if meddle != nil {
			meddle()
		}
	}
	return m.next.RoundTrip(request)
}

func (e *env) testConflict(t *testing.T, tenants []*consumer) {
	of, m := tenants[0], &meddler{}
	workspace := rest.CopyConfig(e.workspace)
	workspace.Wrap(m.wrap)
	conflicts := make(chan error, 1)
	m.meddle = func() {
		_, err := of.instances.Patch(context.Background(), "kept", types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.org/meddled":"true"}}}`), metav1.PatchOptions{})
		conflicts <- err
	}
	stop := e.run(t, workspace, e.backends(t)...)
	defer stop()
	of.resize(t, "kept", "large")
	got := of.waitSize(t, "kept", "large")
	select {
	case err := <-conflicts:
		if err != nil || got.GetAnnotations()["example.org/meddled"] != "true" {
			t.Errorf("the other write: %v, annotations %v", err, got.GetAnnotations())
		}
	default:
		t.Error("the status was not written")
	}
	of.resize(t, "kept", "small")
	of.waitSize(t, "kept", "small")
}

func (e *env) testBackendNotFound(t *testing.T, tenants []*consumer) {
	stop := e.run(t, e.workspace, stub.New("stub"))
	e.change(t, func(t *infrastructurev1alpha1.Template) {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, "example.org/touched", "")
	})
	e.unready(t, "sample", infrastructurev1alpha1.ReasonBackendNotFound)
	for _, of := range tenants {
		before := of.waitSize(t, "kept", "small")
		of.create(t, e, "doomed", "small")
		of.remove(t, "kept")
		after, err := of.instances.Get(t.Context(), "kept", metav1.GetOptions{})
		if err != nil || fmt.Sprint(after.Object["status"]) != fmt.Sprint(before.Object["status"]) {
			t.Errorf("the instance is %v, %v", after, err)
		}
		if err := e.countMade(t.Context(), of, things); err != nil {
			t.Error(err)
		}
	}
	stop()
	stop = e.run(t, e.workspace, e.backends(t)...)
	defer stop()
	for _, of := range tenants {
		of.waitSize(t, "doomed", "small")
		e.expectMade(t, of, things) // the deletion that has waited is done
	}
}

// ending is a backend whose Run ends.
type ending struct {
	backend.Backend
	end chan struct{}
}

func (b *ending) Run(ctx context.Context, export *rest.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- b.Backend.Run(ctx, export) }()
	<-b.end
	cancel()
	return errors.Join(errors.New("the runtime is lost"), <-ended)
}

func (e *env) testBackendEnds(t *testing.T, tenants []*consumer) {
	b := &ending{manifest.New(inRuntime(t, e.config())), make(chan struct{})}
	ended := e.start(t.Context(), t, e.workspace, b)
	for _, of := range tenants {
		of.create(t, e, "last", "small")
		of.waitSize(t, "last", "small")
	}
	close(b.end)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), `backend "manifest" ended`) {
		t.Errorf("the provider ended: %v", err)
	}
	for _, of := range tenants {
		of.resize(t, "last", "large")
	}
	e.run(t, e.workspace, e.backends(t)...)
	for _, of := range tenants {
		of.waitSize(t, "last", "large")
		e.expectMade(t, of, 2*things)
	}
}
