package shardserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestVersionsOfMovedClusters: resource versions say from which side of a move they are.
func TestVersionsOfMovedClusters(t *testing.T) {
	shard := shardtesting.Start(t, func(o *options.Options) {
		o.FeatureGates = append(o.FeatureGates, options.GateLogicalClusterMigration+"=true")
	})
	provider := shard.NewWorkspace(t, "root", "provider").Spec.Cluster
	cows := schema.GroupResource{Group: "farm.example.com", Resource: "cows"}
	export := shard.NewExport(t, provider, "farm", cows, "Cow")
	newMovable := func(name string) *movable {
		cluster := shard.NewWorkspace(t, "root", name).Spec.Cluster
		m := &movable{
			shard: shard, name: cluster,
			key:        "/registry/core.kcp.io/logicalclusters/customresources/" + cluster + "/" + corev1alpha1.LogicalClusterName,
			config:     shardtesting.At(shard.Admin(t), cluster),
			configMaps: corev1.SchemeGroupVersion.WithResource("configmaps"), cows: cows.WithVersion("v1"),
			widgets: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
		}
		m.dynamic = dynamic.NewForConfigOrDie(m.config)
		createDefinition(t, m.config, newDefinition("example.com", "widgets", "Widget", []string{"v1", "v1beta1"}, "color"))
		shard.Bind(t, cluster, provider, "farm")
		return m
	}
	m, neighbour := newMovable("moves"), newMovable("stays")

	tokens, before := map[schema.GroupVersionResource]string{}, map[schema.GroupVersionResource]*unstructured.Unstructured{}
	resources := []schema.GroupVersionResource{m.configMaps, m.widgets, m.cows}
	for _, gvr := range resources {
		for i := range 3 {
			before[gvr] = m.create(t, gvr, fmt.Sprint("before-", i))
		}
		neighbour.create(t, gvr, "neighbour")
		page, err := m.objects(gvr).List(t.Context(), metav1.ListOptions{Limit: 1})
		if err != nil || page.GetContinue() == "" {
			t.Fatal(page, err)
		}
		tokens[gvr] = page.GetContinue()
	}
	informers := newInformers(t, m)
	view := newWildcardInformer(t, shard, m, export.Status.IdentityHash)
	m.moveAndReturn(t)

	for _, gvr := range resources {
		t.Run(gvr.Resource, func(t *testing.T) {
			t.Run("reads", func(t *testing.T) { testVersionsOfReads(t, m, gvr, tokens[gvr]) })
			t.Run("watches", func(t *testing.T) { testVersionsOfWatches(t, m, gvr) })
			t.Run("writes", func(t *testing.T) { testVersionsOfWrites(t, m, gvr, before[gvr]) })
		})
	}
	t.Run("other encodings", func(t *testing.T) { testVersionsInEncodings(t, m) })
	t.Run("all logical clusters", func(t *testing.T) { testVersionsOfAll(t, m, neighbour) })
	t.Run("informers from before go on", func(t *testing.T) { informers.check(t, m) })
	t.Run("an informer on the view of the export goes on", func(t *testing.T) { view.check(t, m, neighbour) })
	t.Run("definitions and bindings", func(t *testing.T) { testDefinitionsOfMoved(t, m, neighbour) })
	t.Run("a restart changes nothing", func(t *testing.T) {
		if err := shard.Stop(); err != nil {
			t.Fatal(err)
		}
		m.shard = shardtesting.StartIn(t, shard.Directory, func(o *options.Options) {
			o.FeatureGates = append(o.FeatureGates, options.GateLogicalClusterMigration+"=true")
		})
		m.config = shardtesting.At(m.shard.Admin(t), m.name)
		m.dynamic = dynamic.NewForConfigOrDie(m.config)
		for _, gvr := range resources {
			testVersionsOfReads(t, m, gvr, tokens[gvr])
		}
	})
}

// expectVersion fails unless the version is of the epoch.
func (m *movable) expectVersion(t *testing.T, what, version string) {
	t.Helper()
	if epochOf(t, version) != m.epoch {
		t.Errorf("%s: version %s is not of epoch %d", what, version, m.epoch)
	}
}

// expectList fails unless a list and its objects have versions of the epoch.
func (m *movable) expectList(t *testing.T, what string, list *unstructured.UnstructuredList, err error) {
	t.Helper()
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("%s: %v, %v", what, list, err)
	}
	m.expectVersion(t, what, list.GetResourceVersion())
	for _, item := range list.Items {
		m.expectVersion(t, what, item.GetResourceVersion())
	}
}

// expectTooLarge fails unless a read answers that this replica does not have the version yet. Clients repeat the request.
func (m *movable) expectTooLarge(t *testing.T, path string) {
	t.Helper()
	response, body := shardtesting.Send(t, m.config, "GET", path, "")
	status := &metav1.Status{}
	if err := json.Unmarshal([]byte(body), status); err != nil || response.Header.Get("Retry-After") != "1" || !isTooLarge(apierrors.FromObject(status)) {
		t.Errorf("%s: %s: %s", path, response.Status, body)
	}
}

func isTooLarge(err error) bool {
	return apierrors.IsTimeout(err) && apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// olderVersions are versions of the same numbers as revisions of this shard, smaller and larger ones.
func (m *movable) olderVersions(t *testing.T) []string {
	t.Helper()
	current := m.shard.Revision(t)
	return []string{"1", versionOf(0, current-1), versionOf(0, current), versionOf(0, current+1000000), versionOf(m.epoch-1, current), versionOf(m.epoch-1, current+1000000)}
}

func testVersionsOfReads(t *testing.T, m *movable, gvr schema.GroupVersionResource, oldToken string) {
	objects, ctx := m.objects(gvr), t.Context()
	all, err := objects.List(ctx, metav1.ListOptions{})
	m.expectList(t, "consistent list", all, err)
	current, newer := all.GetResourceVersion(), versionOf(m.epoch+1, 1)
	for _, version := range []string{"", "0", current} {
		got, err := objects.Get(ctx, "before-0", metav1.GetOptions{ResourceVersion: version})
		if err != nil {
			t.Fatalf("get at %q: %v", version, err)
		}
		m.expectVersion(t, "get at "+version, got.GetResourceVersion())
	}
	for _, options := range []metav1.ListOptions{
		{ResourceVersion: "0"}, {ResourceVersion: current}, {ResourceVersion: current, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
		{ResourceVersion: current, ResourceVersionMatch: metav1.ResourceVersionMatchExact}, {LabelSelector: "test=versions"}, {FieldSelector: "metadata.name=before-1"},
	} {
		list, err := objects.List(ctx, options)
		m.expectList(t, fmt.Sprint(options), list, err)
	}
	for _, version := range m.olderVersions(t) {
		if got, err := objects.Get(ctx, "before-0", metav1.GetOptions{ResourceVersion: version}); err != nil {
			t.Errorf("get at %s, from before the move: %v", version, err)
		} else {
			m.expectVersion(t, "get", got.GetResourceVersion())
		}
		for _, match := range []metav1.ResourceVersionMatch{"", metav1.ResourceVersionMatchNotOlderThan, metav1.ResourceVersionMatchExact} {
			if _, err := objects.List(ctx, metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: match}); !apierrors.IsResourceExpired(err) {
				t.Errorf("list at %s (%s), from before the move: %v", version, match, err)
			}
		}
	}
	m.expectTooLarge(t, objectsPath(gvr)+"/before-0?resourceVersion="+newer)
	m.expectTooLarge(t, objectsPath(gvr)+"?resourceVersionMatch=NotOlderThan&resourceVersion="+newer)
	page, err := objects.List(ctx, metav1.ListOptions{Limit: 2})
	m.expectList(t, "first page", page, err)
	next, err := objects.List(ctx, metav1.ListOptions{Limit: 500, Continue: page.GetContinue()})
	m.expectList(t, "second page", next, err)
	if len(page.Items)+len(next.Items) != len(all.Items) || next.GetResourceVersion() != page.GetResourceVersion() {
		t.Errorf("pages of %d and %d objects of %d, at %s and %s", len(page.Items), len(next.Items), len(all.Items), page.GetResourceVersion(), next.GetResourceVersion())
	}
	if _, err := objects.List(ctx, metav1.ListOptions{Limit: 2, Continue: oldToken}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a page from before the move: %v", err)
	}
	newerToken, isOfEpoch := strings.CutPrefix(page.GetContinue(), fmt.Sprint(m.epoch, "."))
	if !isOfEpoch {
		t.Errorf("token %s", page.GetContinue())
	}
	m.expectTooLarge(t, objectsPath(gvr)+"?limit=2&continue="+fmt.Sprint(m.epoch+1, ".")+newerToken)
}

func testVersionsOfWrites(t *testing.T, m *movable, gvr schema.GroupVersionResource, before *unstructured.Unstructured) {
	ctx, objects, name := t.Context(), m.objects(gvr), before.GetName()
	expect := func(what string, object *unstructured.Unstructured, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		m.expectVersion(t, what, object.GetResourceVersion())
	}
	current, err := objects.Get(ctx, name, metav1.GetOptions{})
	expect("get", current, err)
	for _, version := range append(m.olderVersions(t), before.GetResourceVersion(), versionOf(m.epoch+1, 1)) {
		stale := current.DeepCopy()
		stale.SetResourceVersion(version)
		if _, err := objects.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("update at %s: %v", version, err)
		}
		patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"labels":{"stale":"true"}}}`, version)
		if _, err := objects.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("patch at %s: %v", version, err)
		}
		if err := objects.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}}); !apierrors.IsConflict(err) {
			t.Errorf("delete at %s: %v", version, err)
		}
	}
	dryRun := current.DeepCopy()
	dryRun.SetLabels(map[string]string{"test": "versions", "dry": "run"})
	updated, err := objects.Update(ctx, dryRun, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	expect("dry run", updated, err)
	current.SetLabels(map[string]string{"test": "versions", "written": "true"})
	updated, err = objects.Update(ctx, current, metav1.UpdateOptions{})
	expect("update", updated, err)
	same, err := objects.Update(ctx, updated, metav1.UpdateOptions{})
	expect("update without a change", same, err)
	if same.GetResourceVersion() != updated.GetResourceVersion() {
		t.Errorf("an update without a change returns %s after %s", same.GetResourceVersion(), updated.GetResourceVersion())
	}
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"labels":{"patched":"true"}}}`, updated.GetResourceVersion())
	updated, err = objects.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	expect("patch", updated, err)
	unconditional := updated.DeepCopy()
	unconditional.SetResourceVersion("")
	if gvr == m.configMaps {
		updated, err = objects.Update(ctx, unconditional, metav1.UpdateOptions{})
		expect("update without a version", updated, err)
	}
	applied := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name, "annotations": map[string]any{"applied": "true"}}}}
	applied.SetGroupVersionKind(before.GroupVersionKind())
	updated, err = objects.Apply(ctx, name, applied, metav1.ApplyOptions{FieldManager: "test"})
	expect("apply", updated, err)
	if gvr != m.configMaps {
		status := updated.DeepCopy()
		if err := unstructured.SetNestedField(status.Object, map[string]any{}, "status"); err != nil {
			t.Fatal(err)
		}
		updated, err = objects.UpdateStatus(ctx, status, metav1.UpdateOptions{})
		expect("status", updated, err)
		status.SetResourceVersion(before.GetResourceVersion())
		if _, err := objects.UpdateStatus(ctx, status, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("a status from before the move: %v", err)
		}
	}
	version := updated.GetResourceVersion()
	if err := objects.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}}); err != nil {
		t.Errorf("delete at the current version: %v", err)
	}
	finalized := m.create(t, gvr, "finalized")
	finalized.SetFinalizers([]string{"example.com/test"})
	finalized, err = objects.Update(ctx, finalized, metav1.UpdateOptions{})
	expect("update", finalized, err)
	version = finalized.GetResourceVersion()
	if err := objects.Delete(ctx, "finalized", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}}); err != nil {
		t.Errorf("delete with a finalizer: %v", err)
	}
	deleting, err := objects.Patch(ctx, "finalized", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	expect("the last finalizer", deleting, err)
	m.create(t, gvr, "collected")
	if err := objects.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=collected"}); err != nil {
		t.Errorf("deletion of a collection: %v", err)
	}
	if _, err := objects.Get(ctx, "collected", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the deletion of a collection: %v", err)
	}
}

// testVersionsInEncodings reads protobuf and tables.
func testVersionsInEncodings(t *testing.T, m *movable) {
	config := rest.CopyConfig(m.config)
	config.ContentType = runtime.ContentTypeProtobuf
	configMaps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	list, err := configMaps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.expectVersion(t, "list", list.ResourceVersion)
	m.expectVersion(t, "item", list.Items[0].ResourceVersion)
	events, err := configMaps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	created, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "protobuf"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.expectVersion(t, "created", created.ResourceVersion)
	if got, ok := nextEvent(t, events).Object.(*corev1.ConfigMap); !ok || got.ResourceVersion != created.ResourceVersion {
		t.Errorf("event %v, want version %s", got, created.ResourceVersion)
	}
	created.Data = map[string]string{"a": "b"}
	updated, err := configMaps.Update(t.Context(), created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.expectVersion(t, "updated", updated.ResourceVersion)
	if _, err := configMaps.Update(t.Context(), created, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("stale update: %v", err)
	}

	event, err := kubernetes.NewForConfigOrDie(config).CoreV1().Events("default").Create(t.Context(), &corev1.Event{ // without a watch cache
		ObjectMeta: metav1.ObjectMeta{Name: "event"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.expectVersion(t, "an event", event.ResourceVersion)
	for _, gvr := range []schema.GroupVersionResource{m.configMaps, m.widgets, m.cows} {
		response, body := shardtesting.Send(t, m.config, "GET", objectsPath(gvr), "", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
		table := &metav1.Table{}
		if err := json.Unmarshal([]byte(body), table); err != nil || response.StatusCode != http.StatusOK || len(table.Rows) == 0 {
			t.Fatalf("%s: %s", response.Status, body)
		}
		m.expectVersion(t, "table", table.ResourceVersion)
		row := &metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(table.Rows[0].Object.Raw, row); err != nil {
			t.Fatal(err)
		}
		m.expectVersion(t, "row", row.ResourceVersion)
	}
}

func objectsPath(gvr schema.GroupVersionResource) string {
	if gvr.Group == "" {
		return "/api/v1/namespaces/default/" + gvr.Resource
	}
	return "/apis/" + gvr.Group + "/" + gvr.Version + "/namespaces/default/" + gvr.Resource
}

// testVersionsOfAll reads several logical clusters at once: a version of the moved one is good for going on.
func testVersionsOfAll(t *testing.T, m, neighbour *movable) {
	all := dynamic.NewForConfigOrDie(shardtesting.At(m.shard.Masters(t), "*"))
	configMaps := all.Resource(m.configMaps)
	list, err := configMaps.List(t.Context(), metav1.ListOptions{LabelSelector: "test=versions"})
	if err != nil {
		t.Fatal(err)
	}
	if epochOf(t, list.GetResourceVersion()) != 0 {
		t.Errorf("the list has version %s, not a revision", list.GetResourceVersion())
	}
	found := map[string]bool{}
	for _, item := range list.Items {
		cluster := item.GetAnnotations()["kcp.io/cluster"]
		if want := map[string]int64{m.name: m.epoch}[cluster]; epochOf(t, item.GetResourceVersion()) != want {
			t.Errorf("an object of %s has version %s", cluster, item.GetResourceVersion())
		}
		found[cluster] = true
	}
	if !found[m.name] || !found[neighbour.name] {
		t.Errorf("objects of %v", found)
	}
	first := m.create(t, m.configMaps, "all-first")
	second := neighbour.create(t, m.configMaps, "all-second")
	for _, version := range []string{list.GetResourceVersion(), first.GetResourceVersion()} {
		events, err := configMaps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version, LabelSelector: "test=versions"})
		if err != nil {
			t.Fatal(err)
		}
		if version == list.GetResourceVersion() {
			if got, ok := nextEvent(t, events).Object.(*unstructured.Unstructured); !ok || got.GetResourceVersion() != first.GetResourceVersion() {
				t.Errorf("got %v, want %v", got, first)
			}
		}
		if got, ok := nextEvent(t, events).Object.(*unstructured.Unstructured); !ok || got.GetResourceVersion() != second.GetResourceVersion() {
			t.Errorf("got %v, want %v", got, second)
		}
		events.Stop()
	}
	if _, err := configMaps.List(t.Context(), metav1.ListOptions{ResourceVersion: first.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}); err != nil {
		t.Errorf("a list from a version of the moved logical cluster: %v", err)
	}
}

// testDefinitionsOfMoved: what the shard keeps of definitions and bindings of all logical clusters follows changes of the moved one
// and of others.
func testDefinitionsOfMoved(t *testing.T, m, neighbour *movable) {
	for _, of := range []*movable{m, neighbour, m} {
		definition := newDefinition("later.example.com", "laters", "Later", []string{"v1"}, "color")
		createDefinition(t, of.config, definition)
		laters := dynamic.NewForConfigOrDie(of.config).Resource(schema.GroupVersionResource{Group: "later.example.com", Version: "v1", Resource: "laters"}).Namespace("default")
		if _, err := laters.List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		definitions := dynamic.NewForConfigOrDie(of.config).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
		if err := definitions.Delete(t.Context(), definition.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "the end of the definition", func(ctx context.Context) error {
			if _, err := laters.List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("a list returns %v", err)
			}
			return nil
		})
	}
}
