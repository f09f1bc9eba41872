package syncagent

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/test/installation"
)

// targeted is a related Secret of the consumer in the namespace "default", which is copied to the namespace spec.target of the service cluster.
func targeted() syncagentv1alpha1.RelatedResourceSpec {
	return inNamespace(relatedSecret("settings", down, reference("spec.secret")), bySide("default", "{{ .Object.spec.target }}"))
}

// allow sets an annotation of the PublishedResource for Widgets; an empty text removes it.
func (e *env) allow(t *testing.T, annotation, text string) *syncagentv1alpha1.PublishedResource {
	t.Helper()
	published := &syncagentv1alpha1.PublishedResource{ObjectMeta: metav1.ObjectMeta{Name: e.Name + "-widgets"}}
	value := fmt.Sprintf("%q", text)
	if text == "" {
		value = "null"
	}
	patch(t, e.Service, published, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, annotation, value))
	return published
}

// expectRefused waits until an event reports to the consumer that an object is not synced, and fails if the event names the object on the
// service cluster.
func expectRefused(t *testing.T, c *consumer, object client.Object, target string) {
	t.Helper()
	expectEvent(t, c, object.GetName(), corev1.EventTypeWarning, "ReconcilingError", "contact the provider")
	events := &corev1.EventList{}
	if err := c.List(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	for _, event := range events.Items {
		if strings.Contains(event.Message, target) {
			t.Errorf("an event tells consumers about %s: %s", target, event.Message)
		}
	}
}

func expectMissing(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
		t.Errorf("%T %s/%s exists, or %v", object, object.GetNamespace(), object.GetName(), err)
	}
}

func TestRelatedObjectsAreWrittenInTheNamespaceOfTheCopyOnly(t *testing.T) {
	t.Parallel()
	e, victim, _, theirs := newRelated(t, installation.Alpha, map[string]any{}, func(_ *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{targeted()}
	})
	c := e.Consumer(t, installation.Beta)
	kind := theirs.GroupVersionKind()
	platform := newNamespace(e.Name + "-platform")
	create(t, e.Service, platform)
	c.New(t, newSecret("default", e.Name, "one"))
	targets := map[string]string{
		"tenant": theirs.GetNamespace(), "platform": platform.Name, "system": metav1.NamespaceSystem, "agent": e.Namespace, "new": e.Name + "-new",
	}
	for name, target := range targets {
		c.New(t, newObject(kind, "default", name, map[string]any{"secret": e.Name, "target": target}))
	}
	for name, target := range targets {
		expectRefused(t, c, newObject(kind, "default", name, nil), target)
		expectMissing(t, e.Service, newSecret(target, e.Name, ""))
	}
	expectMissing(t, e.Service, newNamespace(e.Name+"-new"))
	if current, err := get(t.Context(), c, newSecret("default", e.Name, "")); err != nil || len(current.GetFinalizers()) > 0 {
		t.Errorf("the Secret of the consumer has the finalizers %v, %v", current.GetFinalizers(), err)
	}
	home := newObject(kind, "default", "home", map[string]any{"secret": e.Name, "target": c.Cluster})
	c.New(t, home)
	expectSecret(t, e.Service, c.Cluster, e.Name, one)

	// A refused object delays nothing: neither the deletion, nor objects that the owner allows in the meantime.
	for _, name := range []string{"tenant", "system", "agent", "new"} {
		object := newObject(kind, "default", name, nil)
		if err := c.Delete(t.Context(), object.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		expectGone(t, c, object)
	}
	e.allow(t, publication.AnnotationAllowedNamespaces, platform.Name)
	expectSecret(t, e.Service, platform.Name, e.Name, one)
	if copies := e.Copy(t, kind, victim, newObject(kind, "default", "one", nil)); copies.GetUID() != theirs.GetUID() {
		t.Error("the copy of the other consumer was replaced")
	}
}

func TestLocatorThatChangesDeletesNothingOfOthers(t *testing.T) {
	t.Parallel()
	e, victim, _, theirs := newRelated(t, installation.Root, map[string]any{"secret": "settings", "target": "$cluster"}, func(_ *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Mutation = &syncagentv1alpha1.ResourceMutationSpec{Spec: []syncagentv1alpha1.ResourceMutation{{
			Template: &syncagentv1alpha1.ResourceTemplateMutation{Path: "spec.target", Template: `{{ if eq .Value.String "$cluster" }}{{ .RemoteObject.metadata.namespace }}{{ else }}{{ .Value.String }}{{ end }}`},
		}}}
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{targeted()}
	})
	kind := theirs.GroupVersionKind()
	victim.New(t, newSecret("default", "settings", "two"))
	expectSecret(t, e.Service, theirs.GetNamespace(), "settings", two) // a copy for the other consumer
	create(t, e.Service, newNamespace(e.Name+"-platform"))
	create(t, e.Service, newSecret(e.Name+"-platform", "settings", "two")) // does not belong to a known owner

	c := e.Consumer(t, installation.Alpha)
	c.New(t, newSecret("default", "settings", "one"))
	object := newObject(kind, "default", "mine", map[string]any{"secret": "settings", "target": "$cluster"})
	c.New(t, object)
	for _, target := range []string{theirs.GetNamespace(), e.Name + "-platform", metav1.NamespaceSystem} {
		expectSecret(t, e.Service, c.Cluster, "settings", one)
		patch(t, c, object, fmt.Sprintf(`{"spec":{"target":%q}}`, target))
		expectGone(t, e.Service, newSecret(c.Cluster, "settings", "")) // the previous copy
		expectRefused(t, c, object, target)
		patch(t, c, object, `{"spec":{"target":"$cluster"}}`)
	}
	expectSecret(t, e.Service, c.Cluster, "settings", one)
	patch(t, c, object, fmt.Sprintf(`{"spec":{"target":%q}}`, theirs.GetNamespace()))
	expectGone(t, e.Service, newSecret(c.Cluster, "settings", ""))
	if err := c.Delete(t.Context(), object.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	expectGone(t, c, object)
	for _, namespace := range []string{theirs.GetNamespace(), e.Name + "-platform"} {
		current, err := get(t.Context(), e.Service, newSecret(namespace, "settings", ""))
		if password, _, _ := unstructured.NestedString(current.Object, "data", "password"); err != nil || password != two || current.GetDeletionTimestamp() != nil {
			t.Errorf("the Secret in %s has changed: %v, %v", namespace, current, err)
		}
	}
	if current, err := get(t.Context(), c, newSecret("default", "settings", "")); err != nil || len(current.GetFinalizers()) > 0 {
		t.Errorf("the Secret of the consumer has the finalizers %v, %v", current.GetFinalizers(), err)
	}
}

// The agent does not change copies in a namespace that is not allowed any more. The command "cleanup" removes them, and nothing else
// there.
func TestNamespaceThatIsNotAllowedAnyMore(t *testing.T) {
	t.Parallel()
	e, c, object, copied := newRelated(t, installation.Beta, map[string]any{"secret": "settings", "target": ""}, func(_ *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{targeted()}
	})
	target := c.Cluster + "-data"
	published := e.allow(t, publication.AnnotationAllowedNamespaces, "$remoteClusterName-*")
	c.New(t, newSecret("default", "settings", "one"))
	patch(t, c, object, fmt.Sprintf(`{"spec":{"target":%q}}`, target))
	expectSecret(t, e.Service, target, "settings", one)
	create(t, e.Service, newSecret(target, "of-the-platform", "two"))

	e.allow(t, publication.AnnotationAllowedNamespaces, "*")
	e.expectReason(t, published, syncagentv1alpha1.ConditionSyncing, "InvalidSpec", "metadata.annotations["+publication.AnnotationAllowedNamespaces+"]")
	e.allow(t, publication.AnnotationAllowedNamespaces, "")
	e.expectCondition(t, published, syncagentv1alpha1.ConditionSyncing, metav1.ConditionTrue)
	patch(t, c, newSecret("default", "settings", ""), `{"stringData":{"password":"two"}}`)
	patch(t, c, object, `{"spec":{"v":"2"}}`)
	expectSpec(t, e.Service, copied, map[string]any{"secret": "settings", "target": target, "v": "2"})
	expectRefused(t, c, object, target)
	expectSecret(t, e.Service, target, "settings", one)

	if err := e.Service.Delete(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "nothing is left", func(context.Context) error {
		found, err := e.tryCleanup(t, true)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("found %q", found)
		}
		return err
	})
	expectMissing(t, e.Service, newSecret(target, "settings", ""))
	expectSecret(t, e.Service, target, "of-the-platform", two)
}

func TestClusterScopedRelatedObjectsAreConfined(t *testing.T) {
	t.Parallel()
	var things schema.GroupVersionKind
	e, c, object, copied := newRelated(t, installation.Alpha, map[string]any{"thing": "chosen"}, func(e *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		things = e.Define(t, "Thing", func(definition *apiextensionsv1.CustomResourceDefinition) {
			definition.Spec.Scope = apiextensionsv1.ClusterScoped
		})
		published := Of(things)
		published.Synchronization = &syncagentv1alpha1.SynchronizationSpec{Enabled: false}
		e.Publish(t, "things", published)
		byField := relatedThing(things, down, "field")
		byField.Object.RelatedResourceObjectSpec = bySide("{{ .Object.spec.thing }}", "{{ .ClusterName }}-{{ .Object.spec.thing }}")
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{relatedThing(things, down, "constant"), byField}
	})
	c.New(t, newObject(things, "", "constant", map[string]any{"a": "b"}))
	c.New(t, newObject(things, "", "chosen", map[string]any{"c": "d"}))
	expectSpec(t, e.Service, newObject(things, "", "constant", nil), map[string]any{"a": "b"})
	expectRefused(t, c, object, c.Cluster+"-chosen")
	expectMissing(t, e.Service, newObject(things, "", c.Cluster+"-chosen", nil))
	e.allow(t, publication.AnnotationAllowedClusterScopedNames, "$remoteClusterName-*")
	expectSpec(t, e.Service, newObject(things, "", c.Cluster+"-chosen", nil), map[string]any{"c": "d"})
	if err := c.Delete(t.Context(), object.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	expectGone(t, c, object)
	expectGone(t, e.Service, copied)
	expectGone(t, e.Service, newObject(things, "", "constant", nil))
	expectGone(t, e.Service, newObject(things, "", c.Cluster+"-chosen", nil))
}

func TestExistingObjectsAreAdoptedWhereTheOwnerAllowsIt(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	spec := Of(kind)
	spec.Naming = naming("{{ .Object.metadata.namespace }}", "{{ .Object.metadata.name }}")
	e.Publish(t, "widgets", spec)
	e.Agent(t)
	c := e.Consumer(t, installation.Root)
	existing := newObject(kind, metav1.NamespaceDefault, "one", map[string]any{"of": "the platform"})
	create(t, e.Service, existing.DeepCopy())
	object := newObject(kind, metav1.NamespaceDefault, "one", map[string]any{"of": "the consumer"})
	c.New(t, object)
	expectRefused(t, c, object, "exists")
	expectSpec(t, e.Service, existing, map[string]any{"of": "the platform"})
	e.allow(t, publication.AnnotationAllowedNamespaces, metav1.NamespaceDefault)
	expectField(t, e.Service, existing, e.Name, "metadata", "labels", publication.LabelAgentName)
	expectSpec(t, e.Service, existing, map[string]any{"of": "the platform"})
	patch(t, c, object, `{"spec":{"more":"of the consumer"}}`)
	expectSpec(t, e.Service, existing, map[string]any{"of": "the platform", "more": "of the consumer"})
}
