package security_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	unread "github.com/atoll-dev/atoll/internal/writetimeout/testing"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// unreadRequests are requests of one user that together need more seats than a shard has.
const unreadRequests = 700

// testUnreadResponses sends many requests of alice and does not read the responses, which are lists, or watches, in one
// workspace, in many, and in all consumers of an export. Meanwhile the shard serves requests of bob, and it ends the responses.
func testUnreadResponses(t *testing.T, s *env) {
	s.NewExport(t, s.a, "unread", schema.GroupResource{Group: "unread.example.com", Resource: "pages"}, "Page")
	consumers := "/services/apiexport/" + s.a + "/unread/clusters/*/apis/unread.example.com/v1/pages"
	s.waitForResponse(t, s.adminA, s.shardURL, consumers)
	children := s.createChildren(t, 20)
	defer s.deleteChildren(t, len(children))
	one := func(suffix string) func(int) string {
		return func(int) string { return suffix }
	}
	for name, tc := range map[string]struct {
		base string
		path func(i int) string
	}{
		"lists of one workspace":              {s.shardURL, one("/clusters/" + s.a + configMapsPath)},
		"lists of many workspaces":            {s.shardURL, func(i int) string { return "/clusters/" + children[i%len(children)] + configMapsPath }},
		"lists of all consumers":              {s.shardURL, one(consumers)},
		"lists that are refused":              {s.shardURL, one("/clusters/" + s.b + configMapsPath)},
		"watches with initial events":         {s.shardURL, one("/clusters/" + s.a + configMapsPath + "?watch=true&resourceVersion=0")},
		"lists of one workspace at the proxy": {s.proxyURL, one("/clusters/" + s.a + configMapsPath)},
	} {
		t.Run(name, func(t *testing.T) {
			clients := s.sendUnread(t, tc.base, tc.path)
			s.expectServed(t, tc.base)
			shardtesting.Eventually(t, "the server ends responses that no one reads", func(context.Context) error {
				if total := sumCounts(clients); total.Reset == 0 {
					return fmt.Errorf("%+v", total)
				}
				return nil
			})
			for _, c := range clients {
				c.Close()
			}
		})
	}
}

// createChildren creates workspaces below a, whose creator and administrator is alice.
func (e *env) createChildren(t *testing.T, n int) []string {
	t.Helper()
	for i := range n {
		body := fmt.Sprintf(`{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"child-%d"},"spec":{%s}}`, i, e.remoteLocation())
		if got := e.do(t, e.adminA, e.a, request{method: http.MethodPost, path: workspacesPath, body: body}); got.status != http.StatusCreated {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	var clusters []string
	for i := range n {
		shardtesting.Eventually(t, "a child of a is ready", func(context.Context) error {
			got := e.do(t, e.adminA, e.a, request{path: fmt.Sprintf("%s/child-%d", workspacesPath, i)})
			if !strings.Contains(got.body, `"phase":"Ready"`) {
				return fmt.Errorf("%d %s", got.status, got.body)
			}
			clusters = append(clusters, got.object(t)["spec"].(map[string]any)["cluster"].(string))
			return nil
		})
	}
	return clusters
}

func (e *env) deleteChildren(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		e.do(t, e.adminA, e.a, request{method: http.MethodDelete, path: fmt.Sprintf("%s/child-%d", workspacesPath, i)})
	}
}

// waitForResponse polls until a user gets a complete path at a server.
func (e *env) waitForResponse(t *testing.T, caller *testUser, base, path string) {
	t.Helper()
	shardtesting.Eventually(t, path+" is served", func(context.Context) error {
		if got := e.send(t, caller, base, request{path: path}); got.status != http.StatusOK {
			return fmt.Errorf("%d %s", got.status, got.body)
		}
		return nil
	})
}

// sendUnread sends requests of alice on connections with as many streams as servers accept, and returns when the server
// has begun to respond to as many as it executes at once.
func (e *env) sendUnread(t *testing.T, base string, path func(i int) string) []*unread.Client {
	t.Helper()
	const perConnection = 90
	config := e.adminA.client.Transport.(*http.Transport).TLSClientConfig
	var clients []*unread.Client
	for i := range unreadRequests {
		if i%perConnection == 0 {
			c, err := unread.Dial(t.Context(), strings.TrimPrefix(base, "https://"), config, 0)
			must(t, err)
			t.Cleanup(c.Close)
			clients = append(clients, c)
		}
		must(t, clients[len(clients)-1].Get(path(i), "accept", jsonType))
	}
	shardtesting.Eventually(t, "responses to alice begin", func(context.Context) error {
		if total := sumCounts(clients); total.Status["200"]+total.Status["403"] < 30 {
			return fmt.Errorf("%+v", total)
		}
		return nil
	})
	return clients
}

func sumCounts(clients []*unread.Client) unread.Count {
	total := unread.Count{Status: map[string]int{}}
	for _, c := range clients {
		count := c.Count()
		total.Reset += count.Reset
		total.Open += count.Open
		for status, n := range count.Status {
			total.Status[status] += n
		}
	}
	return total
}

// expectServed sends concurrent requests of bob, all of which must succeed.
func (e *env) expectServed(t *testing.T, base string) {
	t.Helper()
	paths := []string{"/clusters/" + e.b + confidentialPath, "/clusters/" + e.b + "/openapi/v3", "/clusters/" + e.b + "/apis"}
	if base == e.shardURL {
		paths = append(paths, "/services/apiexport/"+e.b+"/inner/clusters/*/apis/inner.example.com/v1/notes")
	}
	var readers sync.WaitGroup
	for range 5 {
		readers.Go(func() {
			for i := range 10 * len(paths) {
				path := paths[i%len(paths)]
				if got := e.send(t, e.adminB, base, request{path: path}); got.status != http.StatusOK {
					t.Errorf("bob, %s: %d %.300s", path, got.status, got.body)
					return
				}
			}
		})
	}
	readers.Wait()
}
