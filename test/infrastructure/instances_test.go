package infrastructure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	"github.com/atoll-dev/atoll/infrastructure/backendtest/stub"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// TestInstances tests rows of the failure matrix about instances, with tenants on other shards than the provider.
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

// testRefusedEdit expects that edits which remove an object are refused.
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

// testOtherView reads an instance at a shard that does not have its workspace: only the shard of a workspace may decide that an instance
// does not exist.
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

// meddler runs a function before the next write of a status.
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

func (e *ending) Run(ctx context.Context, export *rest.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- e.Backend.Run(ctx, export) }()
	<-e.end
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
