package syncer_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/syncerview"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestSyncerView runs its steps in order on one installation.
func TestSyncerView(t *testing.T) {
	s := newEnv(t)
	s.eventually(http.StatusOK, "agent", http.MethodGet, s.viewPath("*", allGadgetsPath), "")
	for _, part := range []struct {
		name string
		run  func(*env)
	}{
		{"discovery has the names of the service cluster", testDiscovery},
		{"lists and gets show matching objects", testReads},
		{"objects enter and leave watches with their labels", testWatch},
		{"objects enter and leave watches with their namespaces", testNamespaces},
		{"writes are limited", testWrites},
		{"related resources are served unchanged", testRelated},
		{"everything else is refused", testRefusals},
		{"the description is validated", testDescription},
		{"watches end when the publication changes", testPublicationChange},
		{"requests may name a revision of the description", testRevision},
		{"watches end with the binding", testUnbinding},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(s.withT(t)) }) {
			return
		}
	}
}

func testDiscovery(s *env) {
	for i, cluster := range []string{"*", s.accepting, s.rejecting} {
		built := s.shards["beta"].Server.DocumentStats()
		var groups metav1.APIGroupList
		s.decode(s.expect(http.StatusOK, "agent", http.MethodGet, s.viewPath(cluster, "/apis"), ""), &groups)
		var names []string
		for _, group := range groups.Groups {
			names = append(names, group.Name)
		}
		if got := strings.Join(names, " "); got != "example.io service.io" {
			s.Errorf("the groups are %s", got)
		}
		for path, want := range map[string]string{
			"/apis/service.io/v1beta1": "gadgets Gadget [get list patch update watch], gadgets/status Gadget [get patch update]",
			"/apis/example.io/v1":      "profiles Profile [delete deletecollection get list patch create update watch], profiles/status Profile [get patch update]",
			"/api/v1": "configmaps ConfigMap [get list patch update watch], configmaps/status ConfigMap [get patch update], namespaces Namespace [create delete get list patch update watch], " +
				"namespaces/status Namespace [get patch update], secrets Secret [create delete deletecollection get list patch update watch]",
		} {
			var list metav1.APIResourceList
			s.decode(s.expect(http.StatusOK, "agent", http.MethodGet, s.viewPath(cluster, path), ""), &list)
			var resources []string
			for _, r := range list.APIResources {
				resources = append(resources, fmt.Sprintf("%s %s %v", r.Name, r.Kind, r.Verbs))
			}
			if slices.Sort(resources); strings.Join(resources, ", ") != want {
				s.Errorf("%s of %s has\n%s, want\n%s", path, cluster, strings.Join(resources, ", "), want)
			}
		}
		var aggregated apidiscoveryv2.APIGroupDiscoveryList
		s.decode(s.expect(http.StatusOK, "agent", http.MethodGet, s.viewPath(cluster, "/apis"), "", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"), &aggregated)
		if len(aggregated.Items) != 2 {
			s.Errorf("aggregated discovery is %+v", aggregated)
		}
		document := s.expect(http.StatusOK, "agent", http.MethodGet, s.viewPath(cluster, "/openapi/v3/apis/service.io/v1beta1"), "")
		if !strings.Contains(document, "/apis/service.io/v1beta1/namespaces/{namespace}/gadgets/{name}/status") || !strings.Contains(document, `"kind":"Gadget"`) || strings.Contains(document, "idget") {
			s.Errorf("OpenAPI of %s is %.2000s", cluster, document)
		}
		for _, path := range []string{"/apis/service.io/v1", "/apis/apis.kcp.io/v1alpha2", "/openapi/v3/apis/apis.kcp.io/v1alpha2"} {
			s.expect(http.StatusNotFound, "agent", http.MethodGet, s.viewPath(cluster, path), "")
		}
		if after := s.shards["beta"].Server.DocumentStats(); i > 0 && (after.Discovery.Built != built.Discovery.Built || after.OpenAPIv3.Built != built.OpenAPIv3.Built) {
			s.Errorf("documents were built for one more consumer: %+v, %+v", built, after)
		}
	}
}

const gadgetKinds = "service.io/v1beta1 Gadget"

func testReads(s *env) {
	s.newObject(s.accepting, widgetsPath, "Widget", "first", `,"labels":{"sync":"yes","colour":"red"}`)
	s.newObject(s.accepting, widgetsPath, "Widget", "ignored", `,"labels":{"sync":"no","colour":"red"}`)
	s.newObject(s.rejecting, widgetsPath, "Widget", "second", `,"labels":{"sync":"yes"}`)
	s.newObject(s.rejecting, widgetsPath, "Widget", "unlabelled", "")
	for path, want := range map[string]string{
		s.viewPath("*", allGadgetsPath): "first second", s.viewPath(s.accepting, allGadgetsPath): "first", s.viewPath(s.accepting, gadgetsPath): "first", s.viewPath(s.rejecting, gadgetsPath): "second",
		s.viewPath("*", allGadgetsPath+"?labelSelector=colour%3Dred"): "first", s.viewPath("*", allGadgetsPath+"?labelSelector=sync%3Dno"): "", s.viewPath("*", allGadgetsPath+"?fieldSelector=metadata.name%3Dsecond"): "second",
		s.viewPath(s.accepting, allGadgetsPath+"?limit=1"): "first", s.viewPath("*", allGadgetsPath+"?resourceVersion=0"): "first second", s.viewPath("*", allGadgetsPath+"/"): "first second",
	} {
		names, kinds := s.list(path)
		if strings.Join(names, " ") != want {
			s.Errorf("%s lists %v, want %s", path, names, want)
		}
		if delete(kinds, gadgetKinds); !kinds[gadgetKinds+"List"] || len(kinds) != 1 {
			s.Errorf("%s has the kinds %v", path, kinds)
		}
	}
	const metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	if names, kinds := s.list(s.viewPath("*", allGadgetsPath), "Accept", metadata); len(names) != 2 || !kinds["meta.k8s.io/v1 PartialObjectMetadataList"] {
		s.Errorf("the metadata is of %v, %v", names, kinds)
	}
	if names, kinds := s.list(s.viewPath("*", allGadgetsPath), "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"); len(names) != 2 || !kinds[gadgetKinds+"List"] {
		s.Errorf("a client of tables gets %v, %v", names, kinds)
	}
	for _, accept := range []string{"application/yaml", "application/cbor", "application/json;as=Table;v=v1;g=meta.k8s.io"} {
		s.expect(http.StatusNotAcceptable, "agent", http.MethodGet, s.viewPath("*", allGadgetsPath), "", "Accept", accept)
	}
	var got object
	s.decode(s.expect(http.StatusOK, "agent", http.MethodGet, s.viewPath(s.accepting, gadgetsPath+"/first"), ""), &got)
	if got.Kind != "Gadget" || got.APIVersion != "service.io/v1beta1" || got.Annotations["kcp.io/cluster"] != s.accepting {
		s.Errorf("got %+v", got)
	}
	s.expect(http.StatusNotFound, "agent", http.MethodGet, s.viewPath(s.accepting, gadgetsPath+"/ignored"), "")
	s.expect(http.StatusNotFound, "agent", http.MethodGet, s.viewPath(s.accepting, gadgetsPath+"/ignored/status"), "")
	s.expect(http.StatusNotFound, "agent", http.MethodGet, s.viewPath(s.accepting, gadgetsPath+"/none"), "")
	resp := s.open(s.Context(), "alpha", "agent", http.MethodGet, s.viewPath("*", allGadgetsPath), "")
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		s.Errorf("a shard without consumers responds with %d", resp.StatusCode)
	}
}

func (e *env) patch(cluster, path, body string) {
	e.Helper()
	e.expect(http.StatusOK, "masters", http.MethodPatch, "/clusters/"+cluster+path, body)
}

func testWatch(s *env) {
	wildcard, one := s.watch(s.viewPath("*", allGadgetsPath+"?watch=1")), s.watch(s.viewPath(s.accepting, gadgetsPath+"?watch=1"))
	initial := []string{}
	for range 2 {
		event, err := wildcard.next()
		if err != nil {
			s.Fatal(err)
		}
		initial = append(initial, event)
	}
	if slices.Sort(initial); strings.Join(initial, ",") != "ADDED "+gadgetKinds+" first,ADDED "+gadgetKinds+" second" {
		s.Errorf("the watch starts with %v", initial)
	}
	one.expect("ADDED " + gadgetKinds + " first")
	s.patch(s.accepting, widgetsPath+"/ignored", `{"spec":{"size":2}}`)
	s.patch(s.accepting, widgetsPath+"/ignored", `{"metadata":{"labels":{"sync":"yes"}}}`)
	s.patch(s.accepting, widgetsPath+"/ignored", `{"spec":{"size":3}}`)
	s.patch(s.accepting, widgetsPath+"/ignored", `{"metadata":{"labels":{"sync":"no"}}}`)
	s.patch(s.accepting, widgetsPath+"/ignored", `{"spec":{"size":4}}`)
	s.patch(s.accepting, widgetsPath+"/first", `{"spec":{"size":5}}`)
	for _, w := range []*watchStream{wildcard, one} {
		w.expect("ADDED "+gadgetKinds+" ignored", "MODIFIED "+gadgetKinds+" ignored", "DELETED "+gadgetKinds+" ignored", "MODIFIED "+gadgetKinds+" first")
	}
	// With the agent's finalizer it stays until the agent has released it.
	s.patch(s.accepting, widgetsPath+"/ignored", `{"metadata":{"labels":{"sync":"yes"},"finalizers":["syncagent.kcp.io/cleanup"]}}`)
	s.patch(s.accepting, widgetsPath+"/ignored", `{"metadata":{"labels":{"sync":"no"}}}`)
	if names, _ := s.list(s.viewPath(s.accepting, allGadgetsPath)); strings.Join(names, " ") != "first ignored" {
		s.Errorf("with the finalizer, %v are listed", names)
	}
	s.expect(http.StatusOK, "agent", http.MethodPatch, s.viewPath(s.accepting, gadgetsPath+"/ignored"), `{"metadata":{"finalizers":null}}`)
	for _, w := range []*watchStream{wildcard, one} {
		w.expect("ADDED "+gadgetKinds+" ignored", "MODIFIED "+gadgetKinds+" ignored", "DELETED "+gadgetKinds+" ignored")
	}
	streaming := s.watch(s.viewPath("*", allGadgetsPath+"?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"))
	for _, want := range []string{"ADDED " + gadgetKinds, "ADDED " + gadgetKinds, "BOOKMARK " + gadgetKinds} {
		if got, err := streaming.next(); err != nil || !strings.HasPrefix(got, want) {
			s.Errorf("got %q, %v, want %s", got, err, want)
		}
	}
	metadata := s.watch(s.viewPath(s.accepting, gadgetsPath+"?watch=1"), "Accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
	metadata.expect("ADDED meta.k8s.io/v1 PartialObjectMetadata first")
}

// newNamespace creates a namespace, or sets its label.
func (e *env) setNamespace(cluster, name, value string) {
	e.Helper()
	e.expect(http.StatusOK, "masters", http.MethodPatch, "/clusters/"+cluster+"/api/v1/namespaces/"+name, `{"metadata":{"labels":{"env":"`+value+`"}}}`)
}

func testNamespaces(s *env) {
	for _, cluster := range []string{s.accepting, s.rejecting} {
		for _, name := range []string{"one", "two"} {
			s.expect(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+"/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+name+`","labels":{"env":"prod"}}}`)
		}
		s.newObject(cluster, strings.Replace(mapsPath, "NAMESPACE", "one", 1), "Map", "in-one", "")
		s.newObject(cluster, strings.Replace(mapsPath, "NAMESPACE", "two", 1), "Map", "in-two", "")
	}
	shardtesting.Eventually(s.T, "the claim on namespaces is effective", func(context.Context) error {
		names, kinds := s.list(s.viewPath("*", allMapsPath))
		if strings.Join(names, " ") != "in-one in-two" || !kinds["v1 ConfigMapList"] || !kinds["v1 ConfigMap"] {
			return fmt.Errorf("%v, %v", names, kinds) // those of a consumer that rejects the claim are not shown
		}
		return nil
	})
	s.expect(http.StatusForbidden, "agent", http.MethodGet, s.viewPath(s.rejecting, allMapsPath), "")
	s.expect(http.StatusForbidden, "agent", http.MethodGet, s.viewPath(s.rejecting, allMapsPath+"?watch=1"), "")
	s.setNamespace(s.accepting, "two", "test")
	shardtesting.Eventually(s.T, "a namespace has left", func(context.Context) error {
		if names, _ := s.list(s.viewPath(s.accepting, allMapsPath)); strings.Join(names, " ") != "in-one" {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
	s.expect(http.StatusNotFound, "agent", http.MethodGet, s.viewPath(s.accepting, "/api/v1/namespaces/two/configmaps/in-two"), "")
	s.expect(http.StatusNotFound, "agent", http.MethodGet, s.viewPath(s.rejecting, "/api/v1/namespaces/one/configmaps/in-one"), "")
	s.expect(http.StatusOK, "agent", http.MethodGet, s.viewPath(s.accepting, "/api/v1/namespaces/one/configmaps/in-one"), "")

	var list metav1.PartialObjectMetadataList
	s.decode(s.expect(http.StatusOK, "agent", http.MethodGet, s.viewPath("*", allMapsPath), ""), &list)
	resumed := "?watch=1&resourceVersion=" + list.ResourceVersion
	watches := []*watchStream{s.watch(s.viewPath("*", allMapsPath+resumed)), s.watch(s.viewPath(s.accepting, allMapsPath+resumed))}
	follow := func(steps string, wanted ...string) {
		s.Helper()
		for i, w := range watches {
			for _, want := range wanted {
				for { // events of earlier changes of namespaces may be repeated
					got, err := w.next()
					if err != nil {
						s.Fatalf("%s: watch %d ends: %v", steps, i, err)
					}
					if got == want {
						break
					}
				}
			}
		}
	}
	s.setNamespace(s.accepting, "two", "prod")
	follow("a namespace starts to match", "ADDED v1 ConfigMap in-two")
	s.patch(s.accepting, strings.Replace(mapsPath, "NAMESPACE", "two", 1)+"/in-two", `{"spec":{"size":2}}`)
	follow("an object in it changes", "MODIFIED v1 ConfigMap in-two")
	s.setNamespace(s.accepting, "two", "test")
	follow("a namespace stops matching", "DELETED v1 ConfigMap in-two")
	s.newObject(s.accepting, strings.Replace(mapsPath, "NAMESPACE", "two", 1), "Map", "later-in-two", "")
	s.patch(s.accepting, strings.Replace(mapsPath, "NAMESPACE", "two", 1)+"/in-two", `{"spec":{"size":3}}`)
	s.patch(s.accepting, strings.Replace(mapsPath, "NAMESPACE", "one", 1)+"/in-one", `{"spec":{"size":2}}`)
	for i, w := range watches { // a change of an object that is not shown may be its last one
		if got, err := w.next(); err != nil || got != "DELETED v1 ConfigMap in-two" {
			s.Errorf("watch %d shows an object of another namespace: %q, %v", i, got, err)
		}
		if got, err := w.next(); err != nil || got != "MODIFIED v1 ConfigMap in-one" {
			s.Errorf("watch %d shows an object of another namespace: %q, %v", i, got, err)
		}
	}
	for namespace, content := range map[string]string{"two": "", "one": "map[colour:red]"} { // deletions show what has been shown, else the name
		path := strings.Replace(mapsPath, "NAMESPACE", namespace, 1)
		s.newObject(s.accepting, path, "Map", "short-lived-in-"+namespace, `,"labels":{"colour":"red"}`)
		s.expect(http.StatusOK, "masters", http.MethodDelete, "/clusters/"+s.accepting+path+"/short-lived-in-"+namespace, "")
		for i, w := range watches {
			for {
				event, err := w.nextEvent()
				if err != nil {
					s.Fatal(err)
				}
				if event.Type == "ADDED" && namespace == "one" {
					continue
				}
				labels := ""
				if len(event.Object.Labels) > 0 {
					labels = fmt.Sprint(event.Object.Labels)
				}
				if event.Type != "DELETED" || event.Object.Name != "short-lived-in-"+namespace || event.Object.Namespace != namespace || labels != content {
					s.Errorf("watch %d shows %s %+v, want labels %q", i, event.Type, event.Object, content)
				}
				break
			}
		}
	}
	s.setNamespace(s.rejecting, "two", "test")
	s.setNamespace(s.rejecting, "two", "prod")
	s.setNamespace(s.accepting, "two", "prod")
	follow("a namespace matches again", "ADDED v1 ConfigMap in-two", "ADDED v1 ConfigMap later-in-two")
	inTwo := strings.Replace(mapsPath, "NAMESPACE", "two", 1) + "/in-two"
	s.patch(s.accepting, inTwo, `{"metadata":{"finalizers":["syncagent.kcp.io/cleanup"]}}`)
	s.setNamespace(s.accepting, "two", "test")
	follow("its namespace leaves without an object that has the agent's finalizer", "MODIFIED v1 ConfigMap in-two", "DELETED v1 ConfigMap later-in-two")
	if names, _ := s.list(s.viewPath("*", allMapsPath)); strings.Join(names, " ") != "in-one in-two" {
		s.Errorf("with the finalizer, %v are listed", names)
	}
	s.expect(http.StatusOK, "agent", http.MethodPatch, s.viewPath(s.accepting, "/api/v1/namespaces/two/configmaps/in-two"), `{"metadata":{"finalizers":null}}`)
	follow("the agent releases it", "DELETED v1 ConfigMap in-two")
	s.setNamespace(s.accepting, "two", "prod")
	follow("the namespace matches once more", "ADDED v1 ConfigMap in-two", "ADDED v1 ConfigMap later-in-two")
	streaming := s.watch(s.viewPath("*", allMapsPath+"?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"))
	added := 0
	for {
		got, err := streaming.next()
		if err != nil {
			s.Fatal(err)
		}
		if strings.HasPrefix(got, "BOOKMARK") {
			break
		}
		added++
	}
	if added != 3 {
		s.Errorf("a streaming list has %d objects", added)
	}
	expired := s.watch(s.viewPath("*", allMapsPath+"?watch=1&resourceVersion=1"))
	expired.expect("ERROR v1 Status ")
}

func testPublicationChange(s *env) {
	gadgets, maps := s.watch(s.viewPath("*", allGadgetsPath+"?watch=1")), s.watch(s.viewPath("*", allMapsPath+"?watch=1"))
	s.setDescription(strings.Replace(description, `"sync":"yes"`, `"colour":"red"`, 1))
	gadgets.expectExpired() // resuming would not show what matches now without having changed
	shardtesting.Eventually(s.T, "the new filter applies", func(context.Context) error {
		if names, _ := s.list(s.viewPath("*", allGadgetsPath)); strings.Join(names, " ") != "first ignored" {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
	s.newObject(s.accepting, strings.Replace(mapsPath, "NAMESPACE", "one", 1), "Map", "after-the-change", "")
	for { // the watch of the other resource continues
		got, err := maps.next()
		if err != nil {
			s.Fatal(err)
		}
		if got == "ADDED v1 ConfigMap after-the-change" {
			break
		}
	}
	s.setDescription("")
	maps.expectExpired()
	for _, path := range []string{allGadgetsPath, allMapsPath, "/apis/service.io/v1beta1", "/apis/example.io/v1/widgets", "/apis/example.io/v1/profiles"} {
		s.eventually(http.StatusNotFound, "agent", http.MethodGet, s.viewPath("*", path), "")
	}
	s.setDescription(description)
	s.eventually(http.StatusOK, "agent", http.MethodGet, s.viewPath("*", allGadgetsPath), "")
}

// testRevision: requests that name the description they rely on are not served by another one.
func testRevision(s *env) {
	revised := strings.Replace(description, `"filter"`, `"revision":"two","filter"`, 1)
	s.setDescription(revised)
	const header = "Syncagent-View-Revision"
	path := s.viewPath("*", allGadgetsPath)
	shardtesting.Eventually(s.T, "the revision is there", func(context.Context) error {
		if got := s.send("agent", http.MethodGet, path, "", header, "two"); got.status != http.StatusOK {
			return fmt.Errorf("%d: %.500s", got.status, got.body)
		}
		return nil
	})
	s.expect(http.StatusOK, "agent", http.MethodGet, path, "")
	s.expect(http.StatusConflict, "agent", http.MethodGet, path, "", header, "one")
	s.expect(http.StatusGone, "agent", http.MethodGet, path+"?watch=1&resourceVersion=1", "", header, "one")
	s.expect(http.StatusConflict, "agent", http.MethodPatch, s.viewPath(s.accepting, gadgetsPath+"/first"), `{"metadata":{"annotations":null}}`, header, "one")
	s.expect(http.StatusOK, "agent", http.MethodGet, s.viewPath("*", "/apis/example.io/v1/profiles"), "")
	s.expect(http.StatusNotFound, "agent", http.MethodGet, s.viewPath("*", "/apis/example.io/v1/profiles"), "", header, "two")

	watched := s.watch(path+"?watch=1", header, "two")
	// The name of a related resource is that resource's: what was published under it is not in the view any more.
	s.setDescription(strings.Replace(revised, `"resource":"profiles"}`, `"resource":"profiles"},{"group":"service.io","resource":"gadgets"}`, 1))
	watched.expectExpired()
	s.expect(http.StatusNotFound, "agent", http.MethodGet, path, "", header, "two")
	s.setDescription(description)
	s.eventually(http.StatusOK, "agent", http.MethodGet, path, "")
}

func (e *env) setDescription(text string) {
	e.Helper()
	masters := e.masters("alpha")
	shardtesting.Eventually(e.T, "the annotation is set", func(ctx context.Context) error {
		export := &apisv1alpha2.APIExport{}
		if err := masters.Get(shardtesting.In(ctx, e.provider), client.ObjectKey{Name: "things"}, export); err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&export.ObjectMeta, syncerview.Annotation, text)
		return masters.Update(shardtesting.In(ctx, e.provider), export)
	})
}

func testUnbinding(s *env) {
	one, wildcard := s.watch(s.viewPath(s.rejecting, gadgetsPath+"?watch=1")), s.watch(s.viewPath("*", allGadgetsPath+"?watch=1"))
	s.eventually(http.StatusOK, "masters", http.MethodDelete, "/clusters/"+s.rejecting+"/apis/apis.kcp.io/v1alpha2/apibindings/things", "")
	one.expectEnd()
	for {
		if got, err := wildcard.next(); err != nil {
			s.Fatal(err)
		} else if got == "DELETED "+gadgetKinds+" second" {
			break
		}
	}
	s.eventually(http.StatusForbidden, "agent", http.MethodGet, s.viewPath(s.rejecting, gadgetsPath), "")
}
