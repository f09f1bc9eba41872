package syncagent

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/test/installation"
)

const (
	up   = syncagentv1alpha1.RelatedResourceOriginService
	down = syncagentv1alpha1.RelatedResourceOriginKcp
)

var secretKind = corev1.SchemeGroupVersion.WithKind("Secret")

// relatedSecret is a related Secret that is watched.
func relatedSecret(identifier string, origin syncagentv1alpha1.RelatedResourceOrigin, object syncagentv1alpha1.RelatedResourceObjectSpec) syncagentv1alpha1.RelatedResourceSpec {
	return syncagentv1alpha1.RelatedResourceSpec{
		Identifier: identifier, Origin: origin, Kind: "Secret",
		Object: syncagentv1alpha1.RelatedResourceObject{RelatedResourceObjectSpec: object},
		Watch:  &syncagentv1alpha1.RelatedResourceWatch{BySelector: &metav1.LabelSelector{}},
	}
}

func reference(path string) syncagentv1alpha1.RelatedResourceObjectSpec {
	return syncagentv1alpha1.RelatedResourceObjectSpec{Reference: &syncagentv1alpha1.RelatedResourceObjectReference{Path: path}}
}

// bySide is a template with another name on each side.
func bySide(kcp, service string) syncagentv1alpha1.RelatedResourceObjectSpec {
	return syncagentv1alpha1.RelatedResourceObjectSpec{Template: &syncagentv1alpha1.TemplateExpression{
		Template: fmt.Sprintf(`{{ if eq .Side "kcp" }}%s{{ else }}%s{{ end }}`, kcp, service),
	}}
}

func inNamespace(related syncagentv1alpha1.RelatedResourceSpec, namespace syncagentv1alpha1.RelatedResourceObjectSpec) syncagentv1alpha1.RelatedResourceSpec {
	related.Object.Namespace = &namespace
	return related
}

// newRelated returns an environment whose Widgets have related resources, a consumer, and a Widget there with its copy.
func newRelated(t *testing.T, shard string, spec map[string]any, change func(e *env, spec *syncagentv1alpha1.PublishedResourceSpec)) (e *env, c *consumer, object, copied *unstructured.Unstructured) {
	t.Helper()
	e = newEnv(t)
	kind := e.Define(t, "Widget")
	published := Of(kind)
	change(e, &published)
	e.Publish(t, "widgets", published)
	e.Agent(t)
	c = e.Consumer(t, shard)
	object = newObject(kind, "default", "one", spec)
	c.New(t, object)
	return e, c, object, e.Copy(t, kind, c, object)
}

func newSecret(namespace, name, password string, labels ...string) *unstructured.Unstructured {
	secret := &unstructured.Unstructured{Object: map[string]any{"stringData": map[string]any{"password": password}}}
	secret.SetGroupVersionKind(secretKind)
	secret.SetNamespace(namespace)
	secret.SetName(name)
	values := map[string]string{}
	for i := 0; i+1 < len(labels); i += 2 {
		values[labels[i]] = labels[i+1]
	}
	secret.SetLabels(values)
	return secret
}

func newNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// expectSecret waits until a Secret has a password, in base64.
func expectSecret(t *testing.T, c client.Client, namespace, name, password string) {
	t.Helper()
	expectField(t, c, newSecret(namespace, name, ""), password, "data", "password")
}

const one, two = "b25l", "dHdv" // as the data of a Secret

func TestR1RelatedSecretsUpAndDown(t *testing.T) {
	t.Parallel()
	e, c, object, copied := newRelated(t, installation.Alpha, map[string]any{"up": "up", "down": "down"}, func(_ *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{
			relatedSecret("upreference", up, reference("spec.up")), relatedSecret("downreference", down, reference("spec.down")),
			relatedSecret("uptemplate", up, bySide("up-template", "up-{{ .ClusterName }}")),
			relatedSecret("downtemplate", down, bySide("down-template", "down-{{ .ClusterName }}")),
		}
		spec.Mutation = &syncagentv1alpha1.ResourceMutationSpec{Spec: []syncagentv1alpha1.ResourceMutation{
			{Regex: &syncagentv1alpha1.ResourceRegexMutation{Path: "spec.up", Pattern: "^(.+)$", Replacement: "internal-$1"}},
		}}
	})
	namespace := copied.GetNamespace()
	upReference, upTemplate := newSecret(namespace, "internal-up", "one"), newSecret(namespace, "up-"+c.Cluster, "one")
	downReference, downTemplate := newSecret("default", "down", "one"), newSecret("default", "down-template", "one")
	create(t, e.Service, upReference)
	create(t, e.Service, upTemplate)
	c.New(t, downReference)
	c.New(t, downTemplate)
	for _, password := range []string{one, two} {
		expectSecret(t, c, "default", "up", password)
		expectSecret(t, c, "default", "up-template", password)
		expectSecret(t, e.Service, namespace, "down", password)
		expectSecret(t, e.Service, namespace, "down-"+c.Cluster, password)
		for _, secret := range []*unstructured.Unstructured{upReference, upTemplate} {
			patch(t, e.Service, secret, `{"stringData":{"password":"two"}}`)
		}
		for _, secret := range []*unstructured.Unstructured{downReference, downTemplate} {
			patch(t, c, secret, `{"stringData":{"password":"two"}}`)
		}
	}
	expectField(t, c, object, `{"namespace":"default","name":"up","apiVersion":"v1","kind":"Secret"}`,
		"metadata", "annotations", "related-resources.syncagent.kcp.io/upreference.0")
}

func TestR2NamespacesOfRelatedObjectsAreCreated(t *testing.T) {
	t.Parallel()
	e, c, _, _ := newRelated(t, installation.Beta, map[string]any{}, func(_ *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{
			inNamespace(relatedSecret("up", up, bySide("creds", "creds")), bySide("from-service", "up-{{ .ClusterName }}")),
			inNamespace(relatedSecret("down", down, bySide("creds", "creds")), bySide("to-service", "down-{{ .ClusterName }}")),
		}
	})
	create(t, e.Service, newNamespace("up-"+c.Cluster))
	create(t, e.Service, newSecret("up-"+c.Cluster, "creds", "one"))
	c.New(t, newNamespace("to-service"))
	c.New(t, newSecret("to-service", "creds", "one"))
	expectSecret(t, c, "from-service", "creds", one)
	expectSecret(t, e.Service, "down-"+c.Cluster, "creds", one)
}

func TestR3RelatedObjectInAForeignNamespace(t *testing.T) {
	t.Parallel()
	e, c, _, _ := newRelated(t, installation.Root, map[string]any{}, func(e *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{
			inNamespace(relatedSecret("vault", up, bySide("creds", "creds")), bySide("{{ .Object.metadata.namespace }}", e.Name+"-vault")),
			inNamespace(relatedSecret("fixed", down, bySide("fixed", "fixed")), syncagentv1alpha1.RelatedResourceObjectSpec{
				Reference: &syncagentv1alpha1.RelatedResourceObjectReference{
					Path: "metadata.uid", Regex: &syncagentv1alpha1.RegularExpression{Replacement: e.Name + "-fixed"},
				},
			}),
		}
	})
	create(t, e.Service, newNamespace(e.Name+"-vault"))
	create(t, e.Service, newSecret(e.Name+"-vault", "creds", "one"))
	c.New(t, newNamespace(e.Name+"-fixed"))
	c.New(t, newSecret(e.Name+"-fixed", "fixed", "one"))
	expectSecret(t, c, "default", "creds", one)
	expectSecret(t, e.Service, e.Name+"-fixed", "fixed", one)
}

func TestR4RelatedObjectsByLabels(t *testing.T) {
	t.Parallel()
	selector := func(labels map[string]string, rewrite syncagentv1alpha1.RelatedResourceSelectorRewrite) syncagentv1alpha1.RelatedResourceObjectSpec {
		return syncagentv1alpha1.RelatedResourceObjectSpec{Selector: &syncagentv1alpha1.RelatedResourceObjectSelector{
			LabelSelector: metav1.LabelSelector{MatchLabels: labels}, Rewrite: rewrite,
		}}
	}
	e, c, _, copied := newRelated(t, installation.Alpha, map[string]any{"team": "blue"}, func(_ *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{
			relatedSecret("plain", up, selector(map[string]string{"find": "plain"},
				syncagentv1alpha1.RelatedResourceSelectorRewrite{Regex: &syncagentv1alpha1.RegularExpression{Pattern: "^internal-", Replacement: "public-"}})),
			relatedSecret("cluster", up, selector(map[string]string{"cluster": "{{ .ClusterName }}"},
				syncagentv1alpha1.RelatedResourceSelectorRewrite{Template: &syncagentv1alpha1.TemplateExpression{Template: "of-{{ .Value }}"}})),
			relatedSecret("templated", down, selector(map[string]string{`team-{{ .LocalObject.spec.team }}`: "{{ .RemoteObject.metadata.name }}", `{{ "" }}`: "dropped"},
				syncagentv1alpha1.RelatedResourceSelectorRewrite{Template: &syncagentv1alpha1.TemplateExpression{Template: "{{ .Value }}-{{ .ClusterName }}"}})),
		}
	})
	namespace := copied.GetNamespace()
	create(t, e.Service, newSecret(namespace, "internal-a", "one", "find", "plain"))
	create(t, e.Service, newSecret(namespace, "internal-b", "two", "find", "plain"))
	create(t, e.Service, newSecret(namespace, "internal-c", "two", "find", "other"))
	create(t, e.Service, newSecret(namespace, "tenant", "one", "cluster", c.Cluster))
	c.New(t, newSecret("default", "mine", "one", "team-blue", "one"))
	expectSecret(t, c, "default", "public-a", one)
	expectSecret(t, c, "default", "public-b", two)
	expectSecret(t, c, "default", "of-tenant", one)
	expectSecret(t, e.Service, namespace, "mine-"+c.Cluster, one)
	if _, err := get(t.Context(), c, newSecret("default", "public-c", "")); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("a Secret that the selector does not match was copied, or %v", err)
	}
}

func TestR5ListOfReferences(t *testing.T) {
	t.Parallel()
	item := func(name string) any { return map[string]any{"secret": name} }
	e, c, object, copied := newRelated(t, installation.Beta, map[string]any{"items": []any{item("a"), item(""), item("c")}}, func(_ *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{relatedSecret("items", up, reference("spec.items.#.secret"))}
	})
	create(t, e.Service, newSecret(copied.GetNamespace(), "a", "one"))
	create(t, e.Service, newSecret(copied.GetNamespace(), "c", "two"))
	expectSecret(t, c, "default", "a", one)
	expectSecret(t, c, "default", "c", two)
	for i, name := range []string{"a", "c"} {
		expectField(t, c, object, fmt.Sprintf(`{"namespace":"default","name":%q,"apiVersion":"v1","kind":"Secret"}`, name),
			"metadata", "annotations", fmt.Sprintf("related-resources.syncagent.kcp.io/items.%d", i))
	}
}

func TestWatchSelectsPrimaryObjects(t *testing.T) {
	t.Parallel()
	e, c, object, copied := newRelated(t, installation.Root, map[string]any{"up": "up", "down": "down"}, func(_ *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{relatedSecret("up", up, reference("spec.up")), relatedSecret("down", down, reference("spec.down"))}
		for i := range spec.Related {
			spec.Related[i].Watch.BySelector.MatchLabels = map[string]string{"example.org/tier": "gold"}
		}
	})
	patch(t, c, object, `{"metadata":{"labels":{"example.org/tier":"gold"}}}`)
	expectField(t, e.Service, copied, "gold", "metadata", "labels", "example.org/tier")
	// Neither Secret has a label, and the primary object does not change any more.
	create(t, e.Service, newSecret(copied.GetNamespace(), "up", "one"))
	c.New(t, newSecret("default", "down", "one"))
	expectSecret(t, c, "default", "up", one)
	expectSecret(t, e.Service, copied.GetNamespace(), "down", one)
	patch(t, e.Service, newSecret(copied.GetNamespace(), "up", ""), `{"stringData":{"password":"two"}}`)
	patch(t, c, newSecret("default", "down", ""), `{"stringData":{"password":"two"}}`)
	expectSecret(t, c, "default", "up", two)
	expectSecret(t, e.Service, copied.GetNamespace(), "down", two)
}

func TestR6ConfigMapIsCopiedAsSecret(t *testing.T) {
	t.Parallel()
	e, c, _, copied := newRelated(t, installation.Alpha, map[string]any{}, func(_ *env, spec *syncagentv1alpha1.PublishedResourceSpec) {
		related := relatedSecret("config", down, bySide("config", "config"))
		related.Kind, related.Version, related.Resource = "", "v1", "configmaps"
		related.Projection = &syncagentv1alpha1.RelatedResourceProjection{Resource: "secrets"}
		spec.Related = []syncagentv1alpha1.RelatedResourceSpec{related}
	})
	c.New(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "config"}, Data: map[string]string{"password": one}})
	expectSecret(t, e.Service, copied.GetNamespace(), "config", one)
}

// relatedThing is a related resource of a kind of the test.
func relatedThing(kind schema.GroupVersionKind, origin syncagentv1alpha1.RelatedResourceOrigin, name string) syncagentv1alpha1.RelatedResourceSpec {
	related := relatedSecret(name, origin, bySide(name, name))
	related.Kind, related.Group, related.Version, related.Resource = "", kind.Group, kind.Version, "things"
	return related
}
