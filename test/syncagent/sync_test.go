package syncagent

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/test/installation"
)

// newPublished returns an environment with a running agent that publishes the kind Widget.
func newPublished(t *testing.T, changes ...func(*syncagentv1alpha1.PublishedResourceSpec)) (*env, schema.GroupVersionKind) {
	t.Helper()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	spec := Of(kind)
	for _, change := range changes {
		change(&spec)
	}
	e.Publish(t, "widgets", spec)
	e.Agent(t)
	return e, kind
}

func TestS1ObjectsAreCopied(t *testing.T) {
	t.Parallel()
	e, kind := newPublished(t, func(spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Naming = naming("{{ .ClusterName }}-widgets", "{{ .Object.metadata.namespace }}-{{ .Object.metadata.name }}")
	})
	for _, shard := range []string{installation.Root, installation.Alpha, installation.Beta} {
		c := e.Consumer(t, shard)
		object := newObject(kind, "default", "one", map[string]any{"size": "large", "count": int64(3)})
		c.New(t, object)
		copied := e.Copy(t, kind, c, object)
		expectKey(t, copied, c.Cluster+"-widgets", "default-one")
		if diff := cmp.Diff(object.Object["spec"], copied.Object["spec"]); diff != "" {
			t.Errorf("the spec of the copy (-source +copy):\n%s", diff)
		}
	}
}

func TestS2LegacyPlaceholdersNameCopies(t *testing.T) {
	t.Parallel()
	e, kind := newPublished(t, func(spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Naming = naming("ns-$remoteClusterName", "$remoteNamespaceHash-$remoteNameHash-$unknown")
		spec.Naming.Name = "w-$remoteNamespaceHash-$remoteNameHash"
	})
	c := e.Consumer(t, installation.Alpha)
	object := newObject(kind, "default", "one", map[string]any{})
	c.New(t, object)
	expectKey(t, e.Copy(t, kind, c, object), "ns-"+c.Cluster, "w-"+expression.ShortHash("default")+"-"+expression.ShortHash("one"))
}

func TestS3WorkspacesDoNotCollide(t *testing.T) {
	t.Parallel()
	e, kind := newPublished(t)
	copies := map[types.NamespacedName]bool{}
	for _, shard := range []string{installation.Alpha, installation.Beta} {
		c := e.Consumer(t, shard)
		object := newObject(kind, "default", "one", map[string]any{"of": c.Name})
		c.New(t, object)
		copied := e.Copy(t, kind, c, object)
		copies[client.ObjectKeyFromObject(copied)] = true
		if of, _, _ := unstructured.NestedString(copied.Object, "spec", "of"); of != c.Name {
			t.Errorf("the copy for %s is of %s", c.Name, of)
		}
	}
	if len(copies) != 2 {
		t.Errorf("the copies are %v", copies)
	}
}

func TestS4EditsOfACopySurviveUntilTheSourceChangesTheField(t *testing.T) {
	t.Parallel()
	e, kind := newPublished(t)
	c := e.Consumer(t, installation.Beta)
	object := newObject(kind, "default", "one", map[string]any{"a": "source", "b": "source"})
	c.New(t, object)
	copied := e.Copy(t, kind, c, object)
	patch(t, e.Service, copied, `{"spec":{"a":"local","c":"local"}}`)
	patch(t, c, object, `{"spec":{"b":"changed"}}`)
	expectSpec(t, e.Service, copied, map[string]any{"a": "local", "b": "changed", "c": "local"})
	patch(t, c, object, `{"spec":{"a":"changed"}}`)
	expectSpec(t, e.Service, copied, map[string]any{"a": "changed", "b": "changed", "c": "local"})
}

func TestS5OnlyMatchingObjectsAreCopied(t *testing.T) {
	t.Parallel()
	e, kind := newPublished(t, func(spec *syncagentv1alpha1.PublishedResourceSpec) {
		spec.Filter = &syncagentv1alpha1.ResourceFilter{Resource: &metav1.LabelSelector{MatchLabels: map[string]string{"publish": "yes"}}}
	})
	c := e.Consumer(t, installation.Root)
	ignored, wanted := newObject(kind, "default", "ignored", map[string]any{}), newObject(kind, "default", "wanted", map[string]any{})
	wanted.SetLabels(map[string]string{"publish": "yes"})
	c.New(t, ignored)
	c.New(t, wanted)
	e.Copy(t, kind, c, wanted)
	if copies, err := e.Copies(t.Context(), kind, c, ignored); err != nil || len(copies) > 0 {
		t.Errorf("the other object has %d copies, %v", len(copies), err)
	}
	if current, err := get(t.Context(), c, ignored); err != nil || len(current.GetFinalizers()) > 0 {
		t.Errorf("the other object has the finalizers %v, %v", current.GetFinalizers(), err)
	}
	patch(t, c, ignored, `{"metadata":{"labels":{"publish":"yes"}}}`)
	e.Copy(t, kind, c, ignored)
}

func TestS6LongNames(t *testing.T) {
	t.Parallel()
	e, kind := newPublished(t)
	c := e.Consumer(t, installation.Alpha)
	object := newObject(kind, "default", strings.Repeat("n", 250), map[string]any{})
	c.New(t, object)
	e.Copy(t, kind, c, object)
}

func TestS7CopiesHaveThePathOfTheWorkspace(t *testing.T) {
	t.Parallel()
	e, kind := newPublished(t, func(spec *syncagentv1alpha1.PublishedResourceSpec) { spec.EnableWorkspacePaths = true })
	c := e.Consumer(t, installation.Beta)
	object := newObject(kind, "default", "one", map[string]any{})
	c.New(t, object)
	if path := e.Copy(t, kind, c, object).GetAnnotations()[publication.AnnotationWorkspacePath]; path != c.Path {
		t.Errorf("the path is %q, want %q", path, c.Path)
	}
}

func TestS8SeveralPublishedResources(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	e.Publish(t, "widgets", Of(kind))
	configMap := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	spec := Of(configMap)
	spec.Projection = &syncagentv1alpha1.ResourceProjection{Group: e.Group, Kind: "Settings", Plural: "settings"}
	e.Publish(t, "settings", spec)
	e.Agent(t)
	c := e.Consumer(t, installation.Alpha)
	widget := newObject(kind, "default", "one", map[string]any{})
	c.New(t, widget)
	settings := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"key": "value"}}}
	settings.SetGroupVersionKind(schema.GroupVersionKind{Group: e.Group, Version: "v1", Kind: "Settings"})
	settings.SetNamespace("default")
	settings.SetName("one")
	c.New(t, settings)
	e.Copy(t, kind, c, widget)
	copied := e.Copy(t, configMap, c, settings)
	if value, _, _ := unstructured.NestedString(copied.Object, "data", "key"); value != "value" {
		t.Errorf("the ConfigMap has the data %v", copied.Object["data"])
	}
}

// All other tests have the slice at the other supported location: the workspace of the export.
func TestS9TheSliceIsInAnotherWorkspace(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	e.Publish(t, "widgets", Of(kind))
	elsewhere := e.NewWorkspace(t, e.Name+"-slice", e.Name+"-provider", shardtesting.OnShard(installation.Alpha))
	slice := &apisv1alpha1.APIExportEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}
	slice.Spec.APIExport = apisv1alpha1.ExportBindingReference{Path: e.ProviderPath, Name: e.Name}
	create(t, newClient(t, elsewhere), slice)
	e.Agent(t, func(o *options.Options) {
		o.EndpointSlice = slice.Name
		installation.WriteKubeconfig(t, elsewhere, o.KcpKubeconfig)
	})
	c := e.Consumer(t, installation.Beta)
	object := newObject(kind, "default", "one", map[string]any{})
	c.New(t, object)
	e.Copy(t, kind, c, object)
}

func expectKey(t *testing.T, object *unstructured.Unstructured, namespace, name string) {
	t.Helper()
	if object.GetNamespace() != namespace || object.GetName() != name {
		t.Errorf("the copy is %s/%s, want %s/%s", object.GetNamespace(), object.GetName(), namespace, name)
	}
}

func patch(t *testing.T, c client.Client, object client.Object, merge string) {
	t.Helper()
	if err := c.Patch(t.Context(), object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(merge))); err != nil {
		t.Fatal(err)
	}
}

// expectSpec waits until an object has a spec.
func expectSpec(t *testing.T, c client.Client, object *unstructured.Unstructured, want map[string]any) {
	t.Helper()
	shardtesting.Eventually(t, "the spec of "+object.GetName(), func(ctx context.Context) error {
		current, err := get(ctx, c, object)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, current.Object["spec"]); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}
