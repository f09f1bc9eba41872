package isolation

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func testGet(t *testing.T, s *env, r resource) {
	got := s.a.do(t, http.MethodGet, r.objectPath(r.objectName(nameInBoth)), "")
	s.expectStatus(t, "GET of the object in both", got, http.StatusOK)
	if !strings.Contains(got.body, s.a.cluster) {
		t.Errorf("the object in a has no marker of a: %.300s", got.body)
	}
	if fixedNames[r.key()] != "" {
		return
	}
	for _, accept := range []string{jsonType, tableType, protobufType} {
		for _, query := range []string{"", "?resourceVersion=0"} {
			s.expectStatus(t, "GET of an object that exists only in b", s.a.do(t, http.MethodGet, r.objectPath(r.objectName(onlyB))+query, "", accept), http.StatusNotFound)
		}
	}
}

func testList(t *testing.T, s *env, r resource) {
	expectedCount := 2
	if fixedNames[r.key()] != "" {
		expectedCount = 0
	}
	version := s.b.must(t, http.MethodGet, r.allNamespacesPath()+"?limit=1", "").metadata(t, "resourceVersion")
	for _, path := range []string{r.allNamespacesPath(), r.collectionPath()} {
		for _, query := range []string{
			"", "?resourceVersion=0", "?resourceVersion=" + version + "&resourceVersionMatch=NotOlderThan", "?resourceVersion=" + version + "&resourceVersionMatch=Exact",
			"?labelSelector=" + r.labelSelector(), "?fieldSelector=metadata.name%3D" + r.objectName(onlyB), "?fieldSelector=metadata.name!%3Dmissing", "?limit=1000",
			"?fieldSelector=kcp.io/cluster%3D" + s.b.cluster,
		} {
			for _, accept := range []string{jsonType, tableType, partialListType, protobufType} {
				s.expectNoLeak(t, "LIST "+path+query+" as "+accept, s.a.do(t, http.MethodGet, path+query, "", accept))
			}
		}
	}
	if expectedCount == 0 {
		return
	}
	first := s.a.must(t, http.MethodGet, r.allNamespacesPath()+"?limit=1&labelSelector="+r.labelSelector(), "").object(t)
	if metadata := first["metadata"].(map[string]any); metadata["continue"] == nil {
		t.Errorf("a has %d objects, but the first page has no continue token", expectedCount)
	}
	if rest, counted := first["metadata"].(map[string]any)["remainingItemCount"].(float64); counted && int(rest) != expectedCount-1 {
		t.Errorf("after one of %d objects remainingItemCount is %v", expectedCount, rest)
	}
	for _, limit := range []string{"1", "500"} {
		token := s.b.must(t, http.MethodGet, r.allNamespacesPath()+"?limit=1", "").metadata(t, "continue")
		if token == "" {
			t.Errorf("the first page of two objects in b has no continue token")
		}
		got := s.a.do(t, http.MethodGet, r.allNamespacesPath()+"?limit="+limit+"&continue="+url.QueryEscape(token), "")
		s.expectNoLeak(t, "LIST with the continue token of b", got)
	}
}

// testWatch changes b, then a: a watch in a must deliver only the second change.
func testWatch(t *testing.T, s *env, r resource) {
	if !r.supportsVerb("patch") {
		t.Skip("its objects never change")
	}
	touch := func(ws *workspaceClient, value string) {
		ws.must(t, http.MethodPatch, r.objectPath(r.objectName(nameInBoth)), fmt.Sprintf(`{"metadata":{"labels":{"touched":%q}}}`, value))
	}
	version := s.a.must(t, http.MethodGet, r.allNamespacesPath()+"?limit=1", "").metadata(t, "resourceVersion")
	for i, query := range []string{
		"", "&resourceVersion=0", "&resourceVersion=" + version, "&labelSelector=" + r.labelSelector(), "&fieldSelector=metadata.name%3D" + r.objectName(nameInBoth),
		"&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
	} {
		if fixedNames[r.key()] != "" && strings.Contains(query, "labelSelector") {
			continue
		}
		accept := []string{jsonType, tableType, jsonType}[i%3]
		value := fmt.Sprint("watch-", i)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		response := s.a.open(t, ctx, http.MethodGet, r.allNamespacesPath()+"?watch=1"+query, "", accept)
		if response.StatusCode != http.StatusOK {
			t.Errorf("WATCH %s: %s", query, response.Status)
		}
		touch(s.b, value)
		touch(s.a, value)
		lines, arrived := bufio.NewScanner(response.Body), false
		lines.Buffer(nil, 1<<22)
		for !arrived && lines.Scan() {
			s.expectNoLeak(t, "WATCH "+query, httpResponse{http.StatusOK, lines.Text()})
			arrived = strings.Contains(lines.Text(), value)
		}
		if !arrived {
			t.Errorf("WATCH %s as %s: the change in a was not delivered: %v", query, accept, lines.Err())
		}
		_ = response.Body.Close()
		cancel()
	}
}

// testCreate creates, in a, names that exist in b, which must succeed and leave b unchanged.
func testCreate(t *testing.T, s *env, r resource) {
	if fixedNames[r.key()] != "" {
		return
	}
	s.expectStatus(t, "dry-run POST of a name of b", s.a.do(t, http.MethodPost, r.collectionPath()+"?dryRun=All", r.sample(t, s.a, r.objectName(onlyB))), http.StatusCreated)
	s.expectStatus(t, "POST of the object in both", s.a.do(t, http.MethodPost, r.collectionPath(), r.sample(t, s.a, r.objectName(nameInBoth))), http.StatusConflict)
}

// testUpdate sends the object of b, with its UID and resourceVersion, to a name that does not exist in a, and to one
// that does.
func testUpdate(t *testing.T, s *env, r resource) {
	objectB := s.b.must(t, http.MethodGet, r.objectPath(r.objectName(nameInBoth)), "").object(t)
	metadata := objectB["metadata"].(map[string]any)
	metadata["annotations"] = map[string]any{"kcp.io/cluster": s.b.cluster}
	raw, err := json.Marshal(objectB)
	if err != nil {
		t.Fatal(err)
	}
	got := s.a.do(t, http.MethodPut, r.objectPath(r.objectName(nameInBoth)), string(raw))
	if got.status < 400 {
		t.Errorf("PUT of b's object, with its uid, in a: %d %.300s", got.status, got.body)
	}
	if fixedNames[r.key()] != "" {
		return
	}
	got = s.a.do(t, http.MethodPut, r.objectPath(r.objectName(onlyB))+"?dryRun=All", strings.ReplaceAll(r.sample(t, s.a, r.objectName(onlyB)), "\n", ""))
	s.expectStatus(t, "PUT at a name of b", got, http.StatusNotFound, http.StatusCreated)
}

func testPatch(t *testing.T, s *env, r resource) {
	if fixedNames[r.key()] != "" {
		return
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"kcp.io/cluster":%q,"touched":"by-a"}}}`, s.b.cluster)
	s.expectStatus(t, "PATCH at a name of b", s.a.do(t, http.MethodPatch, r.objectPath(r.objectName(onlyB)), patch), http.StatusNotFound)
	patched := s.a.do(t, http.MethodPatch, r.objectPath(r.objectName(onlyA)), patch)
	s.expectStatus(t, "PATCH with the cluster annotation of b", patched, http.StatusOK)
	got := s.a.do(t, http.MethodPatch, r.objectPath(r.objectName(onlyB))+"?dryRun=All&force=true&fieldManager=test", r.sample(t, s.a, r.objectName(onlyB)))
	s.expectStatus(t, "dry-run apply at a name of b", got, http.StatusCreated)
}

func testDelete(t *testing.T, s *env, r resource) {
	if fixedNames[r.key()] != "" {
		return
	}
	s.expectStatus(t, "DELETE at a name of b", s.a.do(t, http.MethodDelete, r.objectPath(r.objectName(onlyB)), ""), http.StatusNotFound)
	uid := s.b.must(t, http.MethodGet, r.objectPath(r.objectName(nameInBoth)), "").metadata(t, "uid")
	precondition := fmt.Sprintf(`{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":%q}}`, uid)
	s.expectStatus(t, "DELETE of the object in both with b's uid", s.a.do(t, http.MethodDelete, r.objectPath(r.objectName(nameInBoth)), precondition), http.StatusConflict)
	s.expectStatus(t, "DELETE of the object in both", s.a.do(t, http.MethodDelete, r.objectPath(r.objectName(nameInBoth)), ""), http.StatusOK, http.StatusAccepted)
}

func testDeleteCollection(t *testing.T, s *env, r resource) {
	if fixedNames[r.key()] != "" {
		return
	}
	s.expectStatus(t, "DELETE of the collection", s.a.do(t, http.MethodDelete, r.collectionPath()+"?labelSelector="+r.labelSelector(), ""), http.StatusOK)
}

// testSubresource tries every verb of a subresource at a name that exists only in b.
func testSubresource(t *testing.T, s *env, r resource, sub metav1.APIResource) {
	_, name, _ := strings.Cut(sub.Name, "/")
	if fixedNames[r.key()] != "" {
		return
	}
	path := r.objectPath(r.objectName(onlyB)) + "/" + name
	for _, verb := range sub.Verbs {
		method, body := "", fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}}`, subresourceVersion(r, sub), sub.Kind, r.objectName(onlyB))
		switch verb {
		case "get":
			method, body = http.MethodGet, ""
		case "create":
			method = http.MethodPost
		case "update":
			method = http.MethodPut
			if sub.Kind == r.Kind {
				body = r.sample(t, s.a, r.objectName(onlyB))
			}
		case "patch":
			method, body = http.MethodPatch, `{"metadata":{"labels":{"touched":"by-a"}}}`
		default:
			t.Errorf("verb %q of %s: the test has no probe for it", verb, sub.Name)
			continue
		}
		want := http.StatusNotFound
		if r.Group == "apis.kcp.io" && r.Name != "apiexportendpointslices" {
			want = http.StatusForbidden // only system:masters may write the status of bindings and exports (contract 4)
		}
		s.expectStatus(t, verb+" of "+sub.Name+" at a name of b", s.a.do(t, method, path, body), want)
	}
}

// testReview tests resources that the server answers and never stores.
func testReview(t *testing.T, s *env, r resource) {
	if len(r.Verbs) != 1 || r.Verbs[0] != "create" {
		t.Errorf("%s has verbs %v: neither stored nor a review", r.key(), r.Verbs)
		return
	}
	body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"spec":{"namespace":%q,"user":"alice","token":"x","resourceAttributes":{"namespace":%q,"verb":"get","resource":"secrets"}}}`, r.version(), r.Kind, namespace, namespace)
	s.expectNoLeak(t, "POST of "+r.Kind, s.a.do(t, http.MethodPost, r.collectionPath(), body))
}

func subresourceVersion(r resource, sub metav1.APIResource) string {
	switch {
	case sub.Version == "" && sub.Group == "":
		return r.version()
	case sub.Group == "":
		return sub.Version
	default:
		return sub.Group + "/" + sub.Version
	}
}
