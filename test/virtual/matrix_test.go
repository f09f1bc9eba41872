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

func TestTheMatrix(t *testing.T) {
	lines, err := readTable(matrix)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	s.exports()
	s.cached()
	s.lifecycles()
	s.settled()
	asked := 0
	for _, v := range views {
		for _, name := range slices.Sorted(maps.Keys(v.resources)) {
			for _, state := range v.states {
				for _, verb := range v.resources[name].verbs {
					asked += s.ask(lines, v, name, state, verb)
				}
			}
		}
	}
	t.Logf("asked %d questions", asked)
	for _, l := range lines {
		if !l.used {
			t.Errorf("matrix.txt:%d: decides about nothing", l.number)
		}
	}
}

// ask sends one request as every caller, compares the responses with the table, and returns the number of requests.
func (s *site) ask(lines []*line, v view, resource, state, verb string) int {
	s.Helper()
	method, path, body, media := v.resources[resource].request(verb, state)
	if verb == "update" {
		body = s.current(state, path, body)
	}
	decides := find(lines, v.name, resource, state, verb)
	if decides == nil {
		got := ""
		for _, who := range callers {
			answer, _ := s.answer(who, method, v.root(s, state)+path, body, media)
			got += " " + answer
		}
		s.Errorf("no line decides about %s %s %s %s, which is now |%s", v.name, resource, state, verb, got)
		return 0
	}
	count := 0
	for i, who := range callers {
		count++
		answer, content := s.answer(who, method, v.root(s, state)+path, body, media)
		if answer != decides.answers[i] {
			s.Errorf("matrix.txt:%d: %s %s (%s) of %s as %s: %s, want %s: %.300s", decides.number, v.name, verb, resource, state, who, answer, decides.answers[i], content)
		}
	}
	return count
}

// current returns the current object for an update, or otherwise: updates of most kinds need its resource version.
func (s *site) current(state, path, otherwise string) string {
	s.Helper()
	if s.clusters[state] == "" {
		return otherwise
	}
	path, _, _ = strings.Cut(path, "?")
	if got, content := s.answer("masters", http.MethodGet, "/clusters/"+s.clusters[state]+path, "", ""); got == "200" {
		return content
	}
	return otherwise
}

// answer sends a request and returns the response as the table writes it, and its text.
func (s *site) answer(who, method, path, body, media string) (answer, content string) {
	s.Helper()
	c := s.callers[who]
	req, err := http.NewRequestWithContext(s.Context(), method, c.host+path, bytes.NewBufferString(body))
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusOK && req.URL.Query().Get("watch") != "" {
		return "200", "" // the watch stays open
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	var list struct{ Items *[]json.RawMessage }
	if resp.StatusCode == http.StatusOK && json.Unmarshal(text, &list) == nil && list.Items != nil && len(*list.Items) == 0 {
		return "empty", string(text)
	}
	return strconv.Itoa(resp.StatusCode), string(text)
}
