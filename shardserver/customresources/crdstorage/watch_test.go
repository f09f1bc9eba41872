package crdstorage_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

// watchStream is a watch over HTTP.
type watchStream struct {
	events chan map[string]any
	header http.Header
	code   int
}

// watch opens a watch that ends with the test.
func (s *server) watch(t testing.TB, path, accept string) *watchStream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	w := &watchStream{events: make(chan map[string]any, 100), header: res.Header, code: res.StatusCode}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(w.events)
		lines := bufio.NewReader(res.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			event, ok := normalizeJSON(line).(map[string]any)
			if !ok {
				event = map[string]any{"type": "NOT JSON", "line": line}
			}
			w.events <- event
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = res.Body.Close()
		<-done
	})
	return w
}

// nextEvents returns n events without bookmarks, or all up to the bookmark after the initial events if n is 0.
func (w *watchStream) nextEvents(t testing.TB, n int) []map[string]any {
	t.Helper()
	var events []map[string]any
	timeout := time.After(20 * time.Second)
	for n == 0 || len(events) < n {
		select {
		case event, ok := <-w.events:
			if !ok {
				t.Fatalf("the watch ended after %v", events)
			}
			if event["type"] != "BOOKMARK" {
				events = append(events, event)
			} else if n == 0 && strings.Contains(fmt.Sprint(event), "initial-events-end") {
				return append(events, event)
			}
		case <-timeout:
			t.Fatalf("waiting for %d events, got %v", n, events)
		}
	}
	return events
}

// expectEnd waits for the end of the watch.
func (w *watchStream) expectEnd(t testing.TB) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case _, ok := <-w.events:
			if !ok {
				return
			}
		case <-timeout:
			t.Fatal("the watch has not ended")
		}
	}
}

func TestWatchMatchesUpstream(t *testing.T) {
	const group = "watches.example.io"
	s, path := newFilledServer(t, group)
	version := s.mustDo(t, http.MethodGet, "/ours/clusters/one"+path+"/widgets", "").GetResourceVersion()
	s.mustDo(t, http.MethodGet, "/stock/clusters/one"+path+"/widgets", "") // its watch cache is filled
	initial := "&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
	cases := map[string]struct {
		path, accept string
		slow         bool
		// initial means that the watch starts with initial events.
		initial bool
		// events is the number of events for the changes below.
		events int
	}{
		"all changes since a version":        {path: "/widgets?watch=1&resourceVersion=" + version, events: 5},
		"a namespace":                        {path: "/namespaces/west/widgets?watch=1&resourceVersion=" + version, events: 1},
		"one object":                         {path: "/namespaces/east/widgets?watch=1&fieldSelector=metadata.name%3Dw0&resourceVersion=" + version, events: 3},
		"one object by the deprecated path":  {path: "/watch/namespaces/east/widgets/w0?resourceVersion=" + version, events: 3},
		"a label":                            {path: "/widgets?watch=1&labelSelector=even%3Dtrue&resourceVersion=" + version, events: 4},
		"a field of the schema":              {path: "/widgets?watch=1&fieldSelector=spec.color%3Dblue&resourceVersion=" + version, events: 4},
		"a field of the schema that changes": {path: "/widgets?watch=1&fieldSelector=spec.color%3Dred&resourceVersion=" + version, events: 2},
		"objects, then changes":              {path: "/widgets?watch=1" + initial, initial: true, events: 5},
		"objects by field, then changes":     {path: "/widgets?watch=1&fieldSelector=spec.color%3Dblue" + initial, initial: true, events: 4},
		"metadata":                           {path: "/widgets?watch=1&resourceVersion=" + version, accept: metadataJSON, events: 5},
		"metadata of objects, then changes":  {path: "/widgets?watch=1" + initial, accept: metadataJSON, initial: true, events: 5},
		"tables":                             {path: "/widgets?watch=1&resourceVersion=" + version, accept: tableJSON, slow: true, events: 5},
		"tables by a field of the schema":    {path: "/widgets?watch=1&fieldSelector=spec.color%3Dblue&resourceVersion=" + version, accept: tableJSON, slow: true, events: 4},
		"tables of objects, then changes":    {path: "/widgets?watch=1" + initial, accept: tableJSON, slow: true, initial: true, events: 5},
	}
	type pair struct{ actual, upstream *watchStream }
	open := map[string]pair{}
	for name, tc := range cases {
		for range 4 { // several watchers share the encoded events
			s.watch(t, "/ours/clusters/one"+path+tc.path, tc.accept)
		}
		open[name] = pair{s.watch(t, "/ours/clusters/one"+path+tc.path, tc.accept), s.watch(t, "/stock/clusters/one"+path+tc.path, tc.accept)}
	}
	object := "/ours/clusters/one" + path + "/namespaces/east/widgets/w0"
	s.mustDo(t, http.MethodPatch, object, `{"spec":{"color":"red"}}`)
	s.mustDo(t, http.MethodPatch, object, `{"spec":{"color":"blue"}}`)
	s.mustDo(t, http.MethodPatch, "/ours/clusters/one"+path+"/namespaces/west/widgets/w3", `{"spec":{"color":"green"}}`)
	s.mustDo(t, http.MethodPatch, "/ours/clusters/two"+path+"/namespaces/east/widgets/w0", `{"spec":{"color":"never to be seen"}}`)
	s.mustDo(t, http.MethodPost, "/ours/clusters/one"+path+"/namespaces/east/widgets", newWidgetJSON(group, "v1", "new", map[string]string{"even": "true"}, `{"color":"pink"}`))
	s.mustDo(t, http.MethodDelete, object, "")
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			actual, upstream := open[name].actual, open[name].upstream
			if fast := actual.header.Get(fastHeader) == "true"; fast == tc.slow {
				t.Errorf("served by the reads of this package: %t", fast)
			}
			if o, w := actual.header.Get("Content-Type"), upstream.header.Get("Content-Type"); o != w {
				t.Errorf("content type %q, want %q", o, w)
			}
			if tc.initial {
				if got, want := actual.nextEvents(t, 0), upstream.nextEvents(t, 0); len(got) != len(want) || !reflect.DeepEqual(got[:len(got)-1], want[:len(want)-1]) {
					t.Errorf("initial events are\n%v\nwant\n%v", got, want)
				} else {
					compareBookmarks(t, got[len(got)-1], want[len(want)-1])
				}
			}
			got, want := actual.nextEvents(t, tc.events), upstream.nextEvents(t, tc.events)
			for i := range got {
				if !reflect.DeepEqual(got[i], want[i]) {
					t.Errorf("event %d is\n%v\nwant\n%v", i, got[i], want[i])
				}
			}
		})
	}
}

// compareBookmarks compares bookmarks without the resource version, which depends on the time of sending.
func compareBookmarks(t *testing.T, got, want map[string]any) {
	t.Helper()
	for _, event := range []map[string]any{got, want} {
		object, _ := event["object"].(map[string]any)
		metadata, _ := object["metadata"].(map[string]any)
		if metadata["resourceVersion"] == "" {
			t.Errorf("%v has no version", event)
		}
		delete(metadata, "resourceVersion")
	}
	if !strings.Contains(fmt.Sprint(want), "Table") && !reflect.DeepEqual(got, want) {
		t.Errorf("the bookmark is\n%v\nwant\n%v", got, want)
	}
}

func TestWatchErrorsMatchUpstream(t *testing.T) {
	const group = "nowatch.example.io"
	s, path := newFilledServer(t, group)
	s.mustDo(t, http.MethodGet, "/stock/clusters/one"+path+"/widgets", "") // its watch cache is filled
	for name, query := range map[string]string{
		"an invalid version":             "watch=1&resourceVersion=x",
		"an expired version":             "watch=1&resourceVersion=1",
		"initial events without a match": "watch=1&sendInitialEvents=true",
		"a field that is not selectable": "watch=1&fieldSelector=spec.count%3D1",
		"a match without initial events": "watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1",
		"an invalid selector":            "watch=1&labelSelector=%21%21",
		"a watch that times out":         "watch=1&timeoutSeconds=1&resourceVersion=0&labelSelector=none",
		"an old version":                 "watch=1&timeoutSeconds=1&resourceVersion=2&labelSelector=none",
	} {
		t.Run(name, func(t *testing.T) {
			actual, upstream := s.do(t, http.MethodGet, "/ours/clusters/one"+path+"/widgets?"+query, "", ""), s.do(t, http.MethodGet, "/stock/clusters/one"+path+"/widgets?"+query, "", "")
			if !actual.fromReads || actual.code != upstream.code || !reflect.DeepEqual(normalizeJSON(actual.body), normalizeJSON(upstream.body)) {
				t.Errorf("got %d %s, want %d %s", actual.code, actual.body, upstream.code, upstream.body)
			}
		})
	}
}

func TestWatchEndsWhenViewsClose(t *testing.T) {
	const group = "ending.example.io"
	crd := newDefinition(group)
	storage := newStorage(t, widgetsResource(group))
	closed, remaining := newContentHandler(t, storage, crd), newContentHandler(t, storage, crd)
	s := newServer(t)
	s.handle("ending", closed)
	s.handle("staying", remaining)
	path := "/clusters/one/apis/" + group + "/v1/widgets?watch=1"
	fast, slow, other := s.watch(t, "/ending"+path, ""), s.watch(t, "/ending"+path, tableJSON), s.watch(t, "/staying"+path, "")
	closed.views.Close()
	fast.expectEnd(t)
	slow.expectEnd(t)
	if closed.views.Version("v1") != nil {
		t.Error("a closed view still exists")
	}
	s.mustDo(t, http.MethodPost, "/staying/clusters/one/apis/"+group+"/v1/namespaces/x/widgets", newWidgetJSON(group, "v1", "w", nil, `{}`))
	if events := other.nextEvents(t, 1); events[0]["type"] != "ADDED" {
		t.Errorf("got %v", events)
	}
	s.watch(t, "/ending"+path, tableJSON).expectEnd(t)
}
