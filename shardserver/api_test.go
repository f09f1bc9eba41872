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

func (p *resourceTest) connect(config *rest.Config) {
	if p.resource.Namespaced {
		p.namespace = "walk-" + rand.String(5)
		namespaces := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
		namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": p.namespace}}}
		_, err := namespaces.Create(p.Context(), namespace, metav1.CreateOptions{})
		p.must(err, "create the namespace")
	}
	objects := dynamic.NewForConfigOrDie(config).Resource(p.gvr)
	partial := metadata.NewForConfigOrDie(config).Resource(p.gvr)
	p.objects, p.metadata = objects, partial
	if p.resource.Namespaced {
		p.objects, p.metadata = objects.Namespace(p.namespace), partial.Namespace(p.namespace)
	}
	p.raw = discovery.NewDiscoveryClientForConfigOrDie(config).RESTClient()
}

func (p *resourceTest) runSteps() {
	type step struct {
		name string
		do   func(name string)
	}
	first := p.existing
	steps := []step{
		{"read", p.read}, {"select", p.selectors}, {"table", p.table}, {"metadata", p.partialMetadata},
		{"strict fields", p.strictFields}, {"versions", p.versions}, {"patch", p.patch},
	}
	if p.createForbidden == "" {
		first = p.fullName("one")
		steps = append([]step{{"dry run of a creation", p.dryRunCreate}, {"apply", p.apply}}, steps...)
		steps = append(steps, step{"watch", p.watch}, step{"pages", p.pages}, step{"deletion", p.deletion}, step{"collection", p.deleteCollection})
	} else {
		steps = append(steps, step{"no creation", p.rejectCreate})
	}
	for _, step := range steps {
		parent := p.T
		if !p.Run(step.name, func(t *testing.T) {
			p.T = t
			defer func() { p.T = parent }()
			step.do(first)
		}) {
			p.T = parent
			return // the following steps need the objects of the failed one
		}
	}
}

func (p *resourceTest) must(err error, what string) {
	p.Helper()
	if err != nil {
		p.Fatalf("%s: %v", what, err)
	}
}

func (p *resourceTest) hasVerb(verb string) bool { return slices.Contains(p.resource.Verbs, verb) }

// fullName returns the full name of an object.
func (p *resourceTest) fullName(first string) string { return first + p.suffix }

func (p *resourceTest) newObject(name string) *unstructured.Unstructured {
	return p.object(p.gvk, p.namespace, name)
}

func (p *resourceTest) get(name string) *unstructured.Unstructured {
	p.Helper()
	obj, err := p.objects.Get(p.Context(), name, metav1.GetOptions{})
	p.must(err, "get "+name)
	return obj
}

// ownSelector restricts a list to the objects of the test: controllers create objects of their own in every workspace.
func (p *resourceTest) ownSelector() string {
	if p.createForbidden != "" {
		return ""
	}
	return "walked=yes"
}

func (p *resourceTest) dryRunCreate(name string) {
	_, err := p.objects.Create(p.Context(), p.newObject(name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	p.must(err, "create, dry")
	_, err = p.objects.Apply(p.Context(), name, p.newObject(name), metav1.ApplyOptions{FieldManager: "walker", DryRun: []string{metav1.DryRunAll}})
	p.must(err, "apply, dry")
	if _, err := p.objects.Get(p.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		p.Errorf("a dry run created an object: %v", err)
	}
}

func (p *resourceTest) apply(name string) {
	applied, err := p.objects.Apply(p.Context(), name, p.newObject(name), metav1.ApplyOptions{FieldManager: "walker"})
	p.must(err, "apply")
	managers := map[string]metav1.ManagedFieldsOperationType{}
	for _, entry := range applied.GetManagedFields() {
		managers[entry.Manager] = entry.Operation
	}
	if managers["walker"] != metav1.ManagedFieldsOperationApply {
		p.Errorf("managed fields do not name the applier: %v", managers)
	}
	// Once controllers have finished their writes.
	shardtesting.Eventually(p.T, "applying the same again", func(ctx context.Context) error {
		before := applied.GetResourceVersion()
		applied, err = p.objects.Apply(ctx, name, p.newObject(name), metav1.ApplyOptions{FieldManager: "walker"})
		if err == nil && applied.GetResourceVersion() != before {
			err = fmt.Errorf("the object changed: version %s, then %s", before, applied.GetResourceVersion())
		}
		return err
	})
	other := p.newObject(name)
	other.SetLabels(map[string]string{"walk": "taken"})
	if _, err = p.objects.Apply(p.Context(), name, other, metav1.ApplyOptions{FieldManager: "rival"}); !apierrors.IsConflict(err) {
		p.Errorf("applying another's field: got %v, want a conflict", err)
	}
	if _, err = p.objects.Create(p.Context(), p.newObject(name), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		p.Errorf("creating it again: got %v, want AlreadyExists", err)
	}
}

func (p *resourceTest) rejectCreate(string) {
	_, err := p.objects.Create(p.Context(), p.newObject(p.existing), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		p.Errorf("create: got %v, want Forbidden, because %s", err, p.createForbidden)
	}
	if err := p.objects.Delete(p.Context(), p.existing, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		p.Errorf("delete: got %v, want Forbidden, because %s", err, p.createForbidden)
	}
}

func (p *resourceTest) read(name string) {
	obj := p.get(name)
	if created := obj.GetCreationTimestamp(); obj.GroupVersionKind() != p.gvk || obj.GetUID() == "" || created.IsZero() || obj.GetAnnotations()["kcp.io/cluster"] == "" {
		p.Errorf("got %v", obj.Object)
	}
	for what, options := range map[string]metav1.ListOptions{
		"consistent": {}, "from the cache": {ResourceVersion: "0"}, "not older": {ResourceVersion: obj.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
	} {
		options.LabelSelector = p.ownSelector()
		shardtesting.Eventually(p.T, "list "+what, func(ctx context.Context) error { // the cache may be behind
			list, err := p.objects.List(ctx, options)
			if err != nil {
				return err
			}
			if len(list.Items) != 1 || list.Items[0].GetName() != name || list.GetResourceVersion() == "" || list.Items[0].GroupVersionKind() != p.gvk {
				return fmt.Errorf("got %v", list)
			}
			return nil
		})
	}
}

func (p *resourceTest) selectors(name string) {
	selectors := map[string]struct {
		options metav1.ListOptions
		want    int
	}{
		"by name":         {metav1.ListOptions{FieldSelector: "metadata.name=" + name}, 1},
		"by another name": {metav1.ListOptions{FieldSelector: "metadata.name=absent"}, 0},
		"by absent label": {metav1.ListOptions{LabelSelector: "walk=absent"}, 0},
	}
	if p.resource.Namespaced {
		selectors["by namespace"] = struct {
			options metav1.ListOptions
			want    int
		}{metav1.ListOptions{FieldSelector: "metadata.namespace=" + p.namespace, LabelSelector: "walk in (one, two)"}, 1}
	}
	if p.fieldSelector != "" {
		selectors["by a field of its own"] = struct {
			options metav1.ListOptions
			want    int
		}{metav1.ListOptions{FieldSelector: p.replaceNamespace(p.fieldSelector, p.namespace), LabelSelector: "walk=" + name}, 1}
	}
	for what, tc := range selectors {
		for _, resourceVersion := range []string{"", "0"} {
			tc.options.ResourceVersion = resourceVersion
			list, err := p.objects.List(p.Context(), tc.options)
			p.must(err, what)
			if len(list.Items) != tc.want {
				p.Errorf("%s, resourceVersion %q: got %d objects, want %d", what, resourceVersion, len(list.Items), tc.want)
			}
		}
	}
	if _, err := p.objects.List(p.Context(), metav1.ListOptions{FieldSelector: "spec.nonsense=x"}); !apierrors.IsBadRequest(err) {
		p.Errorf("an unknown field selector: got %v, want BadRequest", err)
	}
	if _, err := p.objects.List(p.Context(), metav1.ListOptions{LabelSelector: "=="}); !apierrors.IsBadRequest(err) {
		p.Errorf("a malformed label selector: got %v, want BadRequest", err)
	}
}

// request starts a raw request for the resource, for parameters that typed clients do not send.
func (p *resourceTest) request(name string) *rest.Request {
	prefix := "/apis/" + p.gvr.Group
	if p.gvr.Group == "" {
		prefix = "/api"
	}
	segments := []string{prefix, p.gvr.Version}
	if p.namespace != "" {
		segments = append(segments, "namespaces", p.namespace)
	}
	segments = append(segments, p.gvr.Resource)
	if name != "" {
		segments = append(segments, name)
	}
	return p.raw.Get().AbsPath(segments...)
}

func (p *resourceTest) table(name string) {
	for what, request := range map[string]*rest.Request{
		"of one": p.request(name), "of a list": p.request("").Param("fieldSelector", "metadata.name="+name),
	} {
		raw, err := request.SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Param("includeObject", "Metadata").DoRaw(p.Context())
		p.must(err, "table "+what)
		var table metav1.Table
		p.must(json.Unmarshal(raw, &table), "decode the table "+what)
		if table.Kind != "Table" || len(table.Rows) != 1 || len(table.ColumnDefinitions) < 2 || len(table.Rows[0].Cells) != len(table.ColumnDefinitions) {
			p.Errorf("table %s: %s", what, raw)
			continue
		}
		var object metav1.PartialObjectMetadata
		p.must(json.Unmarshal(table.Rows[0].Object.Raw, &object), "decode the row's object")
		if object.Name != name || object.Kind != "PartialObjectMetadata" {
			p.Errorf("the row's object is %s", table.Rows[0].Object.Raw)
		}
	}
}

func (p *resourceTest) partialMetadata(name string) {
	one, err := p.metadata.Get(p.Context(), name, metav1.GetOptions{})
	p.must(err, "get metadata")
	list, err := p.metadata.List(p.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	p.must(err, "list metadata")
	if len(list.Items) != 1 || list.Items[0].UID != one.UID || one.Annotations["kcp.io/cluster"] == "" {
		p.Errorf("got %v and %v", one, list.Items)
	}
	ctx, stop := context.WithTimeout(p.Context(), eventTimeout)
	defer stop()
	watcher, err := p.metadata.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	p.must(err, "watch metadata")
	defer watcher.Stop()
	event := <-watcher.ResultChan()
	if partial, ok := event.Object.(*metav1.PartialObjectMetadata); !ok || event.Type != watch.Added || partial.UID != one.UID {
		p.Errorf("the first event is %v", event)
	}
}

func (p *resourceTest) strictFields(name string) {
	stray := []byte(`{"nonsense": 1, "metadata": {"labels": {"stray": "no"}}}`)
	_, err := p.objects.Patch(p.Context(), name, types.MergePatchType, stray, metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict})
	if err == nil || !strings.Contains(err.Error(), `unknown field "nonsense"`) {
		p.Errorf("an unknown field, strict: got %v", err)
	}
	if got := p.get(name).GetLabels()["stray"]; got != "" {
		p.Error("the rejected patch was written")
	}
	warnings := &warningRecorder{}
	result := p.request(name).Verb(http.MethodPatch).SetHeader("Content-Type", string(types.MergePatchType)).WarningHandlerWithContext(warnings).
		Param("fieldValidation", "Warn").Param("dryRun", "All").Body(stray).Do(p.Context())
	p.must(result.Error(), "an unknown field, with a warning")
	if !slices.ContainsFunc(warnings.texts, func(text string) bool { return strings.Contains(text, `unknown field "nonsense"`) }) {
		p.Errorf("warnings are %q", warnings.texts)
	}
}

// warningRecorder collects warnings.
type warningRecorder struct{ texts []string }

func (h *warningRecorder) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	h.texts = append(h.texts, text)
}

func (p *resourceTest) versions(name string) {
	stale := p.get(name)
	stale.SetResourceVersion("1")
	if _, err := p.objects.Update(p.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		p.Errorf("an update of an old version: got %v, want a conflict", err)
	}
	stale.SetResourceVersion(p.get(name).GetResourceVersion())
	stale.SetUID("another")
	if _, err := p.objects.Update(p.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		p.Errorf("an update of another object of that name: got %v, want a conflict", err)
	}
	if _, err := p.objects.List(p.Context(), metav1.ListOptions{ResourceVersion: "x"}); err == nil {
		p.Error("a malformed resourceVersion was accepted")
	}
	if _, err := p.objects.List(p.Context(), metav1.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact}); !apierrors.IsInvalid(err) {
		p.Errorf("a match without a version: got %v, want Invalid", err)
	}
	// A list at an earlier resourceVersion returns the earlier state.
	before, err := p.objects.List(p.Context(), metav1.ListOptions{LabelSelector: p.ownSelector()})
	p.must(err, "list")
	_, err = p.objects.Patch(p.Context(), name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"later":"yes"}}}`), metav1.PatchOptions{})
	p.must(err, "patch")
	past, err := p.objects.List(p.Context(), metav1.ListOptions{
		LabelSelector: p.ownSelector(), ResourceVersion: before.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	p.must(err, "list at an earlier version")
	if len(past.Items) != 1 || past.Items[0].GetAnnotations()["later"] != "" || past.GetResourceVersion() != before.GetResourceVersion() {
		p.Errorf("the list of version %s is %v", before.GetResourceVersion(), past)
	}
}

func (p *resourceTest) patch(name string) {
	for patch, body := range map[types.PatchType]string{
		types.MergePatchType:          `{"metadata":{"labels":{"merge":"yes"},"finalizers":["example.com/one"]}}`,
		types.StrategicMergePatchType: `{"metadata":{"labels":{"strategic":"yes"}}}`,
		types.JSONPatchType:           `[{"op":"add","path":"/metadata/labels/json","value":"yes"}]`,
	} {
		if patch == types.JSONPatchType && p.createForbidden != "" {
			body = `[{"op":"test","path":"/metadata/name","value":"` + name + `"},{"op":"add","path":"/metadata/annotations/json","value":"yes"}]`
		}
		_, err := p.objects.Patch(p.Context(), name, patch, []byte(body), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		p.must(err, string(patch)+", dry")
		if p.get(name).GetLabels()[labelOf(patch)] != "" {
			p.Errorf("a dry %s was written", patch)
		}
		_, err = p.objects.Patch(p.Context(), name, patch, []byte(body), metav1.PatchOptions{})
		p.must(err, string(patch))
	}
	labels := p.get(name).GetLabels()
	if labels["merge"] != "yes" || labels["strategic"] != "yes" || (labels["json"] != "yes" && p.createForbidden == "") {
		p.Errorf("labels are %v", labels)
	}
	// Only a strategic merge patch adds to a list; a merge patch replaces it.
	added, err := p.objects.Patch(p.Context(), name, types.StrategicMergePatchType, []byte(`{"metadata":{"finalizers":["example.com/two"]}}`), metav1.PatchOptions{})
	p.must(err, "add a finalizer")
	for _, want := range []string{"example.com/one", "example.com/two"} {
		if !slices.Contains(added.GetFinalizers(), want) {
			p.Errorf("finalizers are %v", added.GetFinalizers())
		}
	}
	others := slices.DeleteFunc(added.GetFinalizers(), func(f string) bool { return strings.HasPrefix(f, "example.com/") })
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": others}})
	p.must(err, "encode")
	left, err := p.objects.Patch(p.Context(), name, types.MergePatchType, body, metav1.PatchOptions{})
	p.must(err, "remove the finalizers")
	if len(left.GetFinalizers()) != len(others) {
		p.Errorf("finalizers are %v", left.GetFinalizers())
	}
	_, err = p.objects.Patch(p.Context(), name, types.JSONPatchType, []byte(`[{"op":"test","path":"/metadata/name","value":"other"}]`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) {
		p.Errorf("a JSON patch whose test fails: got %v, want Invalid", err)
	}
	_, err = p.objects.Patch(p.Context(), name, types.MergePatchType, []byte(`{"metadata":{"name":"other"}}`), metav1.PatchOptions{})
	if !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
		p.Errorf("a patch of the name: got %v", err)
	}
	if _, err := p.objects.Patch(p.Context(), p.fullName("absent"), types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
		p.Errorf("a patch of an absent object: got %v, want NotFound", err)
	}
}

func labelOf(patch types.PatchType) string {
	return map[types.PatchType]string{types.MergePatchType: "merge", types.StrategicMergePatchType: "strategic", types.JSONPatchType: "json"}[patch]
}

func (p *resourceTest) watch(name string) {
	initial := true
	all := p.startWatch(metav1.ListOptions{LabelSelector: p.ownSelector(), SendInitialEvents: &initial, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	all.expect(watch.Added, name)
	if bookmark := all.expect(watch.Bookmark, ""); bookmark.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		p.Errorf("the bookmark after what exists is %v", bookmark)
	}
	byLabel := p.startWatch(metav1.ListOptions{LabelSelector: "walk=watched"})
	byName := p.startWatch(metav1.ListOptions{FieldSelector: "metadata.name=" + p.fullName("watched")})

	created, err := p.objects.Create(p.Context(), p.newObject(p.fullName("watched")), metav1.CreateOptions{})
	p.must(err, "create")
	for _, observer := range []*observer{all, byLabel, byName} {
		observer.expect(watch.Added, p.fullName("watched"))
	}
	_, err = p.objects.Patch(p.Context(), p.fullName("watched"), types.MergePatchType, []byte(`{"metadata":{"labels":{"walk":"away"}}}`), metav1.PatchOptions{})
	p.must(err, "patch")
	all.expect(watch.Modified, p.fullName("watched"))
	byName.expect(watch.Modified, p.fullName("watched"))
	byLabel.expect(watch.Deleted, p.fullName("watched")) // the label does not match any more

	since := p.startWatch(metav1.ListOptions{LabelSelector: p.ownSelector(), ResourceVersion: created.GetResourceVersion()})
	since.expect(watch.Modified, p.fullName("watched"))

	p.must(p.objects.Delete(p.Context(), p.fullName("watched"), metav1.DeleteOptions{}), "delete")
	for _, observer := range []*observer{all, byName, since} {
		observer.expect(watch.Deleted, p.fullName("watched"))
	}
}

// observer is a watch that ends with the test.
type observer struct {
	p      *resourceTest
	events <-chan watch.Event
}

func (p *resourceTest) startWatch(options metav1.ListOptions) *observer {
	watcher, err := p.objects.Watch(p.Context(), options)
	p.must(err, "watch")
	p.Cleanup(watcher.Stop)
	return &observer{p, watcher.ResultChan()}
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

func (p *resourceTest) pages(string) {
	for i := range 5 {
		obj := p.newObject(p.fullName(fmt.Sprintf("page-%d", i)))
		obj.SetLabels(map[string]string{"book": "yes"})
		_, err := p.objects.Create(p.Context(), obj, metav1.CreateOptions{})
		p.must(err, "create")
	}
	var names, versions []string
	options := metav1.ListOptions{LabelSelector: "book=yes", Limit: 2}
	for {
		page, err := p.objects.List(p.Context(), options)
		p.must(err, "list a page")
		if len(page.Items) > 2 {
			p.Fatalf("a page of 2 has %d objects", len(page.Items))
		}
		for _, item := range page.Items {
			names = append(names, item.GetName())
		}
		versions = append(versions, page.GetResourceVersion())
		if options.Continue = page.GetContinue(); options.Continue == "" {
			break
		}
		if len(names) == 2 { // changes between the pages are not visible in them
			_, err := p.objects.Patch(p.Context(), p.fullName("page-4"), types.MergePatchType, []byte(`{"metadata":{"labels":{"book":"torn"}}}`), metav1.PatchOptions{})
			p.must(err, "patch")
		}
	}
	if want := []string{p.fullName("page-0"), p.fullName("page-1"), p.fullName("page-2"), p.fullName("page-3"), p.fullName("page-4")}; !slices.Equal(names, want) || len(versions) != 3 || len(slices.Compact(versions)) != 1 {
		p.Errorf("pages contain %v at versions %v", names, versions)
	}
	if _, err := p.objects.List(p.Context(), metav1.ListOptions{Limit: 2, Continue: "nonsense"}); err == nil {
		p.Error("a malformed continue token was accepted")
	}
}

func (p *resourceTest) deletion(name string) {
	obj, err := p.objects.Create(p.Context(), p.newObject(p.fullName("brief")), metav1.CreateOptions{})
	p.must(err, "create")
	other := types.UID("another")
	if err := p.objects.Delete(p.Context(), p.fullName("brief"), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		p.Errorf("deleting another object of that name: got %v, want a conflict", err)
	}
	p.must(p.objects.Delete(p.Context(), p.fullName("brief"), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}), "delete, dry")
	if left := p.get(p.fullName("brief")); left.GetUID() != obj.GetUID() || left.GetDeletionTimestamp() != nil {
		p.Error("a dry deletion was written")
	}
	uid := obj.GetUID()
	p.must(p.objects.Delete(p.Context(), p.fullName("brief"), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}), "delete")
	p.expectDeleted(p.fullName("brief"))
	if err := p.objects.Delete(p.Context(), p.fullName("brief"), metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		p.Errorf("deleting it again: got %v, want NotFound", err)
	}
}

func (p *resourceTest) expectDeleted(name string) {
	p.Helper()
	check := func(ctx context.Context) error {
		_, err := p.objects.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s still exists (%v)", name, err)
	}
	if p.asyncDeletion {
		shardtesting.Eventually(p.T, "deletion", check)
	} else {
		p.must(check(p.Context()), "deletion")
	}
}

func (p *resourceTest) deleteCollection(name string) {
	if !p.hasVerb("deletecollection") {
		if err := p.objects.DeleteCollection(p.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); !apierrors.IsMethodNotSupported(err) {
			p.Errorf("deletecollection is not offered: got %v, want MethodNotAllowed", err)
		}
		return
	}
	everything := metav1.ListOptions{LabelSelector: "book"}
	p.must(p.objects.DeleteCollection(p.Context(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, everything), "delete, dry")
	if list, err := p.objects.List(p.Context(), everything); err != nil || len(list.Items) != 5 {
		p.Errorf("a dry deletion left %d objects of 5: %v", len(list.Items), err)
	}
	p.must(p.objects.DeleteCollection(p.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "book=yes"}), "delete")
	for i := range 4 {
		p.expectDeleted(p.fullName(fmt.Sprintf("page-%d", i)))
	}
	p.get(p.fullName("page-4")) // its label was changed before
	p.get(name)
}
