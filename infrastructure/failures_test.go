package infrastructure_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backendtest/stub"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/template/removal"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// fragile is a backend with configurable failures.
type fragile struct {
	*stub.Backend
	view breaker

	mu       sync.Mutex
	failures int   // the number of calls of Apply that fail
	down     error // the error that Apply and Delete return
	tenants  []logicalcluster.Name
	purged   []logicalcluster.Name
	deleted  []string
}

func (f *fragile) set(change func(*fragile)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fragile) Run(ctx context.Context, export *rest.Config) error {
	export = rest.CopyConfig(export)
	export.Wrap(func(next http.RoundTripper) http.RoundTripper { return &brokenTransport{next, &f.view} })
	return instance.Run(ctx, instance.Options{Backend: f.Name(), Group: group, Export: "infrastructure.providers.kedge.faros.sh", Workspace: export,
		Handler: f, Changed: make(chan instance.Identity), SweepInterval: 100 * time.Millisecond, Log: klog.Background()})
}

func (f *fragile) Apply(_ context.Context, inst instance.Instance) (instance.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failures > 0 {
		f.failures--
		return instance.State{}, errors.New("a conflict")
	}
	return instance.State{Phase: infrastructurev1alpha1.PhaseReady, Outputs: map[string]any{"endpoint": inst.RuntimeName()}}, f.down
}

func (f *fragile) Delete(_ context.Context, inst instance.Instance) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down == nil {
		f.deleted = append(f.deleted, inst.Object.GetName())
	}
	return true, f.down
}

func (f *fragile) Instances(context.Context) ([]instance.Identity, error) { return nil, nil }

func (f *fragile) Tenants(context.Context) ([]logicalcluster.Name, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.tenants), nil
}

func (f *fragile) Purge(_ context.Context, tenant logicalcluster.Name) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.purged = append(f.purged, tenant)
	f.tenants = slices.DeleteFunc(f.tenants, func(t logicalcluster.Name) bool { return t == tenant })
	return nil
}

// breaker fails requests to the virtual workspace of an export.
type breaker struct {
	mu     sync.Mutex
	answer func(*http.Request) error // nil: requests pass
	ending []context.CancelFunc
	count  int // of requests
}

// set sets the error that requests fail with, and ends running requests.
func (b *breaker) set(answer func(*http.Request) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = answer
	for _, end := range b.ending {
		end()
	}
	b.ending = nil
}

func (b *breaker) pass(request *http.Request) (*http.Request, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.answer != nil {
		if err := b.answer(request); err != nil {
			return nil, err
		}
	}
	ctx, end := context.WithCancel(request.Context())
	b.ending, b.count = append(b.ending, end), b.count+1
	return request.WithContext(ctx), nil
}

type brokenTransport struct {
	next    http.RoundTripper
	breaker *breaker
}

func (t *brokenTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if !strings.Contains(request.URL.Path, "/services/apiexport/") {
		return t.next.RoundTrip(request)
	}
	request, err := t.breaker.pass(request)
	if err != nil {
		return nil, err
	}
	return t.next.RoundTrip(request)
}

// failuresEnv is an installation with a fragile backend, which is started and stopped.
type failuresEnv struct {
	*instancesEnv
	backend *fragile
}

func (e *failuresEnv) start(t *testing.T) {
	e.run(t, &instance.View{Workspace: e.workspace(t), Client: e.c, Export: export}, e.backend)
}

func TestFailures(t *testing.T) {
	e := &failuresEnv{instancesEnv: &instancesEnv{env: newWorkspaces(t)}, backend: &fragile{Backend: stub.New("fragile")}}
	run := func(t *testing.T, name string, step func(*testing.T)) {
		if !t.Run(name, step) {
			t.FailNow()
		}
	}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"with the backend", func(t *testing.T) {
			e.start(t)
			e.create(t, newTemplate("redis", "Redis", func(t *infrastructurev1alpha1.Template) {
				t.Spec.Backend, t.Spec.BackendConfig = e.backend.Name(), &runtime.RawExtension{Raw: []byte(`{}`)}
			}))
			e.ready(t, "redis")
			run(t, "the export has no binding", e.testUnbound)
			e.shard.Bind(t, e.tenant, e.provider, export)
			e.provision(t, e.tenant, "kept", "small")
			run(t, "the provider does not report errors that pass", e.testPassingErrors)
			run(t, "the runtime does not answer", e.testRuntimeUnavailable)
			run(t, "W2: workspaces without instances cost nothing", e.testBoundWorkspaces)
			run(t, "the view does not answer", e.testViewUnavailable)
			run(t, "names of 63 and of 253 characters", e.testLongNames)
		}},
		{"a restart after an edit that is refused", e.testRefusedEdit},
		{"a Template is gone and its kind is not", e.testTemplateNotFound},
		{"instances that are abandoned are let go", e.testAbandoned},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

// waitReady waits until the condition Ready has a status and a reason, and returns the instance and the last transition time.
func (e *failuresEnv) waitReady(t *testing.T, name string, status metav1.ConditionStatus, reason string) (*unstructured.Unstructured, metav1.Time) {
	t.Helper()
	var got *unstructured.Unstructured
	var condition *metav1.Condition
	shardtesting.Eventually(t, fmt.Sprintf("%s to be %s, %s", name, status, reason), func(ctx context.Context) (err error) {
		if got, err = e.inTenant(t, "redis").Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		content := struct {
			Status struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"status"`
		}{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, &content); err != nil {
			return err
		}
		condition = meta.FindStatusCondition(content.Status.Conditions, "Ready")
		if condition == nil || condition.Status != status || condition.Reason != reason || condition.ObservedGeneration != got.GetGeneration() {
			return fmt.Errorf("conditions %+v", content.Status.Conditions)
		}
		return nil
	})
	return got, condition.LastTransitionTime
}

// edit changes the spec of an instance.
func (e *failuresEnv) edit(t *testing.T, name, value string) {
	t.Helper()
	if _, err := e.inTenant(t, "redis").Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"name":"`+value+`"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (e *failuresEnv) testPassingErrors(t *testing.T) {
	_, before := e.waitReady(t, "kept", metav1.ConditionTrue, "AllResourcesReady")
	e.backend.set(func(f *fragile) { f.failures = 1 })
	revision := e.shard.Revision(t)
	e.edit(t, "kept", "edited")
	if _, after := e.waitReady(t, "kept", metav1.ConditionTrue, "AllResourcesReady"); !after.Equal(&before) {
		t.Errorf("the condition has changed at %s and %s", before, after)
	}
	writes := 0
	for _, write := range e.shard.Writes(t, revision) {
		if strings.HasSuffix(write.Key, "/kept") {
			writes++
		}
	}
	if writes != 2 { // the edit and the status of the new generation
		t.Errorf("the instance was written %d times", writes)
	}
}

func (e *failuresEnv) testRuntimeUnavailable(t *testing.T) {
	e.provision(t, e.tenant, "doomed", "small")
	e.backend.set(func(f *fragile) { f.down = errors.New("connection refused") })
	e.edit(t, "kept", "again")
	got, _ := e.waitReady(t, "kept", metav1.ConditionUnknown, "RuntimeUnavailable")
	status := got.Object["status"].(map[string]any)
	if status["phase"] != "Ready" || status["endpoint"] != "kept" {
		t.Errorf("the status has become %v", status)
	}
	if text := fmt.Sprint(status); strings.Contains(text, "refused") {
		t.Errorf("the tenant reads the error: %s", text)
	}
	if err := e.inTenant(t, "redis").Delete(t.Context(), "doomed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	doomed, _ := e.waitReady(t, "doomed", metav1.ConditionUnknown, "RuntimeUnavailable")
	if phase, _, _ := unstructured.NestedString(doomed.Object, "status", "phase"); phase != "Deleting" {
		t.Errorf("the phase of an instance that cannot be removed is %s", phase)
	}
	e.backend.set(func(f *fragile) { f.down = nil })
	e.waitReady(t, "kept", metav1.ConditionTrue, "AllResourcesReady")
	e.waitGone(t, "doomed")
}

func (e *failuresEnv) waitGone(t *testing.T, name string) {
	t.Helper()
	shardtesting.Eventually(t, name+" to be gone", func(ctx context.Context) error {
		if got, err := e.inTenant(t, "redis").Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v, %w", got, err)
		}
		return nil
	})
}

// waitSweeps waits for further sweeps with a result.
func waitSweeps(t *testing.T, result string) {
	t.Helper()
	name := "infrastructure_sweeps_total backend=fragile result=" + result
	before := series(t)[name]
	shardtesting.Eventually(t, "sweeps with result "+result, func(context.Context) error {
		if after := series(t)[name]; after < before+3 {
			return fmt.Errorf("there were %v, before %v", after, before)
		}
		return nil
	})
}

// costs returns the number of the provider's requests for workspaces, and that of its goroutines.
func (e *failuresEnv) costs() (requests, goroutines int) {
	e.backend.view.mu.Lock()
	requests = e.backend.view.count
	e.backend.view.mu.Unlock()
	stacks := make([]byte, 64<<20)
	for stack := range strings.SplitSeq(string(stacks[:goruntime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "atoll/infrastructure/instance.") || strings.Contains(stack, "atoll/internal/workspaces.") {
			goroutines++
		}
	}
	return requests, goroutines
}

func (e *failuresEnv) testBoundWorkspaces(t *testing.T) {
	requests, goroutines := e.costs()
	if requests == 0 || goroutines == 0 {
		t.Fatalf("%d requests, %d goroutines are counted", requests, goroutines)
	}
	const workspaces = 30
	for i := range workspaces {
		e.shard.Bind(t, e.shard.NewWorkspace(t, "root", fmt.Sprintf("bound-%d", i)).Spec.Cluster, e.provider, export)
	}
	e.edit(t, "kept", "served") // causes a request for its status, after the events of all bindings
	e.waitReady(t, "kept", metav1.ConditionTrue, "AllResourcesReady")
	shardtesting.Eventually(t, "the provider to be as before", func(context.Context) error {
		if requestsNow, goroutinesNow := e.costs(); requestsNow > requests+workspaces/2 || goroutinesNow > goroutines+workspaces/2 {
			return fmt.Errorf("%d requests and %d goroutines, before %d and %d", requestsNow, goroutinesNow, requests, goroutines)
		}
		return nil
	})
}

func parseCluster(t *testing.T, name string) logicalcluster.Name {
	t.Helper()
	cluster, err := logicalcluster.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// testUnbound deletes the only workspace with a binding while the backend still has objects of it.
func (e *failuresEnv) testUnbound(t *testing.T) {
	only := e.shard.NewWorkspace(t, "root", "only")
	e.shard.Bind(t, only.Spec.Cluster, e.provider, export)
	e.provision(t, only.Spec.Cluster, "last", "small")
	last := parseCluster(t, only.Spec.Cluster)
	e.backend.set(func(f *fragile) { f.tenants = []logicalcluster.Name{last} })
	if err := e.shard.Client(t, e.shard.Admin(t)).Delete(shardtesting.In(t.Context(), "root"), only); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "what is left of the only workspace to be purged", func(context.Context) (err error) {
		e.backend.set(func(f *fragile) {
			if !slices.Equal(f.purged, []logicalcluster.Name{last}) {
				err = fmt.Errorf("purged %v", f.purged)
			}
		})
		return err
	})
	e.backend.set(func(f *fragile) { f.purged = nil })
}

// testViewUnavailable compares the purges while servers do not answer, or refuse every request, with those afterwards.
func (e *failuresEnv) testViewUnavailable(t *testing.T) {
	gone, alive := parseCluster(t, "gone"), parseCluster(t, e.tenant)
	e.backend.view.set(func(*http.Request) error { return errors.New("connection refused") })
	e.backend.set(func(f *fragile) { f.tenants = []logicalcluster.Name{alive, gone} })
	waitSweeps(t, "incomplete")
	e.backend.set(func(f *fragile) {
		if len(f.purged) > 0 || slices.Contains(f.deleted, "kept") {
			t.Errorf("purged %v, deleted %v", f.purged, f.deleted)
		}
	})
	e.backend.view.set(func(request *http.Request) error {
		if strings.Contains(request.URL.Path, "/clusters/*/") && request.URL.Query().Get("limit") == "1" && strings.HasSuffix(request.URL.Path, "/apibindings") && !request.URL.Query().Has("watch") {
			return errors.New("connection refused") // as if the connection was just lost: informers have not detected it yet
		}
		return nil
	})
	waitSweeps(t, "success")
	e.backend.set(func(f *fragile) {
		if len(f.purged) > 0 {
			t.Errorf("a server that refuses everything has %v purged", f.purged)
		}
	})
	e.backend.view.set(nil)
	shardtesting.Eventually(t, "what is gone to be purged", func(context.Context) error {
		var purged []logicalcluster.Name
		e.backend.set(func(f *fragile) { purged = slices.Clone(f.purged) })
		if !slices.Equal(purged, []logicalcluster.Name{gone}) {
			return fmt.Errorf("purged %v", purged)
		}
		return nil
	})
	e.edit(t, "kept", "after the outage")
	e.waitReady(t, "kept", metav1.ConditionTrue, "AllResourcesReady")
}

func (e *failuresEnv) testLongNames(t *testing.T) {
	for _, length := range []int{63, 253} {
		name := strings.Repeat("n", length)
		got := e.provision(t, e.tenant, name, "small")
		if endpoint, _, _ := unstructured.NestedString(got.Object, "status", "endpoint"); len(endpoint) != 40 {
			t.Errorf("what is made of a name with %d characters is named %q", length, endpoint)
		}
		if err := e.inTenant(t, "redis").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		e.waitGone(t, name)
	}
}

// testRefusedEdit restarts the provider after an edit that the backend refuses, and makes the backend accept it later.
func (e *failuresEnv) testRefusedEdit(t *testing.T) {
	e.backend.Answer(backend.Status{Message: "spec.backendConfig.size: is unknown"}, nil)
	e.change(t, "redis", func(t *infrastructurev1alpha1.Template) { t.Spec.BackendConfig.Raw = []byte(`{"size":1}`) })
	e.start(t)
	e.unready(t, "redis", infrastructurev1alpha1.ReasonBackendNotReady)
	if _, err := e.inTenant(t, "redis").Create(t.Context(), newInstance("held", "small"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitPhase(t, e.tenant, "held", infrastructurev1alpha1.PhasePending)
	e.waitReady(t, "kept", metav1.ConditionTrue, "AllResourcesReady")
	e.backend.Answer(backend.Status{Ready: true}, nil)
	e.change(t, "redis", func(t *infrastructurev1alpha1.Template) {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, "example.org/touched", "")
	})
	e.ready(t, "redis")
	e.waitPhase(t, e.tenant, "held", infrastructurev1alpha1.PhaseReady)
}

// testTemplateNotFound removes the finalizer of a Template, and deletes the Template, while no provider is running.
func (e *failuresEnv) testTemplateNotFound(t *testing.T) {
	lost := e.ready(t, "redis")
	if _, err := e.inTenant(t, "redis").Create(t.Context(), newInstance("orphan", "small"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.change(t, "redis", func(t *infrastructurev1alpha1.Template) { t.Finalizers = nil })
	if err := e.c.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	cleaner := &removal.Cleaner{Client: e.c, Group: group, Export: export, Instances: &instance.View{Workspace: e.workspace(t), Client: e.c, Export: export}, Grace: time.Hour, Log: klog.Background()}
	for range 2 {
		if err := cleaner.Clean(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := e.waitReady(t, "orphan", metav1.ConditionUnknown, "TemplateNotFound")
	e.start(t)
	e.create(t, newTemplate("redis", "Redis", func(t *infrastructurev1alpha1.Template) { t.Spec = lost.Spec }))
	e.ready(t, "redis")
	if again := e.waitPhase(t, e.tenant, "orphan", infrastructurev1alpha1.PhaseReady); again.GetUID() != got.GetUID() {
		t.Error("the instance is another one")
	}
	e.waitReady(t, "orphan", metav1.ConditionTrue, "AllResourcesReady")
	if err := e.inTenant(t, "redis").Delete(t.Context(), "orphan", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitGone(t, "orphan")
}

// testAbandoned removes a Template whose backend cannot delete the objects of instances.
func (e *failuresEnv) testAbandoned(t *testing.T) {
	e.start(t)
	e.provision(t, e.tenant, "abandoned", "small")
	e.backend.set(func(f *fragile) { f.down = errors.New("connection refused") })
	removed := e.ready(t, "redis")
	if err := e.c.Delete(t.Context(), removed); err != nil {
		t.Fatal(err)
	}
	e.waitFor(t, "redis", infrastructurev1alpha1.ConditionReady, metav1.ConditionFalse, infrastructurev1alpha1.ReasonDraining)
	e.change(t, "redis", func(t *infrastructurev1alpha1.Template) {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, backend.AnnotationAbandon(group), "")
	})
	e.gone(t, removed)
	e.waitGone(t, "abandoned")
}
