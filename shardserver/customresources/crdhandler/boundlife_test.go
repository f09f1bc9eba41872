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

func boundInCore(t *testing.T, shard *shardtesting.Shard) {
	pods := widgets("")
	pods.Name = "pods.core"
	pods.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "pods", Singular: "pod", Kind: "Pod", ListKind: "PodList"}
	e := export(t, shard, pods)
	w := newWorkspace(t, shard)
	w.bind(shard, "pods", e)
	pod := widget("one", nil)
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
		t.Errorf("there is no key %s", key)
	}
	for path, want := range map[string]string{
		"/api/v1":            `"name":"pods/status"`,
		"/api":               `"resource":"pods"`,
		"/openapi/v3/api/v1": `/api/v1/namespaces/{namespace}/pods/{name}`,
		"/openapi/v2":        `/api/v1/namespaces/{namespace}/pods/{name}`,
	} {
		accept := inJSON
		if path == "/api" {
			accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		}
		if status, body, _ := w.raw(http.MethodGet, path, "", accept, ""); status != http.StatusOK || !strings.Contains(body, want) || !strings.Contains(body, "configmaps") {
			t.Errorf("%s: %d, without %s", path, status, want)
		}
	}
	if status, body, _ := everywhere(t, shard).raw(http.MethodGet, "/api/v1/pods:"+e.Schema.IdentityHash, "", inJSON, ""); status != http.StatusOK || !strings.Contains(body, w.name) {
		t.Errorf("over all workspaces: %d %s", status, body)
	}
}

func builtInNotHidden(t *testing.T, shard *shardtesting.Shard) {
	maps := widgets("")
	maps.Name = "configmaps.core"
	maps.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "configmaps", Singular: "configmap", Kind: "ConfigMap", ListKind: "ConfigMapList"}
	e := export(t, shard, maps)
	w := newWorkspace(t, shard)
	w.bind(shard, "configmaps", e)
	clients := shard.Kubernetes(t, w.config)
	created, err := clients.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	if err != nil || created.Data["a"] != "b" {
		t.Errorf("a config map: %v, %v", created, err)
	}
	if keys := shard.Keys(t, "/core/configmaps/"+e.Schema.IdentityHash); len(keys) > 0 {
		t.Errorf("there are keys %v", keys)
	}
}

func pathSegmentNames(t *testing.T, shard *shardtesting.Shard) {
	plain := export(t, shard, widgets("example.com"))
	lax := export(t, shard, widgets("example.com"), func(s *apisv1alpha1.APIResourceSchema) {
		s.Spec.NameValidation = apisv1alpha1.NameValidationPathSegmentName
	})
	strict, lenient := newWorkspace(t, shard), newWorkspace(t, shard)
	strict.bind(shard, "widgets", plain)
	lenient.bind(shard, "widgets", lax)
	if _, err := strict.objects("v1").Create(t.Context(), widget("Some:Name_1", nil), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a name that is no DNS name: got %v, want Invalid", err)
	}
	lenient.create(widget("Some:Name_1", nil))
	if got := lenient.get("Some:Name_1"); got.GetName() != "Some:Name_1" {
		t.Errorf("got %v", got)
	}
	for _, bad := range []string{"a%2fb", ".."} {
		if _, err := lenient.objects("v1").Create(t.Context(), widget(bad, nil), metav1.CreateOptions{}); err == nil {
			t.Errorf("%q was taken for a name", bad)
		}
	}
	if _, err := lenient.objects("v1").Create(t.Context(), widget("Three", map[string]any{"size": int64(3)}), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an object against the schema: got %v, want Invalid", err)
	}
}

func boundVersions(t *testing.T, shard *shardtesting.Shard) {
	definition := widgets("example.com")
	second := definition.Spec.Versions[0].DeepCopy()
	second.Name, second.Storage = "v2", false
	definition.Spec.Versions = append(definition.Spec.Versions, *second)
	e := export(t, shard, definition)
	w := newWorkspace(t, shard)
	w.bind(shard, "widgets", e)
	w.create(widget("one", nil))
	if got, err := w.objects("v2").Get(t.Context(), "one", metav1.GetOptions{}); err != nil || got.GetAPIVersion() != "example.com/v2" {
		t.Errorf("in the other version: %v, %v", got, err)
	}
	if status, body, _ := w.raw(http.MethodGet, "/apis/example.com", "", inJSON, ""); status != http.StatusOK || !strings.Contains(body, `"preferredVersion":{"groupVersion":"example.com/v2"`) {
		t.Errorf("discovery says %d %s", status, body)
	}
}

func virtualStorage(t *testing.T, shard *shardtesting.Shard) {
	e := export(t, shard, widgets("example.com"))
	e.StorageVersions = nil
	w := newWorkspace(t, shard)
	w.bind(shard, "widgets", e)
	status, body, _ := w.raw(http.MethodGet, widgetsPath, "", inJSON, "")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "virtual storage") {
		t.Errorf("virtual storage: %d %s", status, body)
	}
	if status, body, _ := w.raw(http.MethodGet, "/apis/example.com/v1", "", inJSON, ""); status != http.StatusOK || strings.Contains(body, `"create"`) || !strings.Contains(body, `"watch"`) {
		t.Errorf("discovery says %d %s", status, body)
	}
	if keys := shard.Keys(t, "/example.com/widgets/"+e.Schema.IdentityHash); len(keys) > 0 {
		t.Errorf("there are keys %v", keys)
	}
}

func boundObjectsAreOwned(t *testing.T, shard *shardtesting.Shard) {
	group := "owned.example.com"
	e := export(t, shard, widgets(group))
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
	owned := inGroup(widget("owned", nil), group)
	owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}})
	shardtesting.Eventually(t, "the quota has a status", func(ctx context.Context) error {
		_, err := w.objectsOf(group, "v1").Create(ctx, owned, metav1.CreateOptions{})
		return err
	})
	if _, err := w.objectsOf(group, "v1").Create(t.Context(), inGroup(widget("too-many", nil), group), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
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

func boundObjectsDeleted(t *testing.T, shard *shardtesting.Shard) {
	e := export(t, shard, widgets("example.com"))
	w := newWorkspace(t, shard)
	w.bind(shard, "widgets", e)
	clients := shard.Kubernetes(t, w.config)
	if _, err := clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "brief"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.create(widget("one", nil))
	if _, err := w.clusterObjects("v1").Namespace("brief").Create(t.Context(), widgetIn("brief"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	prefix := "/example.com/widgets/" + e.Schema.IdentityHash + "/" + w.name + "/"
	left := func(want ...string) {
		t.Helper()
		shardtesting.Eventually(t, "the keys", func(context.Context) error {
			if keys := shard.Keys(t, prefix); len(keys) != len(want) {
				return fmt.Errorf("there are %v, want %v", keys, want)
			}
			return nil
		})
	}
	left("default/one", "brief/one")
	if err := clients.CoreV1().Namespaces().Delete(t.Context(), "brief", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	left("default/one")
	// The finalizer of the test would block the deletion of the binding.
	w.letGo(shard, "widgets")
	ctx := shardtesting.In(t.Context(), "root")
	if err := shard.Client(t, shard.Admin(t)).Delete(ctx, &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: w.workspace}}); err != nil {
		t.Fatal(err)
	}
	left()
	shardtesting.Eventually(t, "no object remains", func(context.Context) error {
		if keys := shard.Keys(t, "/"+w.name+"/"); len(keys) > 0 {
			return fmt.Errorf("there are %v", keys)
		}
		return nil
	})
}

func schemasAreNotServed(t *testing.T, shard *shardtesting.Shard) {
	group := "schemas.example.com"
	export(t, shard, widgets(group))
	again := widgets(group)
	export(t, shard, again) // of the same names
	masters := &workspace{T: t, config: shardtesting.At(shard.Masters(t), "system:bound-crds")}
	if status, _, _ := masters.raw(http.MethodGet, "/apis/"+group+"/v1/widgets", "", inJSON, ""); status != http.StatusNotFound {
		t.Errorf("it answers %d", status)
	}
	if status, body, _ := masters.raw(http.MethodGet, "/apis", "", inJSON, ""); status != http.StatusOK || strings.Contains(body, group) {
		t.Errorf("discovery says %d %s", status, body)
	}
}

func exportedAndNotBound(t *testing.T, shard *shardtesting.Shard) {
	group := "claimed.example.com"
	w := newWorkspace(t, shard)
	gr := schema.GroupResource{Group: group, Resource: "widgets"}
	made := shard.NewExport(t, w.name, "widgets", gr, "Widget")
	path := "/apis/" + group + "/v1/widgets:" + made.Status.IdentityHash
	masters := everywhere(t, shard)
	if status, body, _ := masters.raw(http.MethodGet, path, "", inJSON, ""); status != http.StatusNotFound && status != http.StatusOK {
		t.Errorf("before there is a definition: %d %s", status, body)
	}
	described := &apisv1alpha1.APIResourceSchema{}
	described.Name = "v1.widgets." + group
	if err := shard.Client(t, shard.Admin(t)).Get(shardtesting.In(t.Context(), w.name), clientKey(described), described); err != nil {
		t.Fatal(err)
	}
	e := describe(shard, widgets(group))
	e.Schema.UID = string(described.UID)
	e.define(t, widgets(group))
	if status, body, _ := masters.raw(http.MethodGet, path, "", inJSON, ""); status != http.StatusOK || !strings.Contains(body, `"WidgetList"`) {
		t.Errorf("with a definition: %d %s", status, body)
	}
	watcher, err := dynamic.NewForConfigOrDie(masters.config).Resource(gr.WithVersion("v1")).Watch(t.Context(), metav1.ListOptions{})
	if err == nil {
		watcher.Stop()
		t.Error("whole objects over all workspaces without an identity")
	}
	if resource, err := dynamic.NewForConfigOrDie(masters.config).Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets:" + made.Status.IdentityHash}).Watch(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	} else {
		defer resource.Stop()
		e.Schema.IdentityHash = made.Status.IdentityHash
		w.bind(shard, "mine", e)
		w.create(inGroup(widget("one", nil), group))
		if event := <-resource.ResultChan(); event.Object.(*unstructured.Unstructured).GetName() != "one" {
			t.Errorf("the event is %v", event)
		}
	}
}

func metadataOfEveryStorage(t *testing.T, shard *shardtesting.Shard) {
	group := "everywhere.example.com"
	first, second := export(t, shard, widgets(group)), export(t, shard, widgets(group))
	a, b, local := newWorkspace(t, shard), newWorkspace(t, shard), newWorkspace(t, shard)
	a.bind(shard, "widgets", first)
	b.bind(shard, "widgets", second)
	local.define(widgets(group))
	want := make([]string, 0, 3)
	for _, w := range []*workspace{a, b, local} {
		w.create(inGroup(widget("one", nil), group))
		want = append(want, w.name+"/one")
	}
	slices.Sort(want)
	masters := everywhere(t, shard)
	path := "/apis/" + group + "/v1/widgets"
	if status, body, _ := masters.raw(http.MethodGet, path+"?limit=1", "", onlyMetadata, ""); status != http.StatusOK || !slices.Equal(namesIn(t, body), want) {
		t.Errorf("the metadata is %d %s, want %v", status, body, want)
	}
	if status, body, _ := masters.raw(http.MethodGet, path, "", inJSON, ""); status != http.StatusNotFound {
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
		t.Errorf("a watch began with %v, want %v", got, want)
	}
	b.create(inGroup(widget("two", nil), group))
	if event := <-watcher.ResultChan(); event.Object.(*metav1.PartialObjectMetadata).Name != "two" {
		t.Errorf("the event is %v", event)
	}
}

func metadataWatchEnds(t *testing.T, shard *shardtesting.Shard) {
	group := "more.example.com"
	first, second := export(t, shard, widgets(group)), export(t, shard, widgets(group))
	w := newWorkspace(t, shard)
	w.bind(shard, "widgets", first)
	w.create(inGroup(widget("one", nil), group))
	watcher, err := metadata.NewForConfigOrDie(everywhere(t, shard).config).Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	<-watcher.ResultChan()
	other := newWorkspace(t, shard)
	other.bind(shard, "widgets", second)
	for range watcher.ResultChan() { // it ends, so that its client lists what is new
	}
}

func sameBindingsShare(t *testing.T, shard *shardtesting.Shard) {
	group := "same.example.com"
	e := export(t, shard, widgets(group))
	a, b := newWorkspace(t, shard), newWorkspace(t, shard)
	for _, w := range []*workspace{a, b} {
		w.bind(shard, "widgets", e)
		w.create(inGroup(widget("one", nil), group))
	}
	x, y := shard.Server.Definitions().Served(shardtesting.In(t.Context(), a.name)), shard.Server.Definitions().Served(shardtesting.In(t.Context(), b.name))
	if len(x) != 1 || len(y) != 1 || x[0].CRD != y[0].CRD {
		t.Errorf("they are served apart: %v, %v", x, y)
	}
	for _, path := range []string{"/apis/" + group + "/v1", "/openapi/v3/apis/" + group + "/v1", "/openapi/v2"} {
		_, first, _ := a.raw(http.MethodGet, path, "", inJSON, "")
		_, second, _ := b.raw(http.MethodGet, path, "", inJSON, "")
		if first != second || !strings.Contains(first, "widgets") {
			t.Errorf("%s is not the same in both", path)
		}
	}
	_, first, _ := a.raw(http.MethodGet, "/openapi/v3", "", inJSON, "")
	_, second, _ := b.raw(http.MethodGet, "/openapi/v3", "", inJSON, "")
	if first != second {
		t.Errorf("the indices differ: %s, %s", first, second)
	}
}

// TestBoundCRDsClose checks that nothing remains in memory after the last binding is deleted.
func TestBoundCRDsClose(t *testing.T) {
	shard := shardtesting.Start(t)
	own := besidesRoot(t, shard)
	e := export(t, shard, widgets("example.com"))
	a, b := newWorkspace(t, shard), newWorkspace(t, shard)
	expect := func(want int) {
		t.Helper()
		shardtesting.Eventually(t, "the registry", func(context.Context) error {
			if _, c, s := own.sizes(); c != want || s != want {
				return fmt.Errorf("%d contents, %d storages; want %d each", c, s, want)
			}
			return nil
		})
	}
	round := func() {
		for _, w := range []*workspace{a, b} {
			w.bind(shard, "widgets", e)
			w.create(widget("one-"+rand.String(6), nil))
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
		for range watcher.ResultChan() { // it ends
		}
		expect(0)
	}
	round()
	before := stacks()
	round()
	round()
	shardtesting.Eventually(t, "no goroutine remains", func(context.Context) error {
		if after := stacks(); len(after) > len(before) {
			return fmt.Errorf("%d goroutines, then %d:\n%s", len(before), len(after), strings.Join(after, "\n\n"))
		}
		return nil
	})
}
