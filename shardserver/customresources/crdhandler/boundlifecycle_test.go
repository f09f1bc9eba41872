package crdhandler_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func testBoundCoreGroup(t *testing.T, shard *shardtesting.Shard) {
	pods := newDefinition("")
	pods.Name = "pods.core"
	pods.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "pods", Singular: "pod", Kind: "Pod", ListKind: "PodList"}
	e := newExportedResource(t, shard, pods)
	w := newWorkspace(t, shard)
	w.bind(shard, "pods", e)
	pod := newWidget("one", nil)
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	objects := dynamic.NewForConfigOrDie(w.config).Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("default")
	if _, err := objects.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if list, err := objects.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 || list.GetAPIVersion() != "v1" {
		t.Errorf("the list is %v, %v", list, err)
	}
	if key := "/registry/core/pods/" + e.Schema.IdentityHash + "/" + w.name + "/default/one"; !slices.Contains(shard.Keys(t, key), key) {
		t.Errorf("missing key %s", key)
	}
	for path, want := range map[string]string{
		"/api/v1":            `"name":"pods/status"`,
		"/api":               `"resource":"pods"`,
		"/openapi/v3/api/v1": `/api/v1/namespaces/{namespace}/pods/{name}`,
		"/openapi/v2":        `/api/v1/namespaces/{namespace}/pods/{name}`,
	} {
		accept := acceptJSON
		if path == "/api" {
			accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		}
		if status, body, _ := w.doRaw(http.MethodGet, path, "", accept, ""); status != http.StatusOK || !strings.Contains(body, want) || !strings.Contains(body, "configmaps") {
			t.Errorf("%s: %d, without %s", path, status, want)
		}
	}
	if status, body, _ := newWildcardWorkspace(t, shard).doRaw(http.MethodGet, "/api/v1/pods:"+e.Schema.IdentityHash, "", acceptJSON, ""); status != http.StatusOK || !strings.Contains(body, w.name) {
		t.Errorf("over all workspaces: %d %s", status, body)
	}
}

func testBuiltInIsNotHidden(t *testing.T, shard *shardtesting.Shard) {
	maps := newDefinition("")
	maps.Name = "configmaps.core"
	maps.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "configmaps", Singular: "configmap", Kind: "ConfigMap", ListKind: "ConfigMapList"}
	e := newExportedResource(t, shard, maps)
	w := newWorkspace(t, shard)
	w.bind(shard, "configmaps", e)
	clients := shard.Kubernetes(t, w.config)
	created, err := clients.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	if err != nil || created.Data["a"] != "b" {
		t.Errorf("a config map: %v, %v", created, err)
	}
	if keys := shard.Keys(t, "/core/configmaps/"+e.Schema.IdentityHash); len(keys) > 0 {
		t.Errorf("unexpected keys %v", keys)
	}
}

func testPathSegmentNames(t *testing.T, shard *shardtesting.Shard) {
	defaultNames := newExportedResource(t, shard, newDefinition("example.com"))
	pathNames := newExportedResource(t, shard, newDefinition("example.com"), func(s *apisv1alpha1.APIResourceSchema) {
		s.Spec.NameValidation = apisv1alpha1.NameValidationPathSegmentName
	})
	strict, lenient := newWorkspace(t, shard), newWorkspace(t, shard)
	strict.bind(shard, "widgets", defaultNames)
	lenient.bind(shard, "widgets", pathNames)
	if _, err := strict.objects("v1").Create(t.Context(), newWidget("Some:Name_1", nil), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an invalid DNS name: got %v, want Invalid", err)
	}
	lenient.create(newWidget("Some:Name_1", nil))
	if got := lenient.get("Some:Name_1"); got.GetName() != "Some:Name_1" {
		t.Errorf("got %v", got)
	}
	for _, bad := range []string{"a%2fb", ".."} {
		if _, err := lenient.objects("v1").Create(t.Context(), newWidget(bad, nil), metav1.CreateOptions{}); err == nil {
			t.Errorf("%q was accepted as a name", bad)
		}
	}
	if _, err := lenient.objects("v1").Create(t.Context(), newWidget("Three", map[string]any{"size": int64(3)}), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an object that violates the schema: got %v, want Invalid", err)
	}
}

func testBoundVersions(t *testing.T, shard *shardtesting.Shard) {
	definition := newDefinition("example.com")
	second := definition.Spec.Versions[0].DeepCopy()
	second.Name, second.Storage = "v2", false
	definition.Spec.Versions = append(definition.Spec.Versions, *second)
	e := newExportedResource(t, shard, definition)
	w := newWorkspace(t, shard)
	w.bind(shard, "widgets", e)
	w.create(newWidget("one", nil))
	if got, err := w.objects("v2").Get(t.Context(), "one", metav1.GetOptions{}); err != nil || got.GetAPIVersion() != "example.com/v2" {
		t.Errorf("in the other version: %v, %v", got, err)
	}
	if status, body, _ := w.doRaw(http.MethodGet, "/apis/example.com", "", acceptJSON, ""); status != http.StatusOK || !strings.Contains(body, `"preferredVersion":{"groupVersion":"example.com/v2"`) {
		t.Errorf("discovery: %d %s", status, body)
	}
}

func testVirtualStorage(t *testing.T, shard *shardtesting.Shard) {
	e := newExportedResource(t, shard, newDefinition("example.com"))
	e.StorageVersions = nil
	w := newWorkspace(t, shard)
	w.bind(shard, "widgets", e)
	status, body, _ := w.doRaw(http.MethodGet, widgetsPath, "", acceptJSON, "")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "virtual storage") {
		t.Errorf("virtual storage: %d %s", status, body)
	}
	if status, body, _ := w.doRaw(http.MethodGet, "/apis/example.com/v1", "", acceptJSON, ""); status != http.StatusOK || strings.Contains(body, `"create"`) || !strings.Contains(body, `"watch"`) {
		t.Errorf("discovery: %d %s", status, body)
	}
	if keys := shard.Keys(t, "/example.com/widgets/"+e.Schema.IdentityHash); len(keys) > 0 {
		t.Errorf("unexpected keys %v", keys)
	}
}

func testQuotaAndGarbageCollection(t *testing.T, shard *shardtesting.Shard) {
	group := "owned.example.com"
	e := newExportedResource(t, shard, newDefinition(group))
	w := newWorkspace(t, shard)
	w.bind(shard, "widgets", e)
	clients := shard.Kubernetes(t, w.config)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceName("count/widgets." + group): resource.MustParse("1")}}}
	if _, err := clients.CoreV1().ResourceQuotas("default").Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	owner, err := clients.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := withGroup(newWidget("owned", nil), group)
	owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}})
	shardtesting.Eventually(t, "the quota has a status", func(ctx context.Context) error {
		_, err := w.objectsOf(group, "v1").Create(ctx, owned, metav1.CreateOptions{})
		return err
	})
	if _, err := w.objectsOf(group, "v1").Create(t.Context(), withGroup(newWidget("too-many", nil), group), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("one more than the quota allows: got %v, want Forbidden", err)
	}
	if err := clients.CoreV1().ConfigMaps("default").Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "dependents are deleted with their owner", func(ctx context.Context) error {
		if _, err := w.objectsOf(group, "v1").Get(ctx, "owned", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v, want NotFound", err)
		}
		return nil
	})
}

func testBoundObjectDeletion(t *testing.T, shard *shardtesting.Shard) {
	e := newExportedResource(t, shard, newDefinition("example.com"))
	w := newWorkspace(t, shard)
	w.bind(shard, "widgets", e)
	clients := shard.Kubernetes(t, w.config)
	if _, err := clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "brief"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.create(newWidget("one", nil))
	if _, err := w.clusterObjects("v1").Namespace("brief").Create(t.Context(), newWidgetIn("brief"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	prefix := "/example.com/widgets/" + e.Schema.IdentityHash + "/" + w.name + "/"
	expectKeys := func(want ...string) {
		t.Helper()
		shardtesting.Eventually(t, "the keys", func(context.Context) error {
			if keys := shard.Keys(t, prefix); len(keys) != len(want) {
				return fmt.Errorf("keys are %v, want %v", keys, want)
			}
			return nil
		})
	}
	expectKeys("default/one", "brief/one")
	if err := clients.CoreV1().Namespaces().Delete(t.Context(), "brief", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expectKeys("default/one")
	// The finalizer of the test would block the deletion of the binding.
	w.removeFinalizers(shard, "widgets")
	ctx := shardtesting.In(t.Context(), "root")
	if err := shard.Client(t, shard.Admin(t)).Delete(ctx, &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: w.workspace}}); err != nil {
		t.Fatal(err)
	}
	expectKeys()
	shardtesting.Eventually(t, "no object remains", func(context.Context) error {
		if keys := shard.Keys(t, "/"+w.name+"/"); len(keys) > 0 {
			return fmt.Errorf("remaining keys are %v", keys)
		}
		return nil
	})
}

func testBoundCRDsAreNotServed(t *testing.T, shard *shardtesting.Shard) {
	group := "schemas.example.com"
	newExportedResource(t, shard, newDefinition(group))
	duplicate := newDefinition(group)
	newExportedResource(t, shard, duplicate) // with the same names
	masters := &workspace{T: t, config: shardtesting.At(shard.Masters(t), "system:bound-crds")}
	if status, _, _ := masters.doRaw(http.MethodGet, "/apis/"+group+"/v1/widgets", "", acceptJSON, ""); status != http.StatusNotFound {
		t.Errorf("got status %d", status)
	}
	if status, body, _ := masters.doRaw(http.MethodGet, "/apis", "", acceptJSON, ""); status != http.StatusOK || strings.Contains(body, group) {
		t.Errorf("discovery: %d %s", status, body)
	}
}

func testExportedWithoutBindings(t *testing.T, shard *shardtesting.Shard) {
	group := "claimed.example.com"
	w := newWorkspace(t, shard)
	gr := schema.GroupResource{Group: group, Resource: "widgets"}
	createdExport := shard.NewExport(t, w.name, "widgets", gr, "Widget")
	path := "/apis/" + group + "/v1/widgets:" + createdExport.Status.IdentityHash
	masters := newWildcardWorkspace(t, shard)
	if status, body, _ := masters.doRaw(http.MethodGet, path, "", acceptJSON, ""); status != http.StatusNotFound && status != http.StatusOK {
		t.Errorf("without a definition: %d %s", status, body)
	}
	resourceSchema := &apisv1alpha1.APIResourceSchema{}
	resourceSchema.Name = "v1.widgets." + group
	if err := shard.Client(t, shard.Admin(t)).Get(shardtesting.In(t.Context(), w.name), objectKey(resourceSchema), resourceSchema); err != nil {
		t.Fatal(err)
	}
	e := describeResource(shard, newDefinition(group))
	e.Schema.UID = string(resourceSchema.UID)
	e.createDefinition(t, newDefinition(group))
	if status, body, _ := masters.doRaw(http.MethodGet, path, "", acceptJSON, ""); status != http.StatusOK || !strings.Contains(body, `"WidgetList"`) {
		t.Errorf("with a definition: %d %s", status, body)
	}
	watcher, err := dynamic.NewForConfigOrDie(masters.config).Resource(gr.WithVersion("v1")).Watch(t.Context(), metav1.ListOptions{})
	if err == nil {
		watcher.Stop()
		t.Error("whole objects over all workspaces without an identity")
	}
	if resource, err := dynamic.NewForConfigOrDie(masters.config).Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets:" + createdExport.Status.IdentityHash}).Watch(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	} else {
		defer resource.Stop()
		e.Schema.IdentityHash = createdExport.Status.IdentityHash
		w.bind(shard, "mine", e)
		w.create(withGroup(newWidget("one", nil), group))
		if event := <-resource.ResultChan(); event.Object.(*unstructured.Unstructured).GetName() != "one" {
			t.Errorf("the event is %v", event)
		}
	}
}

func testMetadataOfAllStorages(t *testing.T, shard *shardtesting.Shard) {
	group := "global.example.com"
	first, second := newExportedResource(t, shard, newDefinition(group)), newExportedResource(t, shard, newDefinition(group))
	a, b, local := newWorkspace(t, shard), newWorkspace(t, shard), newWorkspace(t, shard)
	a.bind(shard, "widgets", first)
	b.bind(shard, "widgets", second)
	local.define(newDefinition(group))
	want := make([]string, 0, 3)
	for _, w := range []*workspace{a, b, local} {
		w.create(withGroup(newWidget("one", nil), group))
		want = append(want, w.name+"/one")
	}
	slices.Sort(want)
	masters := newWildcardWorkspace(t, shard)
	path := "/apis/" + group + "/v1/widgets"
	if status, body, _ := masters.doRaw(http.MethodGet, path+"?limit=1", "", acceptMetadata, ""); status != http.StatusOK || !slices.Equal(parseNames(t, body), want) {
		t.Errorf("the metadata is %d %s, want %v", status, body, want)
	}
	if status, body, _ := masters.doRaw(http.MethodGet, path, "", acceptJSON, ""); status != http.StatusNotFound {
		t.Errorf("whole objects: %d %s", status, body)
	}
	sendInitial := true
	watcher, err := metadata.NewForConfigOrDie(masters.config).Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}).
		Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &sendInitial, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	var got []string
	for {
		partial := (<-watcher.ResultChan()).Object.(*metav1.PartialObjectMetadata)
		if partial.Annotations[metav1.InitialEventsAnnotationKey] != "" {
			break
		}
		got = append(got, logicalcluster.Of(partial).String()+"/"+partial.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("a watch started with %v, want %v", got, want)
	}
	b.create(withGroup(newWidget("two", nil), group))
	if event := <-watcher.ResultChan(); event.Object.(*metav1.PartialObjectMetadata).Name != "two" {
		t.Errorf("the event is %v", event)
	}
}

func testMetadataWatchEnds(t *testing.T, shard *shardtesting.Shard) {
	group := "more.example.com"
	first, second := newExportedResource(t, shard, newDefinition(group)), newExportedResource(t, shard, newDefinition(group))
	w := newWorkspace(t, shard)
	w.bind(shard, "widgets", first)
	w.create(withGroup(newWidget("one", nil), group))
	watcher, err := metadata.NewForConfigOrDie(newWildcardWorkspace(t, shard).config).Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	<-watcher.ResultChan()
	other := newWorkspace(t, shard)
	other.bind(shard, "widgets", second)
	for range watcher.ResultChan() { // until it ends, so that its client lists again
	}
}

func testEqualBindingsShareCRD(t *testing.T, shard *shardtesting.Shard) {
	group := "same.example.com"
	e := newExportedResource(t, shard, newDefinition(group))
	a, b := newWorkspace(t, shard), newWorkspace(t, shard)
	for _, w := range []*workspace{a, b} {
		w.bind(shard, "widgets", e)
		w.create(withGroup(newWidget("one", nil), group))
	}
	x, y := shard.Server.Definitions().ListServed(shardtesting.In(t.Context(), a.name)), shard.Server.Definitions().ListServed(shardtesting.In(t.Context(), b.name))
	if len(x) != 1 || len(y) != 1 || x[0].CRD != y[0].CRD {
		t.Errorf("they have different compiled CRDs: %v, %v", x, y)
	}
	for _, path := range []string{"/apis/" + group + "/v1", "/openapi/v3/apis/" + group + "/v1", "/openapi/v2"} {
		_, first, _ := a.doRaw(http.MethodGet, path, "", acceptJSON, "")
		_, second, _ := b.doRaw(http.MethodGet, path, "", acceptJSON, "")
		if first != second || !strings.Contains(first, "widgets") {
			t.Errorf("%s differs", path)
		}
	}
	_, first, _ := a.doRaw(http.MethodGet, "/openapi/v3", "", acceptJSON, "")
	_, second, _ := b.doRaw(http.MethodGet, "/openapi/v3", "", acceptJSON, "")
	if first != second {
		t.Errorf("the indices differ: %s, %s", first, second)
	}
}

// TestBoundCRDsClose checks that nothing remains in memory after the last binding is deleted.
func TestBoundCRDsClose(t *testing.T) {
	shard := shardtesting.Start(t)
	baseline := newRegistryBaseline(t, shard)
	e := newExportedResource(t, shard, newDefinition("example.com"))
	a, b := newWorkspace(t, shard), newWorkspace(t, shard)
	expect := func(want int) {
		t.Helper()
		shardtesting.Eventually(t, "the registry", func(context.Context) error {
			if _, c, s := baseline.addedSizes(); c != want || s != want {
				return fmt.Errorf("%d compiled CRDs, %d storages; want %d each", c, s, want)
			}
			return nil
		})
	}
	bindAndUnbind := func() {
		for _, w := range []*workspace{a, b} {
			w.bind(shard, "widgets", e)
			w.create(newWidget("one-"+rand.String(6), nil))
		}
		expect(1)
		watcher, err := a.objects("v1").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Stop()
		for _, w := range []*workspace{a, b} {
			w.unbind(shard, "widgets")
		}
		for range watcher.ResultChan() { // until it ends
		}
		expect(0)
	}
	bindAndUnbind()
	before := goroutineStacks()
	bindAndUnbind()
	bindAndUnbind()
	shardtesting.Eventually(t, "no goroutine remains", func(context.Context) error {
		if after := goroutineStacks(); len(after) > len(before) {
			return fmt.Errorf("%d goroutines, then %d:\n%s", len(before), len(after), strings.Join(after, "\n\n"))
		}
		return nil
	})
}
