package syncagent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

func TestR8DeletionReleasesObjectsOfTheWorkspace(t *testing.T) {
	t.Parallel()
	e, c, object, copied := newRelated(t, installation.Alpha, map[string]any{"secret": "creds"}, func(_ *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{relatedSecret("creds", down, reference("spec.secret"))}
	})
	secret := newSecret("default", "creds", "one")
	c.New(t, secret)
	expectSecret(t, e.Service, copied.GetNamespace(), "creds", one)
	current, err := get(t.Context(), c, secret)
	if err != nil || len(current.GetFinalizers()) != 2 || !strings.HasPrefix(current.GetFinalizers()[0], e.Name+".syncagent.kcp.io/cleanup-") || current.GetFinalizers()[1] != "syncagent.kcp.io/cleanup" {
		t.Fatalf("the Secret has the finalizers %v, %v", current.GetFinalizers(), err)
	}
	if err := c.Delete(t.Context(), object.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	expectGone(t, c, object)
	expectGone(t, e.Service, newSecret(copied.GetNamespace(), "creds", ""))
	if current, err := get(t.Context(), c, secret); err != nil || len(current.GetFinalizers()) > 0 {
		t.Errorf("the Secret of the user has the finalizers %v, %v", current.GetFinalizers(), err)
	}
}

// A Secret that its user deletes exists until its copy is deleted.
func TestR8DeletionOfTheOriginIsFollowed(t *testing.T) {
	t.Parallel()
	e, c, _, copied := newRelated(t, installation.Beta, map[string]any{"secret": "creds"}, func(_ *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{relatedSecret("creds", down, reference("spec.secret"))}
	})
	secret := newSecret("default", "creds", "one")
	c.New(t, secret)
	expectSecret(t, e.Service, copied.GetNamespace(), "creds", one)
	if err := c.Delete(t.Context(), secret.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	expectGone(t, e.Service, newSecret(copied.GetNamespace(), "creds", ""))
	expectGone(t, c, secret)
}

func TestR9CleanupOfCopiesInTheWorkspace(t *testing.T) {
	t.Parallel()
	e, c, object, copied := newRelated(t, installation.Root, map[string]any{}, func(_ *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		stay, go1, go2, match := relatedSecret("stay", up, bySide("stay", "stay")), relatedSecret("older", up, bySide("older", "older")),
			relatedSecret("newer", up, bySide("newer", "newer")), relatedSecret("match", up, bySide("match", "match"))
		go1.Cleanup = true
		go2.CleanupPolicy, match.CleanupPolicy = syncagentv1alpha1.CleanupOnPrimaryDeletion, syncagentv1alpha1.CleanupMatchOrigin
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{stay, go1, go2, match}
	})
	namespace := copied.GetNamespace()
	names := []string{"stay", "older", "newer", "match"}
	for _, name := range names {
		create(t, e.Service, newSecret(namespace, name, "one"))
		expectSecret(t, c, "default", name, one)
	}
	for _, name := range []string{"match", "older"} {
		if err := e.Service.Delete(t.Context(), newSecret(namespace, name, "")); err != nil {
			t.Fatal(err)
		}
	}
	expectGone(t, c, newSecret("default", "match", ""))
	if err := c.Delete(t.Context(), object.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	expectGone(t, c, object)
	for name, want := range map[string]bool{"stay": true, "older": false, "newer": false} {
		_, err := get(t.Context(), c, newSecret("default", name, ""))
		if exists := err == nil; exists != want || client.IgnoreNotFound(err) != nil {
			t.Errorf("the copy of %s exists: %v (%v), want %v", name, exists, err, want)
		}
	}
	for _, name := range []string{"stay", "newer"} {
		expectSecret(t, e.Service, namespace, name, one)
	}
}

func TestR10StatusOfRelatedObjects(t *testing.T) {
	t.Parallel()
	var things schema.GroupVersionKind
	e, c, _, copied := newRelated(t, installation.Alpha, map[string]any{}, func(e *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		things = e.Define(t, "Thing")
		published := Of(things)
		published.Synchronization = &syncagentv1alpha1.SynchronizationSpec{Enabled: false}
		e.Publish(t, "things", published)
		for _, origin := range []syncagentv1alpha1.RelatedResourceOrigin{up, down} {
			with, without := relatedThing(things, origin, string(origin)+"-with"), relatedThing(things, origin, string(origin)+"-without")
			with.SyncStatus = true
			spec.Related = append(spec.Related, with, without)
		}
	})
	for name, side := range map[string]struct {
		from, to                   client.Client
		fromNamespace, toNamespace string
		forwarded                  bool
	}{
		"service-with":    {e.Service, c, copied.GetNamespace(), "default", true},
		"service-without": {e.Service, c, copied.GetNamespace(), "default", false},
		"kcp-with":        {c, e.Service, "default", copied.GetNamespace(), true},
		"kcp-without":     {c, e.Service, "default", copied.GetNamespace(), false},
	} {
		origin, copied := newObject(things, side.fromNamespace, name, map[string]any{"a": "b"}), newObject(things, side.toNamespace, name, nil)
		create(t, side.from, origin)
		expectSpec(t, side.to, copied, map[string]any{"a": "b"})
		setStatus(t, side.from, origin, map[string]any{"phase": "Ready"})
		patch(t, side.from, origin, `{"spec":{"a":"changed"}}`)
		expectSpec(t, side.to, copied, map[string]any{"a": "changed"})
		if side.forwarded {
			expectField(t, side.to, copied, "Ready", "status", "phase")
		} else {
			expectField(t, side.to, copied, nil, "status")
		}
		setStatus(t, side.to, copied, map[string]any{"phase": "Forged"})
		patch(t, side.from, origin, `{"spec":{"a":"again"}}`)
		expectSpec(t, side.to, copied, map[string]any{"a": "again"})
		expectField(t, side.from, origin, "Ready", "status", "phase")
	}
}

func TestI2PrimaryObjectsNeedNoClaims(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	spec := Of(kind)
	spec.Related = []syncagentv1alpha1.RelatedResourceSpec{relatedSecret("creds", down, reference("spec.secret")), relatedSecret("conn", up, bySide("conn", "conn"))}
	e.Publish(t, "widgets", spec)
	e.Agent(t)
	reserved := e.Consumer(t, installation.Alpha, schema.GroupResource{Resource: "events"})
	open := e.Consumer(t, installation.Alpha)
	for _, c := range []*consumer{reserved, open} {
		object := newObject(kind, "default", "one", map[string]any{"secret": "creds"})
		c.New(t, object)
		c.New(t, newSecret("default", "creds", "one"))
		copied := e.Copy(t, kind, c, object)
		setStatus(t, e.Service, copied, map[string]any{"phase": "Ready"})
		expectField(t, c, object, "Ready", "status", "phase")
		patch(t, c, object, `{"spec":{"size":"large"}}`)
		expectSpec(t, e.Service, copied, map[string]any{"secret": "creds", "size": "large"})
		if c == open {
			expectSecret(t, e.Service, copied.GetNamespace(), "creds", one)
			continue
		}
		shardtesting.Eventually(t, "the consumer is told about the claim", func(ctx context.Context) error {
			list := &corev1.EventList{}
			if err := c.List(ctx, list, client.InNamespace("default")); err != nil {
				return err
			}
			if !slices.ContainsFunc(list.Items, func(event corev1.Event) bool {
				return event.Reason == "ReconcilingError" && event.Type == corev1.EventTypeWarning && strings.Contains(event.Message, "permission claim for secrets")
			}) {
				return fmt.Errorf("the events are %v", list.Items)
			}
			return nil
		})
		if _, err := get(t.Context(), e.Service, newSecret(copied.GetNamespace(), "creds", "")); !apierrors.IsNotFound(err) {
			t.Errorf("a Secret without accepted claim has a copy, or %v", err)
		}
		if err := c.Delete(t.Context(), object.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		expectGone(t, c, object)
	}
}

// The agent does not overwrite an object of the consumer that is not a copy.
func TestRelatedObjectsDoNotOverwriteThoseOfTheConsumer(t *testing.T) {
	t.Parallel()
	e, c, object, copied := newRelated(t, installation.Root, map[string]any{}, func(_ *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		conn := relatedSecret("conn", up, bySide("conn", "conn"))
		conn.CleanupPolicy = syncagentv1alpha1.CleanupOnPrimaryDeletion
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{conn}
	})
	mine := newSecret("default", "conn", "two")
	c.New(t, mine)
	create(t, e.Service, newSecret(copied.GetNamespace(), "conn", "one"))
	expectEvents(t, c, "ReconcilingError")
	expectSecret(t, c, "default", "conn", two)
	if err := c.Delete(t.Context(), object.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	expectGone(t, c, object)
	expectSecret(t, c, "default", "conn", two)
}

// The agent's traces that a consumer can see are the finalizer, annotations about related objects, and a label of hashes on their copies.
func TestConsumersSeeNothingOfTheServiceCluster(t *testing.T) {
	t.Parallel()
	e, c, object, copied := newRelated(t, installation.Alpha, map[string]any{}, func(_ *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{relatedSecret("conn", up, bySide("conn", "internal-name"))}
	})
	patch(t, c, object, `{"metadata":{"labels":{"syncagent.kcp.io/agent-name":"forged","app":"shop"}}}`)
	expectField(t, e.Service, copied, "shop", "metadata", "labels", "app")
	expectField(t, e.Service, copied, e.Name, "metadata", "labels", "syncagent.kcp.io/agent-name")
	create(t, e.Service, newSecret(copied.GetNamespace(), "internal-name", "one", "syncagent.kcp.io/agent-name", e.Name))
	expectSecret(t, c, "default", "conn", one)
	for _, o := range []*unstructured.Unstructured{object, newSecret("default", "conn", "")} {
		current, err := get(t.Context(), c, o)
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := current.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{copied.GetName(), "internal-name", e.Namespace} {
			if strings.Contains(string(encoded), secret) {
				t.Errorf("%s %s has %q: %s", o.GetKind(), o.GetName(), secret, encoded)
			}
		}
	}
	events := &corev1.EventList{}
	if err := c.List(t.Context(), events, client.InNamespace(metav1.NamespaceAll)); err != nil {
		t.Fatal(err)
	}
	for _, event := range events.Items {
		if strings.Contains(event.Message, copied.GetName()) || strings.Contains(event.Message, "internal") {
			t.Errorf("the event %s says %q", event.Reason, event.Message)
		}
	}
}
