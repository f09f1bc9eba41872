package crdhandler_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestBoundResources covers serving bound resources without the controllers of bindings: the test writes the definitions of
// schemas and the status of bindings.
func TestBoundResources(t *testing.T) {
	shard := shardtesting.Start(t)
	for name, test := range map[string]func(*testing.T, *shardtesting.Shard){
		"a bound resource is served":                                  testBoundResource,
		"a resource is served once its binding is bound":              testServedOnceBound,
		"a new schema applies to all bindings":                        testSchemaReplacement,
		"a terminating binding rejects creations":                     testTerminatingBinding,
		"a bound resource hides a defined one":                        testBoundHidesDefined,
		"unavailable without a definition":                            testUnavailableWithoutDefinition,
		"the same resource of two exports":                            testSameResourceOfTwoExports,
		"a resource of the core group":                                testBoundCoreGroup,
		"a built-in resource is not hidden":                           testBuiltInIsNotHidden,
		"names that are path segments":                                testPathSegmentNames,
		"several versions of a bound resource":                        testBoundVersions,
		"virtual storage without a virtual workspace":                 testVirtualStorage,
		"quota and garbage collection of bound objects":               testQuotaAndGarbageCollection,
		"deleting a namespace and a workspace with bound objects":     testBoundObjectDeletion,
		"a definition of a schema is not served in system:bound-crds": testBoundCRDsAreNotServed,
		"an exported identity without bindings is listed":             testExportedWithoutBindings,
		"a metadata watch ends when a storage is added":               testMetadataWatchEnds,
		"metadata over all workspaces has every storage":              testMetadataOfAllStorages,
		"equal bindings share a compiled CRD":                         testEqualBindingsShareCRD,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, shard)
		})
	}
}

// exportedResource is a resource of an export as in the status of bindings, with its definition in system:bound-crds.
type exportedResource struct {
	shard *shardtesting.Shard
	apisv1alpha2.BoundAPIResource
}

// newExportedResource creates the definition of a schema with the content of the given one, under a new identity.
func newExportedResource(t *testing.T, shard *shardtesting.Shard, definition *apiextensionsv1.CustomResourceDefinition, changes ...func(*apisv1alpha1.APIResourceSchema)) exportedResource {
	t.Helper()
	e := describeResource(shard, definition)
	e.Schema.IdentityHash = newIdentityHash()
	e.createDefinition(t, definition, changes...)
	return e
}

// describeResource is newExportedResource without creating the definition.
func describeResource(shard *shardtesting.Shard, definition *apiextensionsv1.CustomResourceDefinition) exportedResource {
	return exportedResource{shard, apisv1alpha2.BoundAPIResource{
		Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural, StorageVersions: []string{"v1"},
		Schema: apisv1alpha2.BoundAPIResourceSchema{Name: "v1." + definition.Name, UID: string(uuid.NewUUID())},
	}}
}

// newIdentityHash returns a new identity.
func newIdentityHash() string {
	sum := sha256.Sum256([]byte(rand.String(20)))
	return hex.EncodeToString(sum[:])
}

// replaceSchema returns the same resource with another schema.
func (e exportedResource) replaceSchema(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition) exportedResource {
	t.Helper()
	next := describeResource(e.shard, definition)
	next.Schema.Name, next.Schema.IdentityHash = "v2."+definition.Name, e.Schema.IdentityHash
	next.createDefinition(t, definition)
	return next
}

// createDefinition creates the definition of the schema, and waits until it is established.
func (e exportedResource) createDefinition(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition, changes ...func(*apisv1alpha1.APIResourceSchema)) {
	t.Helper()
	definitionObject, err := apiindex.BoundCRD(newSchema(t, e, definition, changes...))
	if err != nil {
		t.Fatal(err)
	}
	masters := e.shard.Client(t, e.shard.Masters(t))
	if err := masters.Create(shardtesting.In(t.Context(), "system:bound-crds"), definitionObject); err != nil {
		t.Fatal(err)
	}
	w := &workspace{T: t, config: shardtesting.At(e.shard.Masters(t), "system:bound-crds")}
	w.waitEstablished(definitionObject.Name)
}

func newSchema(t *testing.T, e exportedResource, definition *apiextensionsv1.CustomResourceDefinition, changes ...func(*apisv1alpha1.APIResourceSchema)) *apisv1alpha1.APIResourceSchema {
	t.Helper()
	resourceSchema := &apisv1alpha1.APIResourceSchema{
		ObjectMeta: metav1.ObjectMeta{Name: e.Schema.Name, UID: types.UID(e.Schema.UID), Annotations: map[string]string{"kcp.io/cluster": "provider"}},
		Spec:       apisv1alpha1.APIResourceSchemaSpec{Group: definition.Spec.Group, Names: definition.Spec.Names, Scope: definition.Spec.Scope},
	}
	if len(definition.Spec.Versions) > 1 {
		resourceSchema.Spec.Conversion = &apisv1alpha1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	}
	for _, version := range definition.Spec.Versions {
		raw, err := json.Marshal(version.Schema.OpenAPIV3Schema)
		if err != nil {
			t.Fatal(err)
		}
		schemaVersion := apisv1alpha1.APIResourceVersion{
			Name: version.Name, Served: version.Served, Storage: version.Storage, Schema: runtime.RawExtension{Raw: raw},
			AdditionalPrinterColumns: version.AdditionalPrinterColumns, SelectableFields: version.SelectableFields,
		}
		if version.Subresources != nil {
			schemaVersion.Subresources = *version.Subresources
		}
		resourceSchema.Spec.Versions = append(resourceSchema.Spec.Versions, schemaVersion)
	}
	for _, change := range changes {
		change(resourceSchema)
	}
	return resourceSchema
}

// bind creates a binding and its status. It returns the written status.
func (w *workspace) bind(shard *shardtesting.Shard, name string, resources ...exportedResource) {
	w.Helper()
	masters := shard.Client(w, shard.Masters(w))
	ctx := shardtesting.In(w.Context(), w.name)
	err := masters.Create(ctx, &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/hold"}},
		Spec: apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{
			Export: &apisv1alpha2.ExportBindingReference{Path: "root", Name: name}, // admission does not check bindings to root
		}},
	})
	if err != nil {
		w.Fatal(err)
	}
	w.rebind(shard, name, resources...)
}

// rebind replaces the bound resources of a binding.
func (w *workspace) rebind(shard *shardtesting.Shard, name string, resources ...exportedResource) {
	w.Helper()
	masters := shard.Client(w, shard.Masters(w))
	ctx := shardtesting.In(w.Context(), w.name)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		binding := &apisv1alpha2.APIBinding{}
		if err := masters.Get(ctx, client.ObjectKey{Name: name}, binding); err != nil {
			return err
		}
		binding.Status.APIExportClusterName, binding.Status.Phase = "provider", apisv1alpha2.APIBindingPhaseBound
		binding.Status.BoundResources = nil
		for _, resource := range resources {
			binding.Status.BoundResources = append(binding.Status.BoundResources, resource.BoundAPIResource)
		}
		return masters.Status().Update(ctx, binding)
	})
	if err != nil {
		w.Fatal(err)
	}
}

// unbind deletes a binding without its objects.
func (w *workspace) unbind(shard *shardtesting.Shard, name string) {
	w.Helper()
	masters := shard.Client(w, shard.Masters(w))
	ctx := shardtesting.In(w.Context(), w.name)
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := masters.Delete(ctx, binding); err != nil {
		w.Fatal(err)
	}
	w.removeFinalizers(shard, name)
}

// removeFinalizers removes the finalizers of a binding.
func (w *workspace) removeFinalizers(shard *shardtesting.Shard, name string) {
	w.Helper()
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := shard.Client(w, shard.Masters(w)).Patch(shardtesting.In(w.Context(), w.name), binding, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
}

func objectKey(object client.Object) client.ObjectKey { return client.ObjectKeyFromObject(object) }

// newWildcardWorkspace returns a client of a cluster administrator over all logical clusters.
func newWildcardWorkspace(t *testing.T, shard *shardtesting.Shard) *workspace {
	return &workspace{T: t, config: shardtesting.At(shard.Masters(t), "*")}
}

// parseNames returns "<cluster>/<name>" of the items of a list, sorted.
func parseNames(t *testing.T, body string) []string {
	t.Helper()
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatalf("no list: %v: %s", err, body)
	}
	names := make([]string, 0, len(list.Items))
	for _, item := range list.Items {
		names = append(names, logicalcluster.Of(&item).String()+"/"+item.Name)
	}
	slices.Sort(names)
	return names
}

const (
	acceptTable    = "application/json;as=Table;g=meta.k8s.io;v=v1"
	acceptMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	widgetsOverAll = "/apis/example.com/v1/widgets"
)

func testBoundResource(t *testing.T, shard *shardtesting.Shard) {
	definition := newDefinition("example.com")
	definition.Spec.Versions[0].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Size", Type: "string", JSONPath: ".spec.size"}}
	definition.Spec.Versions[0].SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.size"}}
	e := newExportedResource(t, shard, definition)
	w, local := newWorkspace(t, shard), newWorkspace(t, shard)
	w.bind(shard, "widgets", e)
	one := w.create(newWidget("one", map[string]any{"size": "big", "stray": "pruned"}))
	if spec := one.Object["spec"].(map[string]any); spec["stray"] != nil || spec["colour"] != "red" {
		t.Errorf("the object was not pruned and defaulted: %v", spec)
	}
	w.create(newWidget("two", map[string]any{"size": "small"}))
	if _, err := w.objects("v1").Create(t.Context(), newWidget("three", map[string]any{"size": int64(3)}), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an object that violates the schema: got %v, want Invalid", err)
	}
	if list, err := w.objects("v1").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.size=big"}); err != nil || len(list.Items) != 1 {
		t.Errorf("objects by field selector are %v, %v", list, err)
	}
	if _, err := w.objects("v1").Patch(t.Context(), "one", types.MergePatchType, []byte(`{"status":{"phase":"Up"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Error(err)
	}
	if _, err := w.objects("v1").Patch(t.Context(), "one", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}, "scale"); err != nil {
		t.Error(err)
	}
	applied := newWidget("four", map[string]any{"colour": "blue"})
	if _, err := w.objects("v1").Apply(t.Context(), "four", applied, metav1.ApplyOptions{FieldManager: "test"}); err != nil {
		t.Error(err)
	}
	if status, body, _ := w.doRaw(http.MethodGet, widgetsPath, "", acceptTable, ""); status != http.StatusOK || !strings.Contains(body, `"Size"`) {
		t.Errorf("the table is %d %s", status, body)
	}
	local.define(newDefinition("example.com"))
	local.create(newWidget("one", nil))
	for _, key := range []string{
		"/registry/example.com/widgets/" + e.Schema.IdentityHash + "/" + w.name + "/default/one",
		"/registry/example.com/widgets/customresources/" + local.name + "/default/one",
		"/registry/apis.kcp.io/apibindings/customresources/" + w.name + "/widgets",
	} {
		if !slices.Contains(shard.Keys(t, key), key) {
			t.Errorf("missing key %s", key)
		}
	}
}

func testServedOnceBound(t *testing.T, shard *shardtesting.Shard) {
	e := newExportedResource(t, shard, newDefinition("example.com"))
	for range 5 {
		w := newWorkspace(t, shard)
		if status, _, _ := w.doRaw(http.MethodGet, widgetsPath, "", acceptJSON, ""); status != http.StatusNotFound {
			t.Errorf("before it is bound: %d", status)
		}
		w.bind(shard, "widgets", e)
		if status, body, _ := w.doRaw(http.MethodGet, widgetsPath, "", acceptJSON, ""); status != http.StatusOK {
			t.Errorf("right after it is bound: %d %s", status, body)
		}
		w.unbind(shard, "widgets")
		w.bind(shard, "again", e)
		if status, body, _ := w.doRaw(http.MethodGet, "/apis/example.com/v1", "", acceptJSON, ""); status != http.StatusOK || !strings.Contains(body, `"widgets"`) {
			t.Errorf("discovery right after it is bound: %d %s", status, body)
		}
	}
}

func testSchemaReplacement(t *testing.T, shard *shardtesting.Shard) {
	e := newExportedResource(t, shard, newDefinition("example.com"))
	a, b := newWorkspace(t, shard), newWorkspace(t, shard)
	for _, w := range []*workspace{a, b} {
		w.bind(shard, "widgets", e)
		w.create(newWidget("one", map[string]any{"weight": int64(3)}))
	}
	watcher, err := a.objects("v1").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	<-watcher.ResultChan()
	heavier := newDefinition("example.com")
	heavier.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["weight"] = apiextensionsv1.JSONSchemaProps{Type: "integer"}
	next := e.replaceSchema(t, heavier)
	for _, w := range []*workspace{a, b} {
		if spec := w.get("one").Object["spec"].(map[string]any); spec["weight"] != nil {
			t.Errorf("a field that is not in the schema yet: %v", spec)
		}
		w.rebind(shard, "widgets", next)
		shardtesting.Eventually(t, "the new schema is served", func(ctx context.Context) error {
			updated, err := w.objects("v1").Patch(ctx, "one", types.MergePatchType, []byte(`{"spec":{"weight":4}}`), metav1.PatchOptions{})
			if err == nil && updated.Object["spec"].(map[string]any)["weight"] != int64(4) {
				err = fmt.Errorf("got %v", updated.Object["spec"])
			}
			return err
		})
	}
	for range watcher.ResultChan() { // until it ends
	}
}

func testTerminatingBinding(t *testing.T, shard *shardtesting.Shard) {
	e := newExportedResource(t, shard, newDefinition("example.com"))
	w := newWorkspace(t, shard)
	w.bind(shard, "widgets", e)
	w.create(newWidget("one", nil))
	watcher, err := w.objects("v1").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	<-watcher.ResultChan()
	masters, wsCtx := shard.Client(t, shard.Masters(t)), shardtesting.In(t.Context(), w.name)
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}
	if err := masters.Delete(wsCtx, binding); err != nil {
		t.Fatal(err)
	}
	if err := masters.Get(wsCtx, client.ObjectKeyFromObject(binding), binding); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "creations are rejected", func(ctx context.Context) error {
		_, err := w.objects("v1").Create(ctx, newWidget("two-"+rand.String(5), nil), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %v, want Forbidden", err)
		}
		return nil
	})
	if status, body, _ := w.doRaw(http.MethodGet, "/apis/example.com/v1", "", acceptJSON, ""); status != http.StatusOK || strings.Contains(body, `"create"`) || !strings.Contains(body, `"deletecollection"`) {
		t.Errorf("discovery: %d %s", status, body)
	}
	if err := masters.Patch(wsCtx, binding, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	for event := range watcher.ResultChan() {
		if event.Type == watch.Error {
			t.Errorf("the watch failed: %v", event.Object)
		}
	}
	shardtesting.Eventually(t, "the resource is not served", func(context.Context) error {
		if status, body, _ := w.doRaw(http.MethodGet, widgetsPath, "", acceptJSON, ""); status != http.StatusNotFound {
			return fmt.Errorf("got %d %s", status, body)
		}
		return nil
	})
}

func testBoundHidesDefined(t *testing.T, shard *shardtesting.Shard) {
	e := newExportedResource(t, shard, newDefinition("example.com"))
	w := newWorkspace(t, shard)
	w.define(newDefinition("example.com"))
	w.create(newWidget("defined", nil))
	w.bind(shard, "widgets", e)
	expectNames := func(want ...string) {
		t.Helper()
		shardtesting.Eventually(t, "the objects", func(context.Context) error {
			status, body, _ := w.doRaw(http.MethodGet, widgetsPath, "", acceptJSON, "")
			if got := parseNames(t, body); status != http.StatusOK || !slices.Equal(got, want) {
				return fmt.Errorf("got %d %v, want %v", status, got, want)
			}
			return nil
		})
	}
	expectNames()
	w.create(newWidget("bound", nil))
	expectNames(w.name + "/bound")
	if err := w.definitions().Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the definition is deleted", func(ctx context.Context) error {
		if _, err := w.definitions().Get(ctx, "widgets.example.com", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v, want NotFound", err)
		}
		return nil
	})
	if keys := shard.Keys(t, "/customresources/"+w.name+"/default/defined"); len(keys) > 0 {
		t.Errorf("its objects remain: %v", keys)
	}
	expectNames(w.name + "/bound")
	// A definition of a resource that is bound is accepted once the binding is gone.
	again, err := w.definitions().Create(t.Context(), newDefinition("example.com"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.waitNotAccepted(again.Name, "WidgetList")
	w.unbind(shard, "widgets")
	w.waitEstablished(again.Name)
	expectNames()
	w.create(newWidget("defined", nil))
	expectNames(w.name + "/defined")
}

func testUnavailableWithoutDefinition(t *testing.T, shard *shardtesting.Shard) {
	e := describeResource(shard, newDefinition("example.com"))
	e.Schema.IdentityHash = newIdentityHash()
	w := newWorkspace(t, shard)
	w.bind(shard, "widgets", e)
	status, body, _ := w.doRaw(http.MethodGet, widgetsPath, "", acceptJSON, "")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "widgets.example.com is currently unavailable") {
		t.Errorf("without a definition: %d %s", status, body)
	}
	if status, body, _ := w.doRaw(http.MethodGet, "/apis", "", acceptJSON, ""); status != http.StatusOK || strings.Contains(body, "example.com") {
		t.Errorf("discovery without a definition: %d %s", status, body)
	}
	e.createDefinition(t, newDefinition("example.com"))
	w.create(newWidget("one", nil))
	masters := shard.Client(t, shard.Masters(t))
	deleted := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: e.Schema.UID}}
	if err := masters.Delete(shardtesting.In(t.Context(), "system:bound-crds"), deleted); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "it is unavailable again", func(context.Context) error {
		if status, body, _ := w.doRaw(http.MethodGet, widgetsPath, "", acceptJSON, ""); status != http.StatusServiceUnavailable {
			return fmt.Errorf("got %d %s", status, body)
		}
		return nil
	})
}

func testSameResourceOfTwoExports(t *testing.T, shard *shardtesting.Shard) {
	first, second := newExportedResource(t, shard, newDefinition("example.com")), newExportedResource(t, shard, newDefinition("example.com"))
	a, b, local := newWorkspace(t, shard), newWorkspace(t, shard), newWorkspace(t, shard)
	a.bind(shard, "widgets", first)
	b.bind(shard, "widgets", second)
	local.define(newDefinition("example.com"))
	for _, w := range []*workspace{a, b, local} {
		w.create(newWidget("one", nil))
	}
	masters := newWildcardWorkspace(t, shard)
	for w, e := range map[*workspace]exportedResource{a: first, b: second} {
		identified := "widgets:" + e.Schema.IdentityHash
		for _, accept := range []string{acceptJSON, acceptMetadata} {
			status, body, _ := masters.doRaw(http.MethodGet, "/apis/example.com/v1/"+identified, "", accept, "")
			if got := parseNames(t, body); status != http.StatusOK || !slices.Equal(got, []string{w.name + "/one"}) {
				t.Errorf("objects of one identity, as %s: %d %v", accept, status, got)
			}
		}
		if status, body, _ := masters.doRaw(http.MethodGet, "/apis/example.com/v1/"+identified+"?fieldSelector=metadata.name%3Done", "", acceptTable, ""); status != http.StatusOK || strings.Count(body, `"cells"`) != 1 {
			t.Errorf("a table of objects of one identity by name: %d %s", status, body)
		}
		if status, body, _ := w.doRaw(http.MethodGet, "/apis/example.com/v1/namespaces/default/"+identified+"/one", "", acceptJSON, ""); status != http.StatusOK {
			t.Errorf("by identity in its workspace: %d %s", status, body)
		}
		for _, other := range []*workspace{a, b, local} {
			if other == w {
				continue
			}
			if status, _, _ := other.doRaw(http.MethodGet, "/apis/example.com/v1/namespaces/default/"+identified+"/one", "", acceptJSON, ""); status != http.StatusNotFound {
				t.Errorf("by another identity: %d", status)
			}
		}
	}
	if status, _, _ := masters.doRaw(http.MethodGet, "/apis/example.com/v1/widgets:"+newIdentityHash(), "", acceptJSON, ""); status != http.StatusNotFound {
		t.Errorf("an unknown identity: %d", status)
	}
	watcher, err := dynamic.NewForConfigOrDie(masters.config).Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets:" + first.Schema.IdentityHash}).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	b.create(newWidget("two", nil))
	a.create(newWidget("three", nil))
	var got []string
	for len(got) < 2 {
		got = append(got, (<-watcher.ResultChan()).Object.(*unstructured.Unstructured).GetName())
	}
	if !slices.Equal(got, []string{"one", "three"}) {
		t.Errorf("a watch of one identity returned %v", got)
	}
}
