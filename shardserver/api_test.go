package shardserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// eventTimeout bounds the wait for one watch event.
const eventTimeout = 30 * time.Second

// resourceTest tests one stored resource of one workspace with every operation that clients use on Kubernetes objects.
type resourceTest struct {
	*testing.T
	kindTest
	resource  metav1.APIResource
	gvr       schema.GroupVersionResource
	gvk       schema.GroupVersionKind
	namespace string

	objects  dynamic.ResourceInterface
	metadata metadata.ResourceInterface
	raw      rest.Interface
}

// TestStoredResources tests every stored resource that discovery lists in a workspace.
func TestStoredResources(t *testing.T) {
	shard := shardtesting.Start(t)
	shard.NewWorkspace(t, "root", "walk")
	config := shardtesting.At(shard.Admin(t), "root:walk")
	client := shard.Kubernetes(t, config)
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	untested := maps.Clone(kindTests)
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") || !slices.Contains(resource.Verbs, "list") {
				continue // a subresource, or a review, which is not stored
			}
			gvr := version.WithResource(resource.Name)
			row, known := kindTests[gvr.GroupResource()]
			if _, first := untested[gvr.GroupResource()]; known && !first {
				continue // another version of the same objects
			}
			if !known {
				t.Errorf("%s is served, but kindTests has no row for it", gvr)
				continue
			}
			delete(untested, gvr.GroupResource())
			t.Run(gvr.GroupResource().String(), func(t *testing.T) {
				t.Parallel()
				p := &resourceTest{T: t, kindTest: row, resource: resource, gvr: gvr, gvk: version.WithKind(resource.Kind)}
				p.connect(config)
				p.runSteps()
			})
		}
	}
	for resource := range untested {
		t.Errorf("%s is not served", resource)
	}
}

func (r *resourceTest) connect(config *rest.Config) {
	if r.resource.Namespaced {
		r.namespace = "walk-" + rand.String(5)
		namespaces := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
		namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": r.namespace}}}
		_, err := namespaces.Create(r.Context(), namespace, metav1.CreateOptions{})
		r.must(err, "create the namespace")
	}
	objects := dynamic.NewForConfigOrDie(config).Resource(r.gvr)
	partial := metadata.NewForConfigOrDie(config).Resource(r.gvr)
	r.objects, r.metadata = objects, partial
	if r.resource.Namespaced {
		r.objects, r.metadata = objects.Namespace(r.namespace), partial.Namespace(r.namespace)
	}
	r.raw = discovery.NewDiscoveryClientForConfigOrDie(config).RESTClient()
}

func (r *resourceTest) runSteps() {
	type step struct {
		name string
		do   func(name string)
	}
	first := r.existing
	steps := []step{
		{"read", r.read}, {"select", r.selectors}, {"table", r.table}, {"metadata", r.partialMetadata},
		{"strict fields", r.strictFields}, {"versions", r.versions}, {"patch", r.patch},
	}
	if r.createForbidden == "" {
		first = r.fullName("one")
		steps = append([]step{{"dry run of a creation", r.dryRunCreate}, {"apply", r.apply}}, steps...)
		steps = append(steps, step{"watch", r.watch}, step{"pages", r.pages}, step{"deletion", r.deletion}, step{"collection", r.deleteCollection})
	} else {
		steps = append(steps, step{"no creation", r.rejectCreate})
	}
	for _, step := range steps {
		parent := r.T
		if !r.Run(step.name, func(t *testing.T) {
			r.T = t
			defer func() { r.T = parent }()
			step.do(first)
		}) {
			r.T = parent
			return // the following steps need the objects of the failed one
		}
	}
}

func (r *resourceTest) must(err error, what string) {
	r.Helper()
	if err != nil {
		r.Fatalf("%s: %v", what, err)
	}
}

func (r *resourceTest) hasVerb(verb string) bool { return slices.Contains(r.resource.Verbs, verb) }

// fullName returns the full name of an object.
func (r *resourceTest) fullName(first string) string { return first + r.suffix }

func (r *resourceTest) newObject(name string) *unstructured.Unstructured {
	return r.object(r.gvk, r.namespace, name)
}

func (r *resourceTest) get(name string) *unstructured.Unstructured {
	r.Helper()
	obj, err := r.objects.Get(r.Context(), name, metav1.GetOptions{})
	r.must(err, "get "+name)
	return obj
}

// ownSelector restricts a list to the objects of the test: controllers create objects of their own in every workspace.
func (r *resourceTest) ownSelector() string {
	if r.createForbidden != "" {
		return ""
	}
	return "walked=yes"
}

func (r *resourceTest) dryRunCreate(name string) {
	_, err := r.objects.Create(r.Context(), r.newObject(name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	r.must(err, "create, dry")
	_, err = r.objects.Apply(r.Context(), name, r.newObject(name), metav1.ApplyOptions{FieldManager: "walker", DryRun: []string{metav1.DryRunAll}})
	r.must(err, "apply, dry")
	if _, err := r.objects.Get(r.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		r.Errorf("a dry run created an object: %v", err)
	}
}

func (r *resourceTest) apply(name string) {
	applied, err := r.objects.Apply(r.Context(), name, r.newObject(name), metav1.ApplyOptions{FieldManager: "walker"})
	r.must(err, "apply")
	managers := map[string]metav1.ManagedFieldsOperationType{}
	for _, entry := range applied.GetManagedFields() {
		managers[entry.Manager] = entry.Operation
	}
	if managers["walker"] != metav1.ManagedFieldsOperationApply {
		r.Errorf("managed fields do not name the applier: %v", managers)
	}
	// Once controllers have finished their writes.
	shardtesting.Eventually(r.T, "applying the same again", func(ctx context.Context) error {
		before := applied.GetResourceVersion()
		applied, err = r.objects.Apply(ctx, name, r.newObject(name), metav1.ApplyOptions{FieldManager: "walker"})
		if err == nil && applied.GetResourceVersion() != before {
			err = fmt.Errorf("the object changed: version %s, then %s", before, applied.GetResourceVersion())
		}
		return err
	})
	other := r.newObject(name)
	other.SetLabels(map[string]string{"walk": "taken"})
	if _, err = r.objects.Apply(r.Context(), name, other, metav1.ApplyOptions{FieldManager: "rival"}); !apierrors.IsConflict(err) {
		r.Errorf("applying another's field: got %v, want a conflict", err)
	}
	if _, err = r.objects.Create(r.Context(), r.newObject(name), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		r.Errorf("creating it again: got %v, want AlreadyExists", err)
	}
}

func (r *resourceTest) rejectCreate(string) {
	_, err := r.objects.Create(r.Context(), r.newObject(r.existing), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		r.Errorf("create: got %v, want Forbidden, because %s", err, r.createForbidden)
	}
	if err := r.objects.Delete(r.Context(), r.existing, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		r.Errorf("delete: got %v, want Forbidden, because %s", err, r.createForbidden)
	}
}

func (r *resourceTest) read(name string) {
	obj := r.get(name)
	if created := obj.GetCreationTimestamp(); obj.GroupVersionKind() != r.gvk || obj.GetUID() == "" || created.IsZero() || obj.GetAnnotations()["kcp.io/cluster"] == "" {
		r.Errorf("got %v", obj.Object)
	}
	for what, options := range map[string]metav1.ListOptions{
		"consistent": {}, "from the cache": {ResourceVersion: "0"}, "not older": {ResourceVersion: obj.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
	} {
		options.LabelSelector = r.ownSelector()
		shardtesting.Eventually(r.T, "list "+what, func(ctx context.Context) error { // the cache may be behind
			list, err := r.objects.List(ctx, options)
			if err != nil {
				return err
			}
			if len(list.Items) != 1 || list.Items[0].GetName() != name || list.GetResourceVersion() == "" || list.Items[0].GroupVersionKind() != r.gvk {
				return fmt.Errorf("got %v", list)
			}
			return nil
		})
	}
}

func (r *resourceTest) selectors(name string) {
	selectors := map[string]struct {
		options metav1.ListOptions
		want    int
	}{
		"by name":         {metav1.ListOptions{FieldSelector: "metadata.name=" + name}, 1},
		"by another name": {metav1.ListOptions{FieldSelector: "metadata.name=absent"}, 0},
		"by absent label": {metav1.ListOptions{LabelSelector: "walk=absent"}, 0},
	}
	if r.resource.Namespaced {
		selectors["by namespace"] = struct {
			options metav1.ListOptions
			want    int
		}{metav1.ListOptions{FieldSelector: "metadata.namespace=" + r.namespace, LabelSelector: "walk in (one, two)"}, 1}
	}
	if r.fieldSelector != "" {
		selectors["by a field of its own"] = struct {
			options metav1.ListOptions
			want    int
		}{metav1.ListOptions{FieldSelector: r.replaceNamespace(r.fieldSelector, r.namespace), LabelSelector: "walk=" + name}, 1}
	}
	for what, tc := range selectors {
		for _, resourceVersion := range []string{"", "0"} {
			tc.options.ResourceVersion = resourceVersion
			list, err := r.objects.List(r.Context(), tc.options)
			r.must(err, what)
			if len(list.Items) != tc.want {
				r.Errorf("%s, resourceVersion %q: got %d objects, want %d", what, resourceVersion, len(list.Items), tc.want)
			}
		}
	}
	if _, err := r.objects.List(r.Context(), metav1.ListOptions{FieldSelector: "spec.nonsense=x"}); !apierrors.IsBadRequest(err) {
		r.Errorf("an unknown field selector: got %v, want BadRequest", err)
	}
	if _, err := r.objects.List(r.Context(), metav1.ListOptions{LabelSelector: "=="}); !apierrors.IsBadRequest(err) {
		r.Errorf("a malformed label selector: got %v, want BadRequest", err)
	}
}

// request starts a raw request for the resource, for parameters that typed clients do not send.
func (r *resourceTest) request(name string) *rest.Request {
	prefix := "/apis/" + r.gvr.Group
	if r.gvr.Group == "" {
		prefix = "/api"
	}
	segments := []string{prefix, r.gvr.Version}
	if r.namespace != "" {
		segments = append(segments, "namespaces", r.namespace)
	}
	segments = append(segments, r.gvr.Resource)
	if name != "" {
		segments = append(segments, name)
	}
	return r.raw.Get().AbsPath(segments...)
}

func (r *resourceTest) table(name string) {
	for what, request := range map[string]*rest.Request{
		"of one": r.request(name), "of a list": r.request("").Param("fieldSelector", "metadata.name="+name),
	} {
		raw, err := request.SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Param("includeObject", "Metadata").DoRaw(r.Context())
		r.must(err, "table "+what)
		var table metav1.Table
		r.must(json.Unmarshal(raw, &table), "decode the table "+what)
		if table.Kind != "Table" || len(table.Rows) != 1 || len(table.ColumnDefinitions) < 2 || len(table.Rows[0].Cells) != len(table.ColumnDefinitions) {
			r.Errorf("table %s: %s", what, raw)
			continue
		}
		var object metav1.PartialObjectMetadata
		r.must(json.Unmarshal(table.Rows[0].Object.Raw, &object), "decode the row's object")
		if object.Name != name || object.Kind != "PartialObjectMetadata" {
			r.Errorf("the row's object is %s", table.Rows[0].Object.Raw)
		}
	}
}

func (r *resourceTest) partialMetadata(name string) {
	one, err := r.metadata.Get(r.Context(), name, metav1.GetOptions{})
	r.must(err, "get metadata")
	list, err := r.metadata.List(r.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	r.must(err, "list metadata")
	if len(list.Items) != 1 || list.Items[0].UID != one.UID || one.Annotations["kcp.io/cluster"] == "" {
		r.Errorf("got %v and %v", one, list.Items)
	}
	ctx, stop := context.WithTimeout(r.Context(), eventTimeout)
	defer stop()
	watcher, err := r.metadata.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	r.must(err, "watch metadata")
	defer watcher.Stop()
	event := <-watcher.ResultChan()
	if partial, ok := event.Object.(*metav1.PartialObjectMetadata); !ok || event.Type != watch.Added || partial.UID != one.UID {
		r.Errorf("the first event is %v", event)
	}
}

func (r *resourceTest) strictFields(name string) {
	stray := []byte(`{"nonsense": 1, "metadata": {"labels": {"stray": "no"}}}`)
	_, err := r.objects.Patch(r.Context(), name, types.MergePatchType, stray, metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict})
	if err == nil || !strings.Contains(err.Error(), `unknown field "nonsense"`) {
		r.Errorf("an unknown field, strict: got %v", err)
	}
	if got := r.get(name).GetLabels()["stray"]; got != "" {
		r.Error("the rejected patch was written")
	}
	warnings := &warningRecorder{}
	result := r.request(name).Verb(http.MethodPatch).SetHeader("Content-Type", string(types.MergePatchType)).WarningHandlerWithContext(warnings).
		Param("fieldValidation", "Warn").Param("dryRun", "All").Body(stray).Do(r.Context())
	r.must(result.Error(), "an unknown field, with a warning")
	if !slices.ContainsFunc(warnings.texts, func(text string) bool { return strings.Contains(text, `unknown field "nonsense"`) }) {
		r.Errorf("warnings are %q", warnings.texts)
	}
}

// warningRecorder collects warnings.
type warningRecorder struct{ texts []string }

func (w *warningRecorder) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	w.texts = append(w.texts, text)
}

func (r *resourceTest) versions(name string) {
	stale := r.get(name)
	stale.SetResourceVersion("1")
	if _, err := r.objects.Update(r.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		r.Errorf("an update of an old version: got %v, want a conflict", err)
	}
	stale.SetResourceVersion(r.get(name).GetResourceVersion())
	stale.SetUID("another")
	if _, err := r.objects.Update(r.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		r.Errorf("an update of another object of that name: got %v, want a conflict", err)
	}
	if _, err := r.objects.List(r.Context(), metav1.ListOptions{ResourceVersion: "x"}); err == nil {
		r.Error("a malformed resourceVersion was accepted")
	}
	if _, err := r.objects.List(r.Context(), metav1.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact}); !apierrors.IsInvalid(err) {
		r.Errorf("a match without a version: got %v, want Invalid", err)
	}
	// A list at an earlier resourceVersion returns the earlier state.
	before, err := r.objects.List(r.Context(), metav1.ListOptions{LabelSelector: r.ownSelector()})
	r.must(err, "list")
	_, err = r.objects.Patch(r.Context(), name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"later":"yes"}}}`), metav1.PatchOptions{})
	r.must(err, "patch")
	past, err := r.objects.List(r.Context(), metav1.ListOptions{
		LabelSelector: r.ownSelector(), ResourceVersion: before.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	r.must(err, "list at an earlier version")
	if len(past.Items) != 1 || past.Items[0].GetAnnotations()["later"] != "" || past.GetResourceVersion() != before.GetResourceVersion() {
		r.Errorf("the list of version %s is %v", before.GetResourceVersion(), past)
	}
}

func (r *resourceTest) patch(name string) {
	for patch, body := range map[types.PatchType]string{
		types.MergePatchType:          `{"metadata":{"labels":{"merge":"yes"},"finalizers":["example.com/one"]}}`,
		types.StrategicMergePatchType: `{"metadata":{"labels":{"strategic":"yes"}}}`,
		types.JSONPatchType:           `[{"op":"add","path":"/metadata/labels/json","value":"yes"}]`,
	} {
		if patch == types.JSONPatchType && r.createForbidden != "" {
			body = `[{"op":"test","path":"/metadata/name","value":"` + name + `"},{"op":"add","path":"/metadata/annotations/json","value":"yes"}]`
		}
		_, err := r.objects.Patch(r.Context(), name, patch, []byte(body), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		r.must(err, string(patch)+", dry")
		if r.get(name).GetLabels()[labelOf(patch)] != "" {
			r.Errorf("a dry %s was written", patch)
		}
		_, err = r.objects.Patch(r.Context(), name, patch, []byte(body), metav1.PatchOptions{})
		r.must(err, string(patch))
	}
	labels := r.get(name).GetLabels()
	if labels["merge"] != "yes" || labels["strategic"] != "yes" || (labels["json"] != "yes" && r.createForbidden == "") {
		r.Errorf("labels are %v", labels)
	}
	// Only a strategic merge patch adds to a list; a merge patch replaces it.
	added, err := r.objects.Patch(r.Context(), name, types.StrategicMergePatchType, []byte(`{"metadata":{"finalizers":["example.com/two"]}}`), metav1.PatchOptions{})
	r.must(err, "add a finalizer")
	for _, want := range []string{"example.com/one", "example.com/two"} {
		if !slices.Contains(added.GetFinalizers(), want) {
			r.Errorf("finalizers are %v", added.GetFinalizers())
		}
	}
	others := slices.DeleteFunc(added.GetFinalizers(), func(f string) bool { return strings.HasPrefix(f, "example.com/") })
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": others}})
	r.must(err, "encode")
	left, err := r.objects.Patch(r.Context(), name, types.MergePatchType, body, metav1.PatchOptions{})
	r.must(err, "remove the finalizers")
	if len(left.GetFinalizers()) != len(others) {
		r.Errorf("finalizers are %v", left.GetFinalizers())
	}
	_, err = r.objects.Patch(r.Context(), name, types.JSONPatchType, []byte(`[{"op":"test","path":"/metadata/name","value":"other"}]`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) {
		r.Errorf("a JSON patch whose test fails: got %v, want Invalid", err)
	}
	_, err = r.objects.Patch(r.Context(), name, types.MergePatchType, []byte(`{"metadata":{"name":"other"}}`), metav1.PatchOptions{})
	if !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
		r.Errorf("a patch of the name: got %v", err)
	}
	if _, err := r.objects.Patch(r.Context(), r.fullName("absent"), types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
		r.Errorf("a patch of an absent object: got %v, want NotFound", err)
	}
}

func labelOf(patch types.PatchType) string {
	return map[types.PatchType]string{types.MergePatchType: "merge", types.StrategicMergePatchType: "strategic", types.JSONPatchType: "json"}[patch]
}

func (r *resourceTest) watch(name string) {
	initial := true
	all := r.startWatch(metav1.ListOptions{LabelSelector: r.ownSelector(), SendInitialEvents: &initial, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	all.expect(watch.Added, name)
	if bookmark := all.expect(watch.Bookmark, ""); bookmark.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		r.Errorf("the bookmark after what exists is %v", bookmark)
	}
	byLabel := r.startWatch(metav1.ListOptions{LabelSelector: "walk=watched"})
	byName := r.startWatch(metav1.ListOptions{FieldSelector: "metadata.name=" + r.fullName("watched")})

	created, err := r.objects.Create(r.Context(), r.newObject(r.fullName("watched")), metav1.CreateOptions{})
	r.must(err, "create")
	for _, observer := range []*observer{all, byLabel, byName} {
		observer.expect(watch.Added, r.fullName("watched"))
	}
	_, err = r.objects.Patch(r.Context(), r.fullName("watched"), types.MergePatchType, []byte(`{"metadata":{"labels":{"walk":"away"}}}`), metav1.PatchOptions{})
	r.must(err, "patch")
	all.expect(watch.Modified, r.fullName("watched"))
	byName.expect(watch.Modified, r.fullName("watched"))
	byLabel.expect(watch.Deleted, r.fullName("watched")) // the label does not match any more

	since := r.startWatch(metav1.ListOptions{LabelSelector: r.ownSelector(), ResourceVersion: created.GetResourceVersion()})
	since.expect(watch.Modified, r.fullName("watched"))

	r.must(r.objects.Delete(r.Context(), r.fullName("watched"), metav1.DeleteOptions{}), "delete")
	for _, observer := range []*observer{all, byName, since} {
		observer.expect(watch.Deleted, r.fullName("watched"))
	}
}

// observer is a watch that ends with the test.
type observer struct {
	p      *resourceTest
	events <-chan watch.Event
}

func (r *resourceTest) startWatch(options metav1.ListOptions) *observer {
	watcher, err := r.objects.Watch(r.Context(), options)
	r.must(err, "watch")
	r.Cleanup(watcher.Stop)
	return &observer{r, watcher.ResultChan()}
}

// expect waits for an event and returns its object. It skips changes by controllers, and objects that they create.
func (o *observer) expect(kind watch.EventType, name string) *unstructured.Unstructured {
	o.p.Helper()
	deadline := time.After(eventTimeout)
	for {
		select {
		case event, open := <-o.events:
			if !open || event.Type == watch.Error {
				o.p.Fatalf("waiting for %s %s: the watch ended: %v", kind, name, event.Object)
			}
			obj := event.Object.(*unstructured.Unstructured)
			if event.Type == kind && obj.GetName() == name {
				return obj
			}
			if event.Type != watch.Modified && event.Type != watch.Bookmark {
				o.p.Fatalf("waiting for %s %s: got %s %s", kind, name, event.Type, obj.GetName())
			}
		case <-deadline:
			o.p.Fatalf("timeout waiting for %s %s", kind, name)
		}
	}
}

func (r *resourceTest) pages(string) {
	for i := range 5 {
		obj := r.newObject(r.fullName(fmt.Sprintf("page-%d", i)))
		obj.SetLabels(map[string]string{"book": "yes"})
		_, err := r.objects.Create(r.Context(), obj, metav1.CreateOptions{})
		r.must(err, "create")
	}
	var names, versions []string
	options := metav1.ListOptions{LabelSelector: "book=yes", Limit: 2}
	for {
		page, err := r.objects.List(r.Context(), options)
		r.must(err, "list a page")
		if len(page.Items) > 2 {
			r.Fatalf("a page of 2 has %d objects", len(page.Items))
		}
		for _, item := range page.Items {
			names = append(names, item.GetName())
		}
		versions = append(versions, page.GetResourceVersion())
		if options.Continue = page.GetContinue(); options.Continue == "" {
			break
		}
		if len(names) == 2 { // changes between the pages are not visible in them
			_, err := r.objects.Patch(r.Context(), r.fullName("page-4"), types.MergePatchType, []byte(`{"metadata":{"labels":{"book":"torn"}}}`), metav1.PatchOptions{})
			r.must(err, "patch")
		}
	}
	if want := []string{r.fullName("page-0"), r.fullName("page-1"), r.fullName("page-2"), r.fullName("page-3"), r.fullName("page-4")}; !slices.Equal(names, want) || len(versions) != 3 || len(slices.Compact(versions)) != 1 {
		r.Errorf("pages contain %v at versions %v", names, versions)
	}
	if _, err := r.objects.List(r.Context(), metav1.ListOptions{Limit: 2, Continue: "nonsense"}); err == nil {
		r.Error("a malformed continue token was accepted")
	}
}

func (r *resourceTest) deletion(name string) {
	obj, err := r.objects.Create(r.Context(), r.newObject(r.fullName("brief")), metav1.CreateOptions{})
	r.must(err, "create")
	other := types.UID("another")
	if err := r.objects.Delete(r.Context(), r.fullName("brief"), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		r.Errorf("deleting another object of that name: got %v, want a conflict", err)
	}
	r.must(r.objects.Delete(r.Context(), r.fullName("brief"), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}), "delete, dry")
	if left := r.get(r.fullName("brief")); left.GetUID() != obj.GetUID() || left.GetDeletionTimestamp() != nil {
		r.Error("a dry deletion was written")
	}
	uid := obj.GetUID()
	r.must(r.objects.Delete(r.Context(), r.fullName("brief"), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}), "delete")
	r.expectDeleted(r.fullName("brief"))
	if err := r.objects.Delete(r.Context(), r.fullName("brief"), metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		r.Errorf("deleting it again: got %v, want NotFound", err)
	}
}

func (r *resourceTest) expectDeleted(name string) {
	r.Helper()
	check := func(ctx context.Context) error {
		_, err := r.objects.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s still exists (%v)", name, err)
	}
	if r.asyncDeletion {
		shardtesting.Eventually(r.T, "deletion", check)
	} else {
		r.must(check(r.Context()), "deletion")
	}
}

func (r *resourceTest) deleteCollection(name string) {
	if !r.hasVerb("deletecollection") {
		if err := r.objects.DeleteCollection(r.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); !apierrors.IsMethodNotSupported(err) {
			r.Errorf("deletecollection is not offered: got %v, want MethodNotAllowed", err)
		}
		return
	}
	everything := metav1.ListOptions{LabelSelector: "book"}
	r.must(r.objects.DeleteCollection(r.Context(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, everything), "delete, dry")
	if list, err := r.objects.List(r.Context(), everything); err != nil || len(list.Items) != 5 {
		r.Errorf("a dry deletion left %d objects of 5: %v", len(list.Items), err)
	}
	r.must(r.objects.DeleteCollection(r.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "book=yes"}), "delete")
	for i := range 4 {
		r.expectDeleted(r.fullName(fmt.Sprintf("page-%d", i)))
	}
	r.get(r.fullName("page-4")) // its label was changed before
	r.get(name)
}
