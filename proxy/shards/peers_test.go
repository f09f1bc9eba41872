package shards

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestOrderPeers(t *testing.T) {
	for _, test := range []struct {
		hosts, failed string
		turn          int
		want          string
	}{
		{"a", "", 7, "a"},
		{"a", "a", 0, "a"},
		{"a b c", "", 0, "a b c"},
		{"a b c", "", 2, "c a b"},
		{"a b c", "a", 0, "b c a"},
		{"a b c", "b c", 2, "a c b"},
		{"a b c d e f", "", 4, "e f a b"},
		{"a b c d e f", "a b c", 0, "d e f a"},
	} {
		failed := strings.Fields(test.failed)
		got := orderPeers(strings.Fields(test.hosts), test.turn, func(host string) bool { return slices.Contains(failed, host) })
		if strings.Join(got, " ") != test.want {
			t.Errorf("%q with %q failed, turn %d: %v, want %s", test.hosts, test.failed, test.turn, got, test.want)
		}
	}
}

// newPeerServer returns a server that answers with its name, and its URL.
func newPeerServer(t *testing.T, name string) (*httptest.Server, *url.URL) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { fmt.Fprint(w, name, " ", req.URL.Path) }))
	t.Cleanup(server.Close)
	parsed, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return server, parsed
}

func TestPeerTransport(t *testing.T) {
	down, downURL := newPeerServer(t, "down")
	down.Close()
	_, seed := newPeerServer(t, "seed")
	_, joined := newPeerServer(t, "joined")
	config, peers := newPeerConfig(&Peers{Config: &rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, Seeds: []*url.URL{downURL, seed}})
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	// answers returns who answers requests, in alphabetical order.
	answers := func(requests int) string {
		t.Helper()
		var all []string
		for range requests {
			response, err := client.Get(config.Host + "/clusters/*/apis")
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			var name, path string
			if _, err := fmt.Fscan(response.Body, &name, &path); err != nil || path != "/services/admin/clusters/*/apis" {
				t.Fatalf("%s asked for %q: %v", name, path, err)
			}
			all = append(all, name)
		}
		slices.Sort(all)
		return strings.Join(slices.Compact(all), " ")
	}
	if got := answers(4); got != "seed" {
		t.Errorf("with one seed that is down, %s answers", got)
	}
	if len(peers.failed) != 1 {
		t.Errorf("failures of %v are stored, want one", peers.failed)
	}

	shard := &shardObject{ObjectMeta: metav1.ObjectMeta{Name: "alpha"}}
	shard.Spec.BaseURL = joined.String()
	peers.putShard(shard)
	if got := answers(4); got != "joined seed" {
		t.Errorf("with a shard that joined, %s answer", got)
	}
	peers.record("nobody:443", http.ErrServerClosed)
	peers.record(joined.Host, http.ErrServerClosed)
	peers.removeShard("alpha")
	if got := answers(4); got != "seed" || len(peers.failed) != 1 {
		t.Errorf("with a shard that left, %s answers, and failures of %v are stored", got, peers.failed)
	}
	peers.replaceShards([]*shardObject{shard})
	if got := answers(4); got != "joined seed" {
		t.Errorf("with a list of shards, %s answer", got)
	}
	peers.replaceShards(nil)
	if got := answers(4); got != "seed" {
		t.Errorf("with an empty list of shards, %s answers", got)
	}
}

func TestPeerTransportSendsBodiesOnce(t *testing.T) {
	var sent []string
	peers := &peerTransport{seeds: []string{"a", "b"}, failed: map[string]time.Time{}, base: roundTripper(func(req *http.Request) (*http.Response, error) {
		sent = append(sent, req.URL.Host)
		return nil, http.ErrServerClosed
	})}
	req := httptest.NewRequest(http.MethodPost, "https://a/", strings.NewReader("body"))
	if response, err := peers.RoundTrip(req); err == nil {
		t.Errorf("the response is %v", response)
	}
	if len(sent) != 1 {
		t.Errorf("the body was sent to %v", sent)
	}
	req = httptest.NewRequest(http.MethodGet, "https://a/", http.NoBody)
	if response, err := peers.RoundTrip(req); err == nil || len(sent) != 3 {
		t.Errorf("the response is %v, the request was sent to %v", response, sent)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }
