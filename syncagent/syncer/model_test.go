package syncer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// TestAgentsSettle runs several agents on one service cluster in random order, request by request: passes over different objects overlap
// everywhere, caches are outdated, requests fail, processes end between any two requests, a deposed leader ends its pass late, and users
// and administrators create, change and delete. Finally everything must settle in a bounded number of writes: existing objects are
// synced, deleted objects do not exist any more and neither do the objects that belong to them, and no agent has deleted or overwritten
// objects of other owners.
func TestAgentsSettle(t *testing.T) {
	for seed := range uint64(100) {
		if runModel(t, seed, 400); t.Failed() {
			return
		}
	}
}

// FuzzAgentsSettle runs TestAgentsSettle with other seeds.
func FuzzAgentsSettle(f *testing.F) {
	f.Fuzz(func(t *testing.T, seed uint64) { runModel(t, seed, 400) })
}

func runModel(t *testing.T, seed uint64, steps int) {
	m := newModel(t, seed)
	for range steps {
		m.step()
	}
	m.settle()
	m.check()
	if len(m.violations) > 0 {
		t.Errorf("seed %d:\n%s\n\nhistory:\n%s", seed, strings.Join(m.violations, "\n"), strings.Join(m.history, "\n"))
	}
}

var gizmos = workspaces.Resource{
	GroupVersionKind: schema.GroupVersionKind{Group: "gizmos.example.org", Version: "v1", Kind: "Gizmo"}, Resource: "gizmos", Namespaced: true, HasStatus: true,
}

const (
	sharedNamespace = "shared"
	maxPasses       = 4
)

// modelWorkspace is a workspace of one of two installations. Logical clusters of different installations may have one name.
type modelWorkspace struct {
	name    string
	cluster logicalcluster.Name
	client  client.WithWatch
}

// modelPublication is a PublishedResource of one agent with the workspaces that use it.
type modelPublication struct {
	name       string
	config     Config // without clients
	workspaces []*modelWorkspace
	// primaries and copies are the contents of the agent's caches.
	primaries map[modelKey]*unstructured.Unstructured
	copies    []unstructured.Unstructured
}

// modelKey identifies a primary object of a publication.
type modelKey struct {
	workspace *modelWorkspace
	types.NamespacedName
}

type model struct {
	*env         // for its fake clusters
	rand         *rand.Rand
	workspaces   []*modelWorkspace
	publications []*modelPublication
	passes       []*modelReconciliation
	// made are the UIDs of objects that agents have created or adopted, adopted only those of the latter.
	made, adopted map[types.UID]bool
	// stripped are the UIDs of copies whose labels an administrator has removed.
	stripped map[types.UID]bool
	faults   bool
	next     int
	written  int

	violations, history []string
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		env: &env{t: t}, rand: rand.New(rand.NewPCG(seed, 16)), faults: true,
		made: map[types.UID]bool{}, adopted: map[types.UID]bool{}, stripped: map[types.UID]bool{},
	}
	m.service = m.newCluster(widgetOnService, things, gizmos)
	for _, name := range []string{"one", "two", "elsewhere"} {
		cluster, _ := logicalcluster.ParseName("1" + strings.Replace(name, "elsewhere", "one", 1))
		w := &modelWorkspace{name: name, cluster: cluster, client: m.newCluster(widgetInWorkspace, sprockets, things, gizmos)}
		m.createIn(w.client, object(workspaces.Namespaces, types.NamespacedName{Name: testKey.Namespace}, ""))
		m.workspaces = append(m.workspaces, w)
	}
	for _, name := range []string{"alpha", "beta", "gamma", "1one", "1two", sharedNamespace} {
		m.createIn(m.service, object(workspaces.Namespaces, types.NamespacedName{Name: name}, ""))
	}
	policies := []syncagentv1alpha1.RelatedResourceCleanupPolicy{"", syncagentv1alpha1.CleanupOnPrimaryDeletion, syncagentv1alpha1.CleanupMatchOrigin}
	related := []RelatedResource{
		relatedByReference("creds", syncagentv1alpha1.RelatedResourceOriginKcp, "spec.secretName", secrets, secrets),
		relatedByReference("out", syncagentv1alpha1.RelatedResourceOriginService, "spec.outName", secrets, secrets),
	}
	related[1].Spec.CleanupPolicy = policies[m.rand.IntN(len(policies))]
	publish := func(agent string, from, to workspaces.Resource, naming *syncagentv1alpha1.ResourceNaming, workspaces ...*modelWorkspace) {
		m.publications = append(m.publications, &modelPublication{
			name: agent + " " + from.Resource, workspaces: workspaces, primaries: map[modelKey]*unstructured.Unstructured{},
			config: Config{
				AgentName: agent, Namespace: agent, WorkspaceResource: from, ServiceResource: to, Related: related, Events: noEvents{},
				Publication: &publication.Publication{Spec: syncagentv1alpha1.PublishedResourceSpec{Naming: naming}},
			},
		})
	}
	one, two, elsewhere := m.workspaces[0], m.workspaces[1], m.workspaces[2]
	publish("alpha", widgetInWorkspace, widgetOnService, nil, one, two)
	publish("alpha", sprockets, widgetOnService, &syncagentv1alpha1.ResourceNaming{Name: "sprocket-$remoteName"}, one, two)
	// The names of copies of "things" collide: only one of the two workspaces has a copy.
	publish("alpha", things, things, &syncagentv1alpha1.ResourceNaming{Name: "$remoteName", Namespace: sharedNamespace}, one, two)
	publish("beta", gizmos, gizmos, nil, one)
	publish("gamma", widgetInWorkspace, widgetOnService, nil, elsewhere)
	return m
}

type noEvents struct{}

func (noEvents) Event(context.Context, workspaces.EventClient, *unstructured.Unstructured, string, string, string) {
}

func (m *model) log(format string, args ...any) {
	m.history = append(m.history, fmt.Sprintf(format, args...))
}

func (m *model) violation(format string, args ...any) {
	m.violations = append(m.violations, fmt.Sprintf(format, args...))
	m.log("VIOLATION "+format, args...)
}

func pick[T any](m *model, of []T) T { return of[m.rand.IntN(len(of))] }

// step executes one random action, most often one request of a reconciliation.
func (m *model) step() {
	switch n := m.rand.IntN(40); {
	case n < 5:
		m.act()
	case n == 5 && len(m.passes) > 0:
		p := pick(m, m.passes)
		m.log("%s: killed before %s", p, p.pending)
		m.end(p)
	case n < 9:
		m.refresh(pick(m, m.publications))
	case n < 14 && len(m.passes) < maxPasses || len(m.passes) == 0:
		pub := pick(m, m.publications)
		if key := (modelKey{pick(m, pub.workspaces), pick(m, primaryKeys)}); !m.running(pub, key) || m.rand.IntN(8) == 0 {
			m.start(pub, key) // in rare cases while a deposed leader runs a reconciliation
		}
	default:
		m.advance(pick(m, m.passes))
	}
}

func (m *model) running(pub *modelPublication, key modelKey) bool {
	return slices.ContainsFunc(m.passes, func(p *modelReconciliation) bool { return p.publication == pub && p.key == key })
}

// refresh updates the caches of a publication.
func (m *model) refresh(pub *modelPublication) {
	clear(pub.primaries)
	for _, w := range pub.workspaces {
		for _, o := range m.listAll(w.client, pub.config.WorkspaceResource) {
			pub.primaries[modelKey{w, client.ObjectKeyFromObject(&o)}] = &o
		}
	}
	pub.copies = slices.DeleteFunc(m.listAll(m.service, pub.config.ServiceResource), func(o unstructured.Unstructured) bool {
		return o.GetLabels()[publication.LabelAgentName] != pub.config.AgentName
	})
}

func (m *model) listAll(c client.Client, resource workspaces.Resource) []unstructured.Unstructured {
	m.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(resource.GroupVersion().WithKind(resource.Kind + "List"))
	if err := c.List(context.Background(), list); err != nil {
		m.t.Fatal(err)
	}
	return list.Items
}

// modelReconciliation is a reconciliation that stops before each of its requests.
type modelReconciliation struct {
	*model
	publication *modelPublication
	key         modelKey
	resume      func() (string, bool)
	stop        func()
	yield       func(string) bool
	pending     string
	dead        bool
	result      Result
	err         error
}

func (m *modelReconciliation) String() string {
	return fmt.Sprintf("%s %s/%s", m.publication.name, m.key.workspace.name, m.key.Name)
}

func (m *model) start(pub *modelPublication, key modelKey) *modelReconciliation {
	p := &modelReconciliation{model: m, publication: pub, key: key}
	p.resume, p.stop = iter.Pull(func(yield func(string) bool) {
		p.yield = yield
		config := pub.config
		config.Service = p.client("service", m.service)
		config.Copies = cachedCopies{p.publication}
		p.result, p.err = New(config).Sync(klog.NewContext(context.Background(), logr.Discard()), Request{
			Cluster: key.workspace.cluster, NamespacedName: key.NamespacedName, Workspace: p.client("workspace", key.workspace.client),
		})
	})
	m.passes = append(m.passes, p)
	m.advance(p)
	return p
}

// advance lets a reconciliation make its pending request, and reports whether it has another.
func (m *model) advance(p *modelReconciliation) bool {
	pending, more := p.resume()
	if p.pending = pending; !more {
		if p.err != nil && !p.dead {
			m.log("%s: %v", p, p.err)
		}
		m.end(p)
	}
	return more
}

// end kills a reconciliation, if it has not ended.
func (m *model) end(p *modelReconciliation) {
	p.stop()
	m.passes = slices.DeleteFunc(m.passes, func(other *modelReconciliation) bool { return other == p })
}

// request sends a request when the model continues the reconciliation.
func (m *modelReconciliation) request(what string, do func() error) error {
	if m.dead || !m.yield(what) {
		m.dead = true
		return errDisturbed
	}
	if !m.faults {
		return do()
	}
	switch m.rand.IntN(60) {
	case 0:
		m.log("%s: refused: %s", m, what)
		return apierrors.NewInternalError(errDisturbed)
	case 1:
		m.log("%s: response lost: %s", m, what)
		return errors.Join(apierrors.NewInternalError(errDisturbed), do())
	}
	return do()
}

// cachedCopies finds copies in the cache of a publication.
type cachedCopies struct{ publication *modelPublication }

func (c cachedCopies) Find(_ context.Context, source Source) ([]unstructured.Unstructured, error) {
	var found []unstructured.Unstructured
	for _, o := range c.publication.copies {
		if s, ok := SourceOf(&o); ok && s == source {
			found = append(found, *o.DeepCopy())
		}
	}
	return found, nil
}

// client returns the client of a cluster for a reconciliation. It reads primary objects from the cache.
func (m *modelReconciliation) client(name string, inner client.WithWatch) client.Client {
	what := func(verb string, o client.Object) string {
		return fmt.Sprintf("%s %s %s %s/%s", verb, name, gvkOf(o).Kind, o.GetNamespace(), o.GetName())
	}
	write := func(verb string, o client.Object, do func() error) error {
		request := what(verb, o)
		return m.request(request, func() error { return m.write(name, inner, request, o, do) })
	}
	return interceptor.NewClient(inner, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if u, ok := o.(*unstructured.Unstructured); ok && name == "workspace" && u.GroupVersionKind() == m.publication.config.WorkspaceResource.GroupVersionKind {
				cached := m.publication.primaries[modelKey{m.key.workspace, key}]
				if cached == nil {
					return apierrors.NewNotFound(schema.GroupResource{Resource: "primaries"}, key.Name)
				}
				cached.DeepCopyInto(u)
				return nil
			}
			return m.request("get "+key.String(), func() error { return c.Get(ctx, key, o, options...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return m.request("list", func() error { return c.List(ctx, list, options...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return write("create", o, func() error { return c.Create(ctx, o, options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			return write("update", o, func() error { return c.Update(ctx, o, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			return write("patch", o, func() error { return c.Patch(ctx, o, patch, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return write("delete", o, func() error { return c.Delete(ctx, o, options...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, subresource string, o client.Object, options ...client.SubResourceUpdateOption) error {
			return write("update "+subresource, o, func() error { return c.SubResource(subresource).Update(ctx, o, options...) })
		},
	})
}
