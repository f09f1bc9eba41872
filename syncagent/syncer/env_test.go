package syncer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

const (
	testAgent     = "agent"
	testNamespace = "agent-system"
)

var (
	testCluster, _ = logicalcluster.ParseName("2cluster")
	testKey        = types.NamespacedName{Namespace: "team", Name: "db"}

	widgetInWorkspace = workspaces.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"}, Resource: "widgets", Namespaced: true, HasStatus: true}
	widgetOnService   = workspaces.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "internal.example.org", Version: "v1beta1", Kind: "Gadget"}, Resource: "gadgets", Namespaced: true, HasStatus: true}
	secrets           = workspaces.Resource{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret"), Resource: "secrets", Namespaced: true}
	configMaps        = workspaces.Resource{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: "configmaps", Namespaced: true}
	things            = workspaces.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "things.example.org", Version: "v1", Kind: "Thing"}, Resource: "things", Namespaced: true, HasStatus: true}
)

// disturbance is a fault at one write of a run.
type disturbance int

const (
	// killed means that the write is executed, and that the process sends no further request.
	killed disturbance = iota
	// refused means that the write is not executed, and fails.
	refused
	// responseLost means that the write is executed, and its response is an error.
	responseLost
)

var disturbances = map[string]disturbance{"killed": killed, "refused": refused, "response lost": responseLost}

var errDisturbed = errors.New("disturbed")

// writes counts the writes to both sides, and injects a fault into one of them.
type writes struct {
	log []string
	// at is the number of the write with the fault, 0 for none.
	at   int
	kind disturbance
	dead bool
}

// reset starts another process.
func (w *writes) reset() { *w = writes{} }

// do executes a write.
func (w *writes) do(what string, write func() error) error {
	if w.dead {
		return errDisturbed
	}
	w.log = append(w.log, what)
	if len(w.log) != w.at {
		return write()
	}
	if w.kind == refused {
		return apierrors.NewInternalError(errDisturbed)
	}
	if err := write(); err != nil {
		return err
	}
	w.dead = w.kind == killed
	return apierrors.NewInternalError(errDisturbed)
}

func (w *writes) read() error {
	if w.dead {
		return errDisturbed
	}
	return nil
}

// env has a workspace, a service cluster and an agent.
type env struct {
	t testing.TB
	// workspace and service are the clients of users and controllers: their writes are not counted.
	workspace, service client.WithWatch
	agentWorkspace     client.Client
	writes             *writes
	config             Config
	events             *recordedEvents
	uids               int
}

type recordedEvents struct{ log []string }

func (r *recordedEvents) Event(_ context.Context, _ workspaces.EventClient, _ *unstructured.Unstructured, eventType, reason, message string) {
	r.log = append(r.log, fmt.Sprintf("%s %s %s", eventType, reason, message))
}

func (r *recordedEvents) count(reason string) (n int) {
	for _, event := range r.log {
		if strings.Fields(event)[1] == reason {
			n++
		}
	}
	return n
}

func newEnv(t testing.TB) *env {
	e := &env{t: t, writes: &writes{}, events: &recordedEvents{}}
	e.workspace, e.service = e.newCluster(widgetInWorkspace, things), e.newCluster(widgetOnService, things)
	e.agentWorkspace = e.count("workspace", e.workspace)
	service := e.count("service", e.service)
	e.config = Config{
		AgentName: testAgent, Namespace: testNamespace, WorkspaceResource: widgetInWorkspace, ServiceResource: widgetOnService,
		Publication: &publication.Publication{}, Service: service, Events: e.events,
		Copies: ListedCopies{service, widgetOnService.GroupVersionKind, testAgent},
	}
	e.createIn(e.workspace, object(workspaces.Namespaces, types.NamespacedName{Name: testKey.Namespace}, ""))
	e.createIn(e.service, object(workspaces.Namespaces, types.NamespacedName{Name: testNamespace}, ""))
	return e
}

// newCluster returns a client of an empty cluster. It adds the checks of a server that the fake client does not have.
func (e *env) newCluster(withStatus ...workspaces.Resource) client.WithWatch {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		e.t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithGlobalResourceVersionCounter()
	for _, resource := range withStatus {
		builder = builder.WithStatusSubresource(object(resource, types.NamespacedName{}, ""))
	}
	return interceptor.NewClient(builder.Build(), interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			current := &unstructured.Unstructured{}
			current.SetGroupVersionKind(gvkOf(object))
			if err := c.Get(ctx, client.ObjectKeyFromObject(object), current); err != nil {
				return err
			}
			if err := checkUID(options, current); err != nil {
				return err
			}
			return c.Delete(ctx, object, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if ns := object.GetNamespace(); ns != "" {
				if err := c.Get(ctx, types.NamespacedName{Name: ns}, &corev1.Namespace{}); err != nil {
					return err
				}
			}
			e.uids++
			object.SetUID(types.UID(fmt.Sprintf("uid-%d", e.uids)))
			return c.Create(ctx, object, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			data, err := patch.Data(object)
			if err != nil {
				return err
			}
			var sent metav1.PartialObjectMetadata
			if err := json.Unmarshal(data, &sent); err != nil {
				return err
			}
			current := &unstructured.Unstructured{}
			current.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
			if err := c.Get(ctx, client.ObjectKeyFromObject(object), current); err == nil && sent.UID != "" && sent.UID != current.GetUID() {
				return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), errors.New("uid"))
			}
			return c.Patch(ctx, object, patch, options...)
		},
	})
}

// gvkOf returns the kind of an object; Secrets are the only typed objects that the agent deletes.
func gvkOf(object client.Object) schema.GroupVersionKind {
	if gvk := object.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		return gvk
	}
	return secrets.GroupVersionKind
}

// checkUID checks the precondition of a deletion.
func checkUID(options []client.DeleteOption, current client.Object) error {
	wanted := (&client.DeleteOptions{}).ApplyOptions(options).Preconditions
	if wanted == nil || wanted.UID == nil || *wanted.UID == current.GetUID() {
		return nil
	}
	return apierrors.NewConflict(schema.GroupResource{}, current.GetName(), errors.New("uid"))
}

// count returns the agent's client of a cluster.
func (e *env) count(name string, inner client.WithWatch) client.Client {
	what := func(verb string, object client.Object) string {
		return fmt.Sprintf("%s %s %s/%s", verb, name, object.GetObjectKind().GroupVersionKind().Kind, object.GetName())
	}
	return interceptor.NewClient(inner, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			return errors.Join(e.writes.read(), c.Get(ctx, key, object, options...))
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return errors.Join(e.writes.read(), c.List(ctx, list, options...))
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return e.writes.do(what("create", object), func() error { return c.Create(ctx, object, options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			return e.writes.do(what("update", object), func() error { return c.Update(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return e.writes.do(what("patch", object), func() error { return c.Patch(ctx, object, patch, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return e.writes.do(what("delete", object), func() error { return c.Delete(ctx, object, options...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, subresource string, object client.Object, options ...client.SubResourceUpdateOption) error {
			return e.writes.do(what("update "+subresource, object), func() error { return c.SubResource(subresource).Update(ctx, object, options...) })
		},
	})
}

// object returns an object with fields in YAML.
func object(resource workspaces.Resource, key types.NamespacedName, fields string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	encoded, err := yaml.YAMLToJSON([]byte(fields))
	if err != nil {
		panic(err)
	}
	if fields != "" {
		if err := utiljson.Unmarshal(encoded, &o.Object); err != nil {
			panic(err)
		}
	}
	o.SetGroupVersionKind(resource.GroupVersionKind)
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	return o
}

func (e *env) createIn(c client.Client, o *unstructured.Unstructured) {
	e.t.Helper()
	status, hasStatus := o.Object["status"]
	if err := c.Create(context.Background(), o); err != nil {
		e.t.Fatal(err)
	}
	if hasStatus {
		o.Object["status"] = status
		if err := c.Status().Update(context.Background(), o); err != nil {
			e.t.Fatal(err)
		}
	}
}

// get returns an object, or nil.
func (e *env) get(c client.Client, resource workspaces.Resource, key types.NamespacedName) *unstructured.Unstructured {
	e.t.Helper()
	o := object(resource, key, "")
	switch err := c.Get(context.Background(), key, o); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		e.t.Fatal(err)
	}
	return o
}

// change changes an object as a user of the agent would.
func (e *env) change(c client.Client, resource workspaces.Resource, key types.NamespacedName, change func(o *unstructured.Unstructured)) {
	e.t.Helper()
	o := e.get(c, resource, key)
	if o == nil {
		e.t.Fatalf("no %s %s", resource.Kind, key)
	}
	change(o)
	status := o.DeepCopy().Object["status"]
	if err := c.Update(context.Background(), o); err != nil {
		e.t.Fatal(err)
	}
	if !resource.HasStatus {
		return
	}
	if o = e.get(c, resource, key); o != nil && !equal(status, o.Object["status"]) {
		o.Object["status"] = status
		if err := c.Status().Update(context.Background(), o); err != nil {
			e.t.Fatal(err)
		}
	}
}

func (e *env) deleteIn(c client.Client, resource workspaces.Resource, key types.NamespacedName) {
	e.t.Helper()
	if err := c.Delete(context.Background(), object(resource, key, "")); client.IgnoreNotFound(err) != nil {
		e.t.Fatal(err)
	}
}

// setField sets a field of an object; its path is dotted.
func setField(path string, value any) func(o *unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(o.Object, value, strings.Split(path, ".")...); err != nil {
			panic(err)
		}
	}
}

// copies returns all copies of primary objects on the service cluster.
func (e *env) copies() []unstructured.Unstructured {
	e.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(widgetOnService.GroupVersion().WithKind("GadgetList"))
	if err := e.service.List(context.Background(), list); err != nil {
		e.t.Fatal(err)
	}
	return list.Items
}

// theCopy returns the one copy.
func (e *env) theCopy() *unstructured.Unstructured {
	e.t.Helper()
	found := e.copies()
	if len(found) != 1 {
		e.t.Fatalf("got %d copies, want 1", len(found))
	}
	return &found[0]
}

func (e *env) copyKey() types.NamespacedName { return client.ObjectKeyFromObject(e.theCopy()) }

// sync makes one reconciliation over a primary object.
func (e *env) sync(key types.NamespacedName) (Result, error) {
	return New(e.config).Sync(klog.NewContext(context.Background(), logr.Discard()), Request{Cluster: testCluster, NamespacedName: key, Workspace: e.agentWorkspace})
}

// settle makes passes until they change nothing.
func (e *env) settle(keys ...types.NamespacedName) {
	e.t.Helper()
	if len(keys) == 0 {
		keys = []types.NamespacedName{testKey}
	}
	var last error
	for range 40 {
		before := len(e.writes.log)
		last = nil
		waits := false
		for _, key := range keys {
			result, err := e.sync(key)
			waits = waits || result.RequeueAfter > 0
			last = errors.Join(last, err)
		}
		if last == nil && !waits && before == len(e.writes.log) {
			return
		}
	}
	e.t.Fatalf("not settled: %v\n%s", last, e.dump())
}

// expectIdle fails if another reconciliation writes anything.
func (e *env) expectIdle(keys ...types.NamespacedName) {
	e.t.Helper()
	if len(keys) == 0 {
		keys = []types.NamespacedName{testKey}
	}
	e.writes.reset()
	events := len(e.events.log)
	for range 2 {
		for _, key := range keys {
			if _, err := e.sync(key); err != nil {
				e.t.Fatalf("idle reconciliation: %v", err)
			}
		}
	}
	if len(e.writes.log) > 0 || len(e.events.log) > events {
		e.t.Fatalf("an idle reconciliation wrote %v, events %v", e.writes.log, e.events.log[events:])
	}
}

// dump returns all objects of both sides, without fields that differ between equal runs. It omits the namespaces that the agent has
// created.
func (e *env) dump() string {
	e.t.Helper()
	var lines []string
	for name, c := range map[string]client.Client{"workspace": e.workspace, "service": e.service} {
		for _, resource := range []workspaces.Resource{widgetInWorkspace, widgetOnService, secrets, configMaps, things, workspaces.Namespaces} {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(resource.GroupVersion().WithKind(resource.Kind + "List"))
			if err := c.List(context.Background(), list); err != nil {
				e.t.Fatal(err)
			}
			for _, item := range list.Items {
				if resource == workspaces.Namespaces && item.GetLabels()[publication.LabelAgentName] != "" {
					continue
				}
				if isEmpty(item.Object["status"]) {
					delete(item.Object, "status")
				}
				meta := item.Object["metadata"].(map[string]any)
				for _, field := range []string{"resourceVersion", "uid", "creationTimestamp", "generation"} {
					delete(meta, field)
				}
				if meta["deletionTimestamp"] != nil {
					meta["deletionTimestamp"] = "set"
				}
				encoded, err := json.Marshal(item.Object)
				if err != nil {
					e.t.Fatal(err)
				}
				lines = append(lines, name+" "+string(encoded))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// scenario is a sequence of steps of users and controllers. After each step, the agent runs until nothing changes.
type scenario struct {
	prepare func(e *env)
	steps   []func(e *env)
	check   func(t *testing.T, e *env)
	// expected are the reasons of events in a run without faults.
	expected []string
	// from is the first step with faults. Other scenarios test faults in the steps before.
	from int
	// hasty means that the result is the same even if the next step does not wait until the agent has recovered.
	hasty bool
}

// run runs a scenario. It calls disturb before the agent runs in each step; disturb reports whether the agent runs until nothing changes.
func (s scenario) run(t *testing.T, disturb func(step int, e *env) (settle bool)) *env {
	t.Helper()
	e := newEnv(t)
	if s.prepare != nil {
		s.prepare(e)
	}
	for i, step := range s.steps {
		step(e)
		if disturb == nil || disturb(i, e) {
			e.settle()
		}
	}
	return e
}

// test runs a scenario without faults, and again with a fault at each of its writes, and expects the same result.
func (s scenario) test(t *testing.T) {
	t.Helper()
	counts := map[int]int{}
	undisturbed := s.run(t, nil)
	for step := s.from; step < len(s.steps); step++ { // counts the writes of each step
		e := newEnv(t)
		if s.prepare != nil {
			s.prepare(e)
		}
		for i, act := range s.steps[:step+1] {
			act(e)
			if i == step {
				e.writes.reset()
			}
			e.settle()
		}
		counts[step] = len(e.writes.log)
	}
	if s.check != nil {
		s.check(t, undisturbed)
	}
	for _, reason := range s.expected {
		if undisturbed.events.count(reason) == 0 {
			t.Errorf("no event %s in %q", reason, undisturbed.events.log)
		}
	}
	undisturbed.expectIdle()
	want := undisturbed.dump()
	for _, name := range slices.Sorted(maps.Keys(disturbances)) {
		for step, count := range counts {
			for n := 1; n <= count; n++ {
				s.testDisturbed(t, want, name, step, n, true)
				if s.hasty && step < len(s.steps)-1 {
					s.testDisturbed(t, want, name, step, n, false)
				}
			}
		}
	}
}

// testDisturbed runs a scenario with a fault at one write.
func (s scenario) testDisturbed(t *testing.T, want, name string, step, n int, settle bool) {
	t.Helper()
	var wrote []string
	e := s.run(t, func(i int, e *env) bool {
		if i != step {
			return true
		}
		e.writes.reset()
		e.writes.at, e.writes.kind = n, disturbances[name]
		for range 20 { // until the write with the fault
			_, _ = e.sync(testKey)
			if len(e.writes.log) >= n {
				break
			}
		}
		wrote = e.writes.log
		e.writes.reset()
		return settle
	})
	if got := e.dump(); got != want {
		t.Fatalf("%s at write %d of step %d (%v, recovered %v): got\n%s\nwant\n%s", name, n, step, wrote, settle, got, want)
	}
	e.expectIdle()
}

// relatedByReference returns a related resource whose name is in a field of the primary object.
func relatedByReference(identifier string, origin syncagentv1alpha1.RelatedResourceOrigin, path string, from, to workspaces.Resource) RelatedResource {
	return RelatedResource{Origin: from, Copy: to, Spec: syncagentv1alpha1.RelatedResourceSpec{
		Identifier: identifier, Origin: origin, Kind: "Secret",
		Object: syncagentv1alpha1.RelatedResourceObject{RelatedResourceObjectSpec: syncagentv1alpha1.RelatedResourceObjectSpec{
			Reference: &syncagentv1alpha1.RelatedResourceObjectReference{Path: path},
		}},
	}}
}

// rawYAML returns an object as written, with null fields.
func rawYAML(t *testing.T, fields string) map[string]any {
	t.Helper()
	var result map[string]any
	encoded, err := yaml.YAMLToJSON([]byte(fields))
	if err != nil {
		t.Fatal(err)
	}
	if err := utiljson.Unmarshal(encoded, &result); err != nil {
		t.Fatal(err)
	}
	return result
}
