package crdhandler_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func testConcurrentDefinitions(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	for i := range 20 {
		group := fmt.Sprintf("g%d.example.com", i)
		w.define(newDefinition(group))
		w.create(withGroup(newWidget("one", nil), group))
	}
}

func testNamesPerWorkspace(t *testing.T, shard *shardtesting.Shard) {
	a, b := newWorkspace(t, shard), newWorkspace(t, shard)
	a.define(newDefinition("example.com"))
	conflicting := newDefinition("example.com")
	conflicting.Name = "gadgets.example.com"
	conflicting.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: "Widget", ListKind: "WidgetList"}
	if _, err := a.definitions().Create(t.Context(), conflicting.DeepCopy(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.waitNotAccepted(conflicting.Name, "WidgetList")
	if status, _, _ := a.doRaw(http.MethodGet, "/apis/example.com/v1/gadgets", "", acceptJSON, ""); status != http.StatusNotFound {
		t.Errorf("a definition that is not established: status %d", status)
	}
	b.define(conflicting.DeepCopy()) // definitions of other workspaces do not conflict
	if err := a.definitions().Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.waitEstablished(conflicting.Name)
}

func testWatchEnds(t *testing.T, shard *shardtesting.Shard) {
	a, b := newWorkspace(t, shard), newWorkspace(t, shard)
	for _, w := range []*workspace{a, b} {
		w.define(newDefinition("example.com"))
		w.create(newWidget("one", nil))
	}
	watchUntilEnd := func(w *workspace, version string) <-chan error {
		watcher, err := w.objects(version).Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if event := <-watcher.ResultChan(); event.Object == nil {
			t.Fatal("the watch has no events")
		}
		ended := make(chan error, 1)
		go func() {
			for event := range watcher.ResultChan() {
				ended <- fmt.Errorf("got %v", event)
			}
			close(ended)
		}()
		return ended
	}
	endA, endB := watchUntilEnd(a, "v1"), watchUntilEnd(b, "v1")
	definition := a.waitEstablished("widgets.example.com")
	properties := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	properties["weight"] = apiextensionsv1.JSONSchemaProps{Type: "integer"}
	if _, err := a.definitions().Update(t.Context(), definition, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-endA; err != nil {
		t.Errorf("waiting for the end of the watch: %v", err)
	}
	a.create(newWidget("two", map[string]any{"weight": int64(1)}))
	if weight := a.get("two").Object["spec"].(map[string]any)["weight"]; weight != int64(1) {
		t.Errorf("the new field is %v", weight)
	}
	select {
	case err := <-endB:
		t.Errorf("the watch of the other workspace ended too: %v", err)
	default:
	}
	if err := b.definitions().Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-endB; err == nil || !strings.Contains(err.Error(), "DELETED") {
		t.Errorf("the last event is %v", err)
	}
	if err, more := <-endB; more {
		t.Errorf("after the deletion: %v", err)
	}
}

func testMetadataOfAllWorkspaces(t *testing.T, shard *shardtesting.Shard) {
	group := "global.example.com"
	a, b := newWorkspace(t, shard), newWorkspace(t, shard)
	for _, w := range []*workspace{a, b} {
		w.define(newDefinition(group))
		w.create(withGroup(newWidget("one", nil), group))
	}
	gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
	wildcardConfig := shardtesting.At(shard.Masters(t), "*")
	list, err := metadata.NewForConfigOrDie(wildcardConfig).Resource(gvr).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 || logicalcluster.Of(&list.Items[0]) == logicalcluster.Of(&list.Items[1]) {
		t.Errorf("the metadata over all workspaces is %v, %v", list, err)
	}
	watcher, err := metadata.NewForConfigOrDie(wildcardConfig).Resource(gvr).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	event := <-watcher.ResultChan()
	if partial, ok := event.Object.(*metav1.PartialObjectMetadata); !ok || logicalcluster.Of(partial).Empty() {
		t.Errorf("the event is %v", event)
	}
	masters := &workspace{T: t, config: wildcardConfig}
	path := "/apis/" + group + "/v1/widgets"
	if status, body, _ := masters.doRaw(http.MethodGet, path, "", acceptJSON, ""); status != http.StatusNotFound {
		t.Errorf("whole objects over all workspaces: %d %s", status, body)
	}
	if status, body, _ := masters.doRaw(http.MethodGet, path+"/one", "", acceptJSON, ""); status != http.StatusMethodNotAllowed {
		t.Errorf("one object over all workspaces: %d %s", status, body)
	}
	if status, _, _ := masters.doRaw(http.MethodGet, "/apis/absent.example.com/v1/widgets", "", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", ""); status != http.StatusNotFound {
		t.Errorf("an undefined resource: %d", status)
	}
	_, err = metadata.NewForConfigOrDie(shardtesting.At(shard.Admin(t), "*")).Resource(gvr).List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("by a user outside of system:masters: got %v, want Forbidden", err)
	}
}

func testBuiltInIsKept(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	shadow := newDefinition("coordination.k8s.io")
	shadow.Name = "leases.coordination.k8s.io"
	shadow.Annotations = map[string]string{"api-approved.kubernetes.io": "unapproved"}
	shadow.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "leases", Singular: "lease", Kind: "Lease", ListKind: "LeaseList"}
	w.define(shadow)
	status, body, _ := w.doRaw(http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/default/leases", acceptJSON, acceptJSON,
		`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"one"},"spec":{"holderIdentity":"me"}}`)
	if status != http.StatusCreated || !strings.Contains(body, `"holderIdentity":"me"`) {
		t.Errorf("the compiled-in resource: %d %s", status, body)
	}
}

func testBuiltInsSurviveDefinitions(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	clusters := dynamic.NewForConfigOrDie(w.config).Resource(schema.GroupVersionResource{Group: "core.kcp.io", Version: "v1alpha1", Resource: "logicalclusters"})
	before, err := clusters.Get(t.Context(), "cluster", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, names := range map[string]apiextensionsv1.CustomResourceDefinitionNames{
		"core.kcp.io":         {Plural: "logicalclusters", Singular: "logicalcluster", Kind: "LogicalCluster", ListKind: "LogicalClusterList"},
		"coordination.k8s.io": {Plural: "leases", Singular: "lease", Kind: "Lease", ListKind: "LeaseList"},
	} {
		shadow := newDefinition(name)
		shadow.Name = names.Plural + "." + name
		shadow.Annotations = map[string]string{"api-approved.kubernetes.io": "unapproved"}
		shadow.Spec.Names, shadow.Spec.Scope = names, apiextensionsv1.ClusterScoped
		w.define(shadow)
		for _, resource := range shard.Server.Registry.AllStorages() {
			if resource.GVR.GroupResource().String() == shadow.Name && strings.HasPrefix(resource.Prefix+"/", "/"+name+"/"+names.Plural+"/customresources/") && resource.Kind.Version == "v1" {
				t.Errorf("a storage of custom resources is open at %s", resource.Prefix)
			}
		}
		if err := w.definitions().Delete(t.Context(), shadow.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "definition "+shadow.Name+" is deleted", func(ctx context.Context) error {
			if _, err := w.definitions().Get(ctx, shadow.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	}
	after, err := clusters.Get(t.Context(), "cluster", metav1.GetOptions{})
	if err != nil || after.GetUID() != before.GetUID() || after.GetDeletionTimestamp() != nil || after.Object["spec"] == nil {
		t.Errorf("the logical cluster is %v, %v", after, err)
	}
}

func testDeleteCollection(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	for _, group := range []string{"one.example.com", "two.example.com"} {
		definition := newDefinition(group)
		definition.Labels = map[string]string{"collected": "yes"}
		w.define(definition)
		w.create(withGroup(newWidget("one", nil), group))
	}
	if err := w.definitions().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "collected=yes"}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "no key remains", func(context.Context) error {
		for _, key := range shard.Keys(t, "/"+w.name+"/") {
			if strings.Contains(key, "widgets") {
				return fmt.Errorf("remaining key is %s", key)
			}
		}
		return nil
	})
}

func testNamespaceAndWorkspaceDeletion(t *testing.T, shard *shardtesting.Shard) {
	w := newWorkspace(t, shard)
	w.define(newDefinition("example.com"))
	w.create(newWidget("one", nil))
	clients := shard.Kubernetes(t, w.config)
	if _, err := clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "brief"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.clusterObjects("v1").Namespace("brief").Create(t.Context(), newWidgetIn("brief"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := clients.CoreV1().Namespaces().Delete(t.Context(), "brief", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expectNoKeys := func(prefix string) func(context.Context) error {
		return func(context.Context) error {
			if keys := shard.Keys(t, prefix); len(keys) > 0 {
				return fmt.Errorf("remaining keys are %v", keys)
			}
			return nil
		}
	}
	shardtesting.Eventually(t, "the namespace is deleted with its objects", expectNoKeys("/"+w.name+"/brief"))
	w.get("one")
	parent := shard.Client(t, shard.Admin(t))
	if err := parent.Delete(shardtesting.In(t.Context(), "root"), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: w.workspace}}); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the workspace is deleted with its objects", expectNoKeys("/"+w.name+"/"))
	if served := shard.Server.Definitions().ListServed(shardtesting.In(t.Context(), w.name)); len(served) != 0 {
		t.Errorf("the registry still has %v", served)
	}
}

func TestRestart(t *testing.T) {
	shard := shardtesting.Start(t)
	w := newWorkspace(t, shard)
	w.define(newDefinition("example.com"))
	one := w.create(newWidget("one", map[string]any{"size": "big"}))
	if err := shard.Stop(); err != nil {
		t.Fatal(err)
	}
	restarted := shardtesting.StartIn(t, shard.Directory)
	w.config = shardtesting.At(restarted.Admin(t), w.name)
	if got := w.get("one"); got.GetUID() != one.GetUID() {
		t.Errorf("got %v", got)
	}
	resource, err := restarted.Server.Registry.Resolve(logicalcluster.With(t.Context(), logicalcluster.MustParseName(w.name)), schema.GroupResource{Group: "example.com", Resource: "widgets"})
	if err != nil || resource == nil || resource.Kind.Kind != "Widget" || resource.Prefix != "/example.com/widgets/customresources" {
		t.Errorf("the registry has %+v, %v", resource, err)
	}
	w.create(newWidget("two", nil))
}
