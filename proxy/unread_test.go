package proxy_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/internal/writetimeout"
	unread "github.com/atoll-dev/atoll/internal/writetimeout/testing"
	"github.com/atoll-dev/atoll/proxy/inflight"
	"github.com/atoll-dev/atoll/proxy/options"
)

// unreadClient returns a client that does not read the bodies of responses.
func (en *env) unreadClient(cn string) *unread.Client {
	en.t.Helper()
	config := en.clientFor(cn).Transport.(*http.Transport).TLSClientConfig
	c, err := unread.Dial(en.t.Context(), strings.TrimPrefix(en.url, "https://"), config, 0)
	must(en.t, err)
	en.t.Cleanup(c.Close)
	return c
}

// TestUnreadResponses sends more requests of one user than the proxy forwards at once, and does not read the responses,
// each of which has four megabytes.
func TestUnreadResponses(t *testing.T) {
	const limit = 30
	for name, tc := range map[string]struct {
		query  string
		window int64
	}{
		"ordinary requests": {"", 256 << 10},
		"watches":           {"?watch=true", 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			i := newEnv(t, func(_ *env, o *options.Options) {
				o.InFlight = inflight.Limits{Requests: limit, Watches: limit}
				o.WriteTimeouts = writetimeout.Timeouts{Response: time.Hour, Watch: time.Hour}
			})
			c := i.unreadClient("alice")
			for range limit + 20 {
				must(t, c.Get("/clusters/root:org:team/large"+tc.query))
			}
			want := map[string]int{"200": limit, "429": 20}
			i.eventually("the proxy forwards some requests and refuses the others", func() bool {
				return maps.Equal(c.Count().Status, want)
			})
			i.eventually("the shard sends as much as the proxy buffers", func() bool { return i.alpha.largeWritten.Load() >= limit*tc.window })
			alice, bob := i.clientFor("alice"), i.clientFor("bob")
			for range 20 { // the shard would continue to send meanwhile
				if status, _, body := i.get(bob, "/clusters/root:org:team/api"+tc.query, nil); status != http.StatusOK {
					t.Fatalf("another user: %d %s", status, body)
				}
			}
			// Beside the flow-control window, the proxy has a buffer for each response, and the shard one chunk.
			if got, most := i.alpha.largeWritten.Load(), limit*(tc.window+(64<<10)); got > most {
				t.Errorf("the shard sent %d bytes, want at most %d", got, most)
			}
			res, _, err := i.do(alice, http.MethodGet, "/clusters/root:org:team/api"+tc.query, nil)
			must(t, err)
			if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" {
				t.Errorf("a request beyond the limit: %s, Retry-After %q", res.Status, res.Header.Get("Retry-After"))
			}
			c.Close()
			i.eventually("the responses end", func() bool { return i.alpha.largeOpen.Load() == 0 })
			i.eventually("the user is served again", func() bool {
				status, _, _ := i.get(alice, "/clusters/root:org:team/api"+tc.query, nil)
				return status == http.StatusOK
			})
		})
	}
}

// TestWriteTimeouts waits until the proxy ends responses that no one reads.
func TestWriteTimeouts(t *testing.T) {
	i := newEnv(t, func(_ *env, o *options.Options) {
		o.WriteTimeouts = writetimeout.Timeouts{Response: 5 * time.Second, Watch: time.Second} // longer than a loaded machine keeps a process from running
	})
	c := i.unreadClient("alice")
	for _, path := range []string{"/large", "/large?watch=true", "/api"} {
		must(t, c.Get("/clusters/root:org:team"+path))
	}
	i.eventually("the responses end", func() bool { return c.Count().Reset == 3 && i.alpha.largeOpen.Load() == 0 })
}

// TestTokensInFlight exhausts the limit of a token that the proxy does not verify.
func TestTokensInFlight(t *testing.T) {
	i := newEnv(t, func(_ *env, o *options.Options) {
		o.InFlight = inflight.Limits{Requests: 1}
		o.WriteTimeouts = writetimeout.Timeouts{Response: time.Hour, Watch: time.Hour}
	})
	// Without a certificate, the shard authenticates the token.
	config := i.client(nil).Transport.(*http.Transport).TLSClientConfig
	c, err := unread.Dial(t.Context(), strings.TrimPrefix(i.url, "https://"), config, 0)
	must(t, err)
	t.Cleanup(c.Close)
	must(t, c.Get("/clusters/root:org:team/large", "authorization", "Bearer first"))
	i.eventually("the shard responds", func() bool { return c.Count().Status["200"] == 1 })
	for _, tc := range []struct {
		sentence string
		token    string
		want     int
	}{
		{"the same token", "first", http.StatusTooManyRequests},
		{"another token", "second", http.StatusOK},
		{"no token", "", http.StatusOK},
	} {
		header := http.Header{}
		if tc.token != "" {
			header.Set("Authorization", "Bearer "+tc.token)
		}
		if status, _, body := i.get(i.client(nil), "/clusters/root:org:team/api", header); status != tc.want {
			t.Errorf("%s: %d %s", tc.sentence, status, body)
		}
	}
}
