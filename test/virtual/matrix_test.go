package virtual

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestMatrix(t *testing.T) {
	lines, err := readTable(matrix)
	if err != nil {
		t.Fatal(err)
	}
	s := newEnv(t)
	s.createExports()
	s.createCachedResources()
	s.createLifecycleWorkspaces()
	s.waitForFixtures()
	count := 0
	for _, v := range virtualWorkspaces {
		for _, name := range slices.Sorted(maps.Keys(v.resources)) {
			for _, state := range v.states {
				for _, verb := range v.resources[name].verbs {
					count += s.checkRequests(lines, v, name, state, verb)
				}
			}
		}
	}
	t.Logf("sent %d requests", count)
	for _, l := range lines {
		if !l.used {
			t.Errorf("matrix.txt:%d: matches no request", l.number)
		}
	}
	t.Run("connections are upgraded", s.testUpgrade)
}

// checkRequests sends one request as every caller, compares the responses with the table, and returns the request
// count.
func (e *env) checkRequests(lines []*tableLine, v virtualWorkspace, resource, state, verb string) int {
	e.Helper()
	method, path, body, media := v.resources[resource].buildRequest(verb, state)
	if verb == "update" {
		body = e.currentObject(v, state, path, body)
	}
	match := findLine(lines, v.name, resource, state, verb)
	if match == nil {
		got := ""
		for _, user := range callers {
			result, _ := e.result(user, method, v.basePath(e, state)+path, body, media)
			got += " " + result
		}
		e.Errorf("no line matches %s %s %s %s, which returns |%s", v.name, resource, state, verb, got)
		return 0
	}
	count := 0
	for i, user := range callers {
		count++
		result, content := e.result(user, method, v.basePath(e, state)+path, body, media)
		if result != match.want[i] {
			e.Errorf("matrix.txt:%d: %s %s (%s) of %s as %s: %s, want %s: %.300s", match.number, v.name, verb, resource, state, user, result, match.want[i], content)
		}
	}
	return count
}

// currentObject returns the current object for an update, of the workspace or under its name in the virtual workspace, or
// fallback: updates of most kinds need its resource version.
func (e *env) currentObject(v virtualWorkspace, state, path, fallback string) string {
	e.Helper()
	if e.clusters[state] == "" {
		return fallback
	}
	path, _, _ = strings.Cut(path, "?")
	for _, base := range []string{"/clusters/" + e.clusters[state], v.basePath(e, state)} {
		if got, content := e.result("masters", http.MethodGet, base+path, "", ""); got == "200" {
			return content
		}
	}
	return fallback
}

// result sends a request and returns the response as the table writes it, and its text.
func (e *env) result(user, method, path, body, media string) (result, content string) {
	e.Helper()
	c := e.callers[user]
	req, err := http.NewRequestWithContext(e.Context(), method, c.host+path, bytes.NewBufferString(body))
	if err != nil {
		e.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusOK && req.URL.Query().Get("watch") != "" {
		return "200", "" // the watch stays open
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		e.Fatal(err)
	}
	var list struct{ Items *[]json.RawMessage }
	if resp.StatusCode == http.StatusOK && json.Unmarshal(text, &list) == nil && list.Items != nil && len(*list.Items) == 0 {
		return "empty", string(text)
	}
	return strconv.Itoa(resp.StatusCode), string(text)
}
