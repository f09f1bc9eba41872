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

func probeGet(t *testing.T, s *site, r resource) {
	got := s.a.do(t, http.MethodGet, r.object(r.name(twin)), "")
	s.wants(t, "GET of the twin", got, http.StatusOK)
	if !strings.Contains(got.body, s.a.cluster) {
		t.Errorf("the twin of a is not of a: %.300s", got.body)
	}
	if fixedNames[r.key()] != "" {
		return
	}
	for _, accept := range []string{jsonType, tableType, protobufType} {
		for _, query := range []string{"", "?resourceVersion=0"} {
			s.wants(t, "GET of what only b has", s.a.do(t, http.MethodGet, r.object(r.name(onlyB))+query, "", accept), http.StatusNotFound)
		}
	}
}

func probeList(t *testing.T, s *site, r resource) {
	mine := 2
	if fixedNames[r.key()] != "" {
		mine = 0
	}
	version := s.b.must(t, http.MethodGet, r.everywhere()+"?limit=1", "").metadata(t, "resourceVersion")
	for _, path := range []string{r.everywhere(), r.collection()} {
		for _, query := range []string{
			"", "?resourceVersion=0", "?resourceVersion=" + version + "&resourceVersionMatch=NotOlderThan", "?resourceVersion=" + version + "&resourceVersionMatch=Exact",
			"?labelSelector=" + ofTest, "?fieldSelector=metadata.name%3D" + r.name(onlyB), "?fieldSelector=metadata.name!%3Dnobody", "?limit=1000",
			"?fieldSelector=kcp.io/cluster%3D" + s.b.cluster,
		} {
			for _, accept := range []string{jsonType, tableType, partialListType, protobufType} {
				s.sees(t, "LIST "+path+query+" as "+accept, s.a.do(t, http.MethodGet, path+query, "", accept))
			}
		}
	}
	if mine == 0 {
		return
	}
	first := s.a.must(t, http.MethodGet, r.everywhere()+"?limit=1&labelSelector="+ofTest, "").object(t)
	if metadata := first["metadata"].(map[string]any); metadata["continue"] == nil {
		t.Errorf("a has %d objects, but the first page of one has no second", mine)
	}
	if rest, counted := first["metadata"].(map[string]any)["remainingItemCount"].(float64); counted && int(rest) != mine-1 {
		t.Errorf("after one of %d objects %v are said to remain", mine, rest)
	}
	for _, limit := range []string{"1", "500"} {
		token := s.b.must(t, http.MethodGet, r.everywhere()+"?limit=1", "").metadata(t, "continue")
		if token == "" {
			t.Errorf("a list of two objects in b, one by one, has no second page")
		}
		got := s.a.do(t, http.MethodGet, r.everywhere()+"?limit="+limit+"&continue="+url.QueryEscape(token), "")
		s.sees(t, "LIST with the continue token of b", got)
	}
}

// probeWatch changes b, then a: a watch in a must see the second alone.
func probeWatch(t *testing.T, s *site, r resource) {
	if !r.has("patch") {
		t.Skip("its objects never change")
	}
	touch := func(of *side, value string) {
		of.must(t, http.MethodPatch, r.object(r.name(twin)), fmt.Sprintf(`{"metadata":{"labels":{"touched":%q}}}`, value))
	}
	version := s.a.must(t, http.MethodGet, r.everywhere()+"?limit=1", "").metadata(t, "resourceVersion")
	for i, query := range []string{
		"", "&resourceVersion=0", "&resourceVersion=" + version, "&labelSelector=" + ofTest, "&fieldSelector=metadata.name%3D" + r.name(twin),
		"&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
	} {
		if fixedNames[r.key()] != "" && strings.Contains(query, "labelSelector") {
			continue
		}
		accept := []string{jsonType, tableType, jsonType}[i%3]
		value := fmt.Sprint("watch-", i)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		response := s.a.open(t, ctx, http.MethodGet, r.everywhere()+"?watch=1"+query, "", accept)
		if response.StatusCode != http.StatusOK {
			t.Errorf("WATCH %s: %s", query, response.Status)
		}
		touch(s.b, value)
		touch(s.a, value)
		lines, arrived := bufio.NewScanner(response.Body), false
		lines.Buffer(nil, 1<<22)
		for !arrived && lines.Scan() {
			s.sees(t, "WATCH "+query, answer{http.StatusOK, lines.Text()})
			arrived = strings.Contains(lines.Text(), value)
		}
		if !arrived {
			t.Errorf("WATCH %s as %s: the change in a never arrived: %v", query, accept, lines.Err())
		}
		_ = response.Body.Close()
		cancel()
	}
}

// probeCreate creates in a what exists in b, which must succeed, and leave b unchanged.
func probeCreate(t *testing.T, s *site, r resource) {
	if fixedNames[r.key()] != "" {
		return
	}
	s.wants(t, "dry-run POST of a name of b", s.a.do(t, http.MethodPost, r.collection()+"?dryRun=All", r.sample(t, s.a, r.name(onlyB))), http.StatusCreated)
	s.wants(t, "POST of the twin", s.a.do(t, http.MethodPost, r.collection(), r.sample(t, s.a, r.name(twin))), http.StatusConflict)
}

// probeUpdate sends the object of b, with its UID and resourceVersion, to a name that does not exist in a, and to one
// that does.
func probeUpdate(t *testing.T, s *site, r resource) {
	theirs := s.b.must(t, http.MethodGet, r.object(r.name(twin)), "").object(t)
	metadata := theirs["metadata"].(map[string]any)
	metadata["annotations"] = map[string]any{"kcp.io/cluster": s.b.cluster}
	raw, err := json.Marshal(theirs)
	if err != nil {
		t.Fatal(err)
	}
	got := s.a.do(t, http.MethodPut, r.object(r.name(twin)), string(raw))
	if got.status < 400 {
		t.Errorf("PUT of b's object, with its uid, in a: %d %.300s", got.status, got.body)
	}
	if fixedNames[r.key()] != "" {
		return
	}
	got = s.a.do(t, http.MethodPut, r.object(r.name(onlyB))+"?dryRun=All", strings.ReplaceAll(r.sample(t, s.a, r.name(onlyB)), "\n", ""))
	s.wants(t, "PUT at a name of b", got, http.StatusNotFound, http.StatusCreated)
}

func probePatch(t *testing.T, s *site, r resource) {
	if fixedNames[r.key()] != "" {
		return
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"kcp.io/cluster":%q,"touched":"by-a"}}}`, s.b.cluster)
	s.wants(t, "PATCH at a name of b", s.a.do(t, http.MethodPatch, r.object(r.name(onlyB)), patch), http.StatusNotFound)
	mine := s.a.do(t, http.MethodPatch, r.object(r.name(onlyA)), patch)
	s.wants(t, "PATCH that says it is of b", mine, http.StatusOK)
	got := s.a.do(t, http.MethodPatch, r.object(r.name(onlyB))+"?dryRun=All&force=true&fieldManager=test", r.sample(t, s.a, r.name(onlyB)))
	s.wants(t, "dry-run apply at a name of b", got, http.StatusCreated)
}

func probeDelete(t *testing.T, s *site, r resource) {
	if fixedNames[r.key()] != "" {
		return
	}
	s.wants(t, "DELETE at a name of b", s.a.do(t, http.MethodDelete, r.object(r.name(onlyB)), ""), http.StatusNotFound)
	uid := s.b.must(t, http.MethodGet, r.object(r.name(twin)), "").metadata(t, "uid")
	precondition := fmt.Sprintf(`{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":%q}}`, uid)
	s.wants(t, "DELETE of the twin with b's uid", s.a.do(t, http.MethodDelete, r.object(r.name(twin)), precondition), http.StatusConflict)
	s.wants(t, "DELETE of the twin", s.a.do(t, http.MethodDelete, r.object(r.name(twin)), ""), http.StatusOK, http.StatusAccepted)
}

func probeDeleteCollection(t *testing.T, s *site, r resource) {
	if fixedNames[r.key()] != "" {
		return
	}
	s.wants(t, "DELETE of the collection", s.a.do(t, http.MethodDelete, r.collection()+"?labelSelector="+ofTest, ""), http.StatusOK)
}

// probeSubresource tries every verb of a subresource at a name that exists only in b.
func probeSubresource(t *testing.T, s *site, r resource, sub metav1.APIResource) {
	_, name, _ := strings.Cut(sub.Name, "/")
	if fixedNames[r.key()] != "" {
		return
	}
	path := r.object(r.name(onlyB)) + "/" + name
	for _, verb := range sub.Verbs {
		method, body := "", fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}}`, versionOf(r, sub), sub.Kind, r.name(onlyB))
		switch verb {
		case "get":
			method, body = http.MethodGet, ""
		case "create":
			method = http.MethodPost
		case "update":
			method = http.MethodPut
			if sub.Kind == r.Kind {
				body = r.sample(t, s.a, r.name(onlyB))
			}
		case "patch":
			method, body = http.MethodPatch, `{"metadata":{"labels":{"touched":"by-a"}}}`
		default:
			t.Errorf("verb %q of %s: the test does not know how to try it", verb, sub.Name)
			continue
		}
		want := http.StatusNotFound
		if r.Group == "apis.kcp.io" && r.Name != "apiexportendpointslices" {
			want = http.StatusForbidden // only system:masters may write the status of bindings and exports (contract 4)
		}
		s.wants(t, verb+" of "+sub.Name+" at a name of b", s.a.do(t, method, path, body), want)
	}
}

// probeReview tries resources that are answered and never stored.
func probeReview(t *testing.T, s *site, r resource) {
	if len(r.Verbs) != 1 || r.Verbs[0] != "create" {
		t.Errorf("%s has verbs %v: neither stored nor a review", r.key(), r.Verbs)
		return
	}
	body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"spec":{"namespace":%q,"user":"somebody","token":"x","resourceAttributes":{"namespace":%q,"verb":"get","resource":"secrets"}}}`, r.version(), r.Kind, namespace, namespace)
	s.sees(t, "POST of "+r.Kind, s.a.do(t, http.MethodPost, r.collection(), body))
}

func versionOf(r resource, sub metav1.APIResource) string {
	switch {
	case sub.Version == "" && sub.Group == "":
		return r.version()
	case sub.Group == "":
		return sub.Version
	default:
		return sub.Group + "/" + sub.Version
	}
}
