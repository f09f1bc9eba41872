package syncagent

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/syncagent/cleanup"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/test/installation"
)

// cleanup runs the command and returns the lines that it prints.
func (e *env) cleanup(t *testing.T, remove bool) []string {
	t.Helper()
	lines, err := e.tryCleanup(t, remove)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func (e *env) tryCleanup(t *testing.T, remove bool) ([]string, error) {
	t.Helper()
	config, err := e.Options(t).Clusters.Complete()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = cleanup.Run(t.Context(), config, remove, &out)
	return strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' }), err
}

// states waits until there is a number of states.
func (e *env) expectStates(t *testing.T, want int) {
	t.Helper()
	shardtesting.Eventually(t, fmt.Sprintf("there are %d states", want), func(ctx context.Context) error {
		states := &corev1.SecretList{}
		err := e.Service.List(ctx, states, client.InNamespace(e.Namespace), client.MatchingLabels{publication.LabelObjectState: "true"})
		if err == nil && len(states.Items) != want {
			err = fmt.Errorf("there are %d", len(states.Items))
		}
		return err
	})
}

func TestCleanupAfterThePublishedResource(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	widget, gadget := e.Define(t, "Widget"), e.Define(t, "Gadget")
	published := e.Publish(t, "widgets", Of(widget))
	e.Publish(t, "gadgets", Of(gadget))
	e.Agent(t)
	c := e.Consumer(t, installation.Alpha)
	left, kept := newObject(widget, "default", "left", map[string]any{}), newObject(gadget, "default", "kept", map[string]any{})
	c.New(t, left)
	c.New(t, kept)
	e.Copy(t, widget, c, left)
	e.Copy(t, gadget, c, kept)
	e.expectStates(t, 2)
	if found := e.cleanup(t, false); len(found) > 0 {
		t.Errorf("found %q while all is synced", found)
	}
	if err := e.Service.Delete(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	if found := e.cleanup(t, false); len(found) != 3 { // copy, state, finalizer
		t.Errorf("found %q", found)
	}
	e.Copy(t, widget, c, left) // the command only lists
	found := e.cleanup(t, true)
	if len(found) != 2 { // the state is deleted with the copy
		t.Errorf("removed %q", found)
	}
	expectNoCopy(t, e, widget, c, left)
	e.expectStates(t, 1)
	if current, err := get(t.Context(), c, left); err != nil || len(current.GetFinalizers()) > 0 {
		t.Errorf("the object has the finalizers %v, %v", current.GetFinalizers(), err)
	}
	if current, err := get(t.Context(), c, kept); err != nil || len(current.GetFinalizers()) != 1 {
		t.Errorf("the other object has the finalizers %v, %v", current.GetFinalizers(), err)
	}
	e.Copy(t, gadget, c, kept)
	if found := e.cleanup(t, false); len(found) > 0 {
		t.Errorf("found %q afterwards", found)
	}
}

func TestCleanupReleasesRelatedObjects(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	widget := e.Define(t, "Widget")
	spec := Of(widget)
	spec.Related = []syncagentv1alpha1.RelatedResourceSpec{relatedSecret("creds", down, reference("spec.secret"))}
	published := e.Publish(t, "widgets", spec)
	agent := e.Agent(t)
	c := e.Consumer(t, installation.Alpha)
	left, secret := newObject(widget, "default", "left", map[string]any{"secret": "creds"}), newSecret("default", "creds", "one")
	c.New(t, secret)
	c.New(t, left)
	copied := e.Copy(t, widget, c, left)
	expectSecret(t, e.Service, copied.GetNamespace(), "creds", one)
	agent.Stop(t)
	if err := e.Service.Delete(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	e.cleanup(t, true)
	expectGone(t, e.Service, newSecret(copied.GetNamespace(), "creds", ""))
	for _, object := range []*unstructured.Unstructured{left, secret} {
		if current, err := get(t.Context(), c, object); err != nil || len(current.GetFinalizers()) > 0 {
			t.Errorf("%s has the finalizers %v, %v", object.GetKind(), current.GetFinalizers(), err)
		}
	}
}

// Finalizers in workspaces remain until the copies are deleted, and the command does not change states of other agents.
func TestCleanupWaitsForTheCopy(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	widget := e.Define(t, "Widget")
	published := e.Publish(t, "widgets", Of(widget))
	agent := e.Agent(t)
	c := e.Consumer(t, installation.Alpha)
	left := newObject(widget, "default", "left", map[string]any{})
	c.New(t, left)
	copied := e.Copy(t, widget, c, left)
	e.expectStates(t, 1)
	agent.Stop(t)
	patch(t, e.Service, copied, `{"metadata":{"finalizers":["example.org/slow"]}}`)
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "obj-state-foreign", Labels: map[string]string{
		publication.LabelObjectState: "true", publication.LabelStateAgent: "another",
	}}}
	create(t, e.Service, foreign)
	if err := e.Service.Delete(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	if found, err := e.tryCleanup(t, true); err == nil || !strings.Contains(err.Error(), "run the command again") {
		t.Errorf("found %q, and returned %v", found, err)
	}
	if current, err := get(t.Context(), c, left); err != nil || len(current.GetFinalizers()) != 1 {
		t.Errorf("the object has the finalizers %v, %v", current.GetFinalizers(), err)
	}
	patch(t, e.Service, copied, `{"metadata":{"finalizers":null}}`)
	expectNoCopy(t, e, widget, c, left)
	e.cleanup(t, true)
	if current, err := get(t.Context(), c, left); err != nil || len(current.GetFinalizers()) > 0 {
		t.Errorf("the object has the finalizers %v, %v", current.GetFinalizers(), err)
	}
	if err := e.Service.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil {
		t.Errorf("the state of another agent: %v", err)
	}
}

// loseSource deletes an object and its finalizer while no agent runs.
func loseSource(t *testing.T, c *consumer, object *unstructured.Unstructured) {
	t.Helper()
	patch(t, c, object, `{"metadata":{"finalizers":null}}`)
	if err := c.Delete(t.Context(), object.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	expectGone(t, c, object.DeepCopy())
}

// The agent reports copies without a source, keeps them by default, and deletes them if the owner enables that.
func TestOrphansAreReported(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	published := e.Publish(t, "widgets", Of(kind))
	agent := e.Agent(t)
	c := e.Consumer(t, installation.Beta)
	orphan, kept := newObject(kind, "default", "orphan", map[string]any{}), newObject(kind, "default", "kept", map[string]any{})
	c.New(t, orphan)
	c.New(t, kept)
	e.Copy(t, kind, c, orphan)
	e.Copy(t, kind, c, kept)
	e.expectStates(t, 2)
	agent.Stop(t)
	loseSource(t, c, orphan)

	agent = e.Agent(t)
	shardtesting.Eventually(t, "the condition reports the orphan", func(context.Context) error {
		if condition := e.expectCondition(t, published, syncagentv1alpha1.ConditionSyncing, metav1.ConditionTrue); condition.Reason != "OrphanedCopies" {
			return fmt.Errorf("the reason is %s", condition.Reason)
		}
		return nil
	})
	shardtesting.Eventually(t, "there is an event", func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := e.Service.List(ctx, events, client.MatchingFields{"involvedObject.name": published.Name, "reason": "OrphanedCopies"}); err != nil {
			return err
		}
		if len(events.Items) != 1 || events.Items[0].Type != corev1.EventTypeWarning {
			return fmt.Errorf("events are %v", events.Items)
		}
		return nil
	})
	e.Copy(t, kind, c, orphan)
	if found := e.cleanup(t, false); len(found) != 2 { // copy and state
		t.Errorf("cleanup finds %q", found)
	}
	agent.Stop(t)

	e.Agent(t, func(o *options.Options) { o.OrphanPolicy = string(options.DeleteOrphans) })
	expectNoCopy(t, e, kind, c, orphan)
	e.expectStates(t, 1)
	e.Copy(t, kind, c, kept)
	shardtesting.Eventually(t, "the condition reports no orphans", func(context.Context) error {
		if condition := e.expectCondition(t, published, syncagentv1alpha1.ConditionSyncing, metav1.ConditionTrue); condition.Reason != "Syncing" {
			return fmt.Errorf("the reason is %s", condition.Reason)
		}
		return nil
	})
}
