package crdstorage_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
)

// TestWatchAcrossRetirement resumes watches from before the retirement of the version in which an object was stored.
func TestWatchAcrossRetirement(t *testing.T) {
	const group = "retirement.example.io"
	storage := newStorage(t, widgetsResource(group))
	s := newServer(t)
	s.handle("before", newContentHandler(t, storage, newTwoVersionDefinition(group, "v1")))
	s.handle("migrated", newContentHandler(t, storage, newTwoVersionDefinition(group, "v2")))
	retired := newTwoVersionDefinition(group, "v2")
	retired.Spec.Versions = retired.Spec.Versions[1:]
	after := storage.ViewsOf(nil, "v2")
	t.Cleanup(after.Close)
	s.handle("after", &contentHandler{views: after, stock: newStockHandler(t, retired, after), reads: crdstorage.NewReadHandler(after, retired, 30*time.Minute)})
	path := func(server, version string) string {
		return "/" + server + "/clusters/one/apis/" + group + "/" + version + "/namespaces/default/widgets"
	}
	start := s.mustDo(t, http.MethodGet, path("before", "v1"), "").GetResourceVersion()
	s.mustDo(t, http.MethodPost, path("before", "v1"), newWidgetJSON(group, "v1", "w", nil, `{"color":"blue"}`))
	s.mustDo(t, http.MethodPatch, path("migrated", "v2")+"/w", `{}`)
	list := s.mustDo(t, http.MethodGet, path("after", "v2"), "")
	for name, accept := range map[string]string{"from the stored bytes": "", "by the upstream handler": tableJSON} {
		t.Run(name, func(t *testing.T) {
			expired := s.watch(t, path("after", "v2")+"?watch=1&resourceVersion="+start, accept).nextEvents(t, 1)[0]
			status, _ := expired["object"].(map[string]any)
			if expired["type"] != "ERROR" || status["reason"] != "Expired" || fmt.Sprint(status["code"]) != "410" {
				t.Errorf("got %v, want status 410", expired)
			}
			if status["kind"] != "Status" || status["apiVersion"] != "v1" {
				t.Errorf("got %v, which clients do not decode, and so watch from the same resource version again", expired)
			}
			resumed := s.watch(t, path("after", "v2")+"?watch=1&resourceVersion="+list.GetResourceVersion(), accept)
			changed := newWidgetJSON(group, "v2", "w", map[string]string{"changed": name[:2]}, `{"color":"blue"}`)
			s.mustDo(t, http.MethodPatch, path("after", "v2")+"/w", changed)
			if events := resumed.nextEvents(t, 1); events[0]["type"] != "MODIFIED" {
				t.Errorf("after a list: got %v", events)
			}
		})
	}

	other := func(path string) string { return strings.Replace(path, "/clusters/one/", "/clusters/two/", 1) }
	s.mustDo(t, http.MethodPost, other(path("before", "v1")), newWidgetJSON(group, "v1", "w", nil, `{"color":"blue"}`))
	for _, accept := range []string{"", tableJSON} {
		initial := s.watch(t, other(path("after", "v2"))+"?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", accept)
		select {
		case event := <-initial.events: // none if the watch ends
			if strings.Contains(fmt.Sprint(event), "410") {
				t.Errorf("an object that is still stored in the retired version is reported as %v: clients repeat that at once", event)
			}
		case <-time.After(20 * time.Second):
			t.Error("a watch that cannot report its initial events goes on")
		}
	}
}
