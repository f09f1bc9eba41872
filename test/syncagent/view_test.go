package syncagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/test/installation"
)

const syncerPrefix = "/services/syncer/"

// kcpRequests records the requests of an agent for published resources, and can hide the syncer's view like a server without it.
type kcpRequests struct {
	hideView atomic.Bool
	// failures is the number of requests to the view that fail next.
	failures atomic.Int32

	mu      sync.Mutex
	served  []string
	watches []io.Closer
}

// hide hides the view, and ends its watches.
func (k *kcpRequests) hide() {
	k.hideView.Store(true)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, body := range k.watches {
		_ = body.Close()
	}
}

func (k *kcpRequests) observe(kcp, _ *rest.Config) {
	kcp.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if k.hideView.Load() && strings.Contains(request.URL.Path, syncerPrefix) {
				return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: request}, nil
			}
			if strings.Contains(request.URL.Path, syncerPrefix) && k.failures.Add(-1) >= 0 {
				return nil, errors.New("the view does not answer")
			}
			if resource, _ := resourceOf(request.URL.Path); resource == "widgets" || resource == "gizmos" {
				k.mu.Lock()
				k.served = append(k.served, request.URL.Path)
				k.mu.Unlock()
			}
			response, err := next.RoundTrip(request)
			if err == nil && strings.Contains(request.URL.Path, syncerPrefix) && request.URL.Query().Has("watch") {
				k.mu.Lock()
				k.watches = append(k.watches, response.Body)
				k.mu.Unlock()
			}
			return response, err
		})
	})
}

// viewWatches returns the number of watches that have been opened in the view.
func (k *kcpRequests) viewWatches() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.watches)
}

// paths returns the paths of requests that contain a text.
func (k *kcpRequests) paths(text string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(k.served), func(path string) bool { return !strings.Contains(path, text) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// An agent reads and writes the published resource in the syncer's view if the server has one, or else in the virtual workspace of the
// export. Its states and the objects that consumers see are the same.
func TestAgentUsesTheSyncersView(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	gizmo := schema.GroupVersionKind{Group: e.Name + ".workspaces.example.org", Version: "v1", Kind: "Gizmo"}
	spec := Of(kind)
	spec.Projection = &syncagentv1alpha1.ResourceProjection{Group: gizmo.Group, Kind: gizmo.Kind}
	spec.Filter = &syncagentv1alpha1.ResourceFilter{Resource: &metav1.LabelSelector{MatchLabels: map[string]string{"publish": "yes"}}}
	e.Publish(t, "widgets", spec)

	without := &kcpRequests{}
	without.hide()
	first := e.AgentOver(t, without.observe)
	c := e.Consumer(t, installation.Alpha)
	object, ignored := newObject(gizmo, "default", "one", map[string]any{"size": "large"}), newObject(gizmo, "default", "ignored", map[string]any{})
	object.SetLabels(map[string]string{"publish": "yes"})
	c.New(t, object)
	c.New(t, ignored)
	copied := e.Copy(t, kind, c, object)
	if len(without.paths("/services/apiexport/")) == 0 {
		t.Errorf("without the view, the requests are %v", without.served)
	}
	first.Stop(t)

	with := &kcpRequests{}
	e.AgentOver(t, with.observe)
	patch(t, c, object, `{"spec":{"size":"small"}}`)
	expectSpec(t, e.Service, copied, map[string]any{"size": "small"})
	copied, err := get(t.Context(), e.Service, copied)
	if err != nil {
		t.Fatal(err)
	}
	copied.Object["status"] = map[string]any{"ready": true}
	if err := e.Service.Status().Update(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	expectStatus(t, c, object)
	if view := with.paths(syncerPrefix); len(view) == 0 || slices.ContainsFunc(view, func(path string) bool { return strings.Contains(path, "gizmos") }) {
		t.Errorf("in the view, the requests are %v", view)
	}
	if export := with.paths("/services/apiexport/"); len(export) > 0 {
		t.Errorf("with the view, requests for the export are %v", export)
	}
	states := &corev1.SecretList{}
	if err := e.Service.List(t.Context(), states, client.InNamespace(e.Namespace), client.HasLabels{publication.LabelObjectState}); err != nil || len(states.Items) != 1 {
		t.Errorf("there are %d states, %v", len(states.Items), err)
	}
	events := &corev1.EventList{}
	if err := c.List(t.Context(), events, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	for _, event := range events.Items {
		if event.InvolvedObject.Kind == kind.Kind {
			t.Errorf("an event shows the kind of the service cluster: %+v", event.InvolvedObject)
		}
	}
	if copies, err := e.Copies(t.Context(), kind, c, ignored); err != nil || len(copies) > 0 {
		t.Errorf("the other object has %d copies, %v", len(copies), err)
	}

	// The agent still releases an object that has stopped matching when it is deleted.
	patch(t, c, object, `{"metadata":{"labels":{"publish":"no"}}}`)
	if err := c.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "object and copy are gone", func(ctx context.Context) error {
		if _, err := get(ctx, c, object); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the object: %v", err)
		}
		if copies, err := e.Copies(ctx, kind, c, object); err != nil || len(copies) > 0 {
			return fmt.Errorf("%d copies, %v", len(copies), err)
		}
		return nil
	})
}

// A wider filter applies to objects that do not change. The agent waits for a view that does not respond immediately.
func TestWiderFilterInTheSyncersView(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	spec := Of(kind)
	spec.Filter = &syncagentv1alpha1.ResourceFilter{Resource: &metav1.LabelSelector{MatchLabels: map[string]string{"publish": "yes"}}}
	published := e.Publish(t, "widgets", spec)
	requests := &kcpRequests{}
	requests.failures.Store(3)
	e.AgentOver(t, requests.observe)
	c := e.Consumer(t, installation.Alpha)
	selected, unchanged := newObject(kind, "default", "selected", map[string]any{}), newObject(kind, "default", "unchanged", map[string]any{})
	selected.SetLabels(map[string]string{"publish": "yes"})
	c.New(t, unchanged)
	c.New(t, selected)
	e.Copy(t, kind, c, selected)
	patch(t, e.Service, published, `{"spec":{"filter":null}}`)
	e.Copy(t, kind, c, unchanged)
	if export := requests.paths("/services/apiexport/"); len(export) > 0 {
		t.Errorf("requests for the export are %v", export)
	}
}

// A synchronization continues in the virtual workspace of the export when the agent loses the permission for the view, and returns to the
// view when it has the permission again.
func TestAgentLeavesTheSyncersViewWithoutPermission(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	e.Publish(t, "widgets", Of(kind))
	requests := &kcpRequests{}
	e.AgentOver(t, requests.observe)
	c := e.Consumer(t, installation.Alpha)
	object := newObject(kind, "default", "one", map[string]any{"size": "large"})
	c.New(t, object)
	copied := e.Copy(t, kind, c, object)
	if len(requests.paths(syncerPrefix)) == 0 {
		t.Error("the view is not used")
	}
	requests.hide()
	patch(t, c, object, `{"spec":{"size":"small"}}`)
	expectSpec(t, e.Service, copied, map[string]any{"size": "small"})
	before := requests.viewWatches()
	requests.hideView.Store(false)
	shardtesting.Eventually(t, "the view is used again", func(context.Context) error {
		if requests.viewWatches() == before {
			return errors.New("it is not")
		}
		return nil
	})
	patch(t, c, object, `{"spec":{"size":"medium"}}`)
	expectSpec(t, e.Service, copied, map[string]any{"size": "medium"})
}

// The view has one published resource for each kind of the service cluster. When a later PublishedResource takes the name, the other one
// continues in the virtual workspace of the export, and does not read objects of the later one.
func TestPublishedResourcesOfOneKindInTheSyncersView(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	publish := func(name, group string) schema.GroupVersionKind {
		spec := Of(kind)
		spec.Projection = &syncagentv1alpha1.ResourceProjection{Group: group + "." + e.Name + ".example.org"}
		e.Publish(t, name, spec)
		return schema.GroupVersionKind{Group: spec.Projection.Group, Version: kind.Version, Kind: kind.Kind}
	}
	last := publish("last", "z")
	requests := &kcpRequests{}
	e.AgentOver(t, requests.observe)
	c := e.Consumer(t, installation.Alpha)
	before := newObject(last, "default", "before", map[string]any{"size": "large"})
	c.New(t, before)
	copied := e.Copy(t, kind, c, before)
	if len(requests.paths(syncerPrefix)) == 0 {
		t.Error("the view is not used")
	}
	first := publish("first", "a")
	other := newObject(first, "default", "other", map[string]any{})
	c.New(t, other)
	e.Copy(t, kind, c, other)
	patch(t, c, before, `{"spec":{"size":"small"}}`)
	expectSpec(t, e.Service, copied, map[string]any{"size": "small"})
	if copies, err := e.Copies(t.Context(), kind, c, other); err != nil || len(copies) != 1 {
		t.Errorf("the object of the other resource has %d copies, %v", len(copies), err)
	}
}
