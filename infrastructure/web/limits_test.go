package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/internal/writetimeout"
	unread "github.com/atoll-dev/atoll/internal/writetimeout/testing"
)

// TestBodies shows that the server bounds the size of request bodies and the time to send them.
func TestBodies(t *testing.T) {
	s := newSite(t, func(c *Config) { c.Limits.Body, c.Limits.BodyTimeout = 1<<10, 50*time.Millisecond })
	if res, _ := s.do(t, "POST", list, bytes.NewReader(make([]byte, 1<<10))); res.StatusCode != http.StatusOK {
		t.Errorf("a body of the limit: %s", res.Status)
	}
	for name, body := range map[string]io.Reader{"known": bytes.NewReader(make([]byte, 1<<10+1)), "unknown": io.MultiReader(bytes.NewReader(make([]byte, 1<<10+1)))} {
		if res, text := s.do(t, "POST", list, body); res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("a larger body of %s length: %s %s", name, res.Status, text)
		}
	}
	slow, client := io.Pipe()
	defer client.Close()
	if res, text := s.do(t, "POST", list, slow); res.StatusCode != http.StatusRequestTimeout {
		t.Errorf("a body that does not end: %s %s", res.Status, text)
	}
	// The deadline for a body does not apply to the response.
	s.front.set(func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(150 * time.Millisecond) // longer than the deadline
		_, _ = io.WriteString(w, "done")
	})
	one := &http.Transport{TLSClientConfig: s.tls.Clone(), TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	defer one.CloseIdleConnections()
	for _, transport := range []http.RoundTripper{s.client.Transport, one} {
		s.client.Transport = transport
		if res, text := s.do(t, "POST", list, strings.NewReader("{}")); text != "done" {
			t.Errorf("a response later than the deadline of the body: %s %s", res.Status, text)
		}
	}
}

// TestSlowHeader shows that the server closes a connection whose request does not arrive.
func TestSlowHeader(t *testing.T) {
	s := newSite(t, func(c *Config) { c.Limits.HeaderTimeout = 50 * time.Millisecond })
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is not closed: %v", err)
	}
}

func TestUnread(t *testing.T) {
	s := newSite(t, func(c *Config) {
		c.Limits.Write = writetimeout.Timeouts{Response: 5 * time.Second, Watch: time.Second}
	})
	s.front.set(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })
	c, err := unread.Dial(t.Context(), s.address, s.tls, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 5 {
		if err := c.Get(list, "authorization", "Bearer a"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "responses that no one reads to end", func(context.Context) error {
		if got := c.Count().Reset; got != 5 {
			return fmt.Errorf("%d were reset", got)
		}
		return nil
	})
}

// TestLimit shows that the server limits concurrent requests, those of all callers and those of one; watches have separate limits.
func TestLimit(t *testing.T) {
	s := newSite(t, func(c *Config) { c.Limits.Requests, c.Limits.Watches = SeatLimit{3, 2}, SeatLimit{1, 1} })
	arrived, proceed := make(chan struct{}), make(chan struct{})
	s.front.set(func(_ http.ResponseWriter, req *http.Request) {
		if req.URL.RawQuery == "" {
			arrived <- struct{}{}
			<-proceed
		}
	})
	var running sync.WaitGroup
	for _, token := range []string{"a", "a", "b"} {
		running.Go(func() { s.do(t, "GET", list, nil, "Authorization", "", "Authorization", "Bearer "+token) })
		<-arrived
		if res, body := s.do(t, "GET", list+"?limit=1", nil, "Authorization", "", "Authorization", "Bearer c"); token == "a" && res.StatusCode != http.StatusOK {
			t.Errorf("another caller: %s %s", res.Status, body)
		}
	}
	for _, token := range []string{"a", "c", ""} {
		if res, body := s.do(t, "GET", list, nil, "Authorization", "", "Authorization", "Bearer "+token); res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" {
			t.Errorf("one more of caller %q: %s %s", token, res.Status, body)
		}
	}
	for _, path := range []string{"/healthz", list + "?watch=1"} {
		if res, body := s.do(t, "GET", path, nil); res.StatusCode != http.StatusOK {
			t.Errorf("%s meanwhile: %s %s", path, res.Status, body)
		}
	}
	close(proceed)
	running.Wait()
	s.front.set(nil)
	if res, body := s.do(t, "GET", list, nil); res.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %s %s", res.Status, body)
	}
}

// TestSeats shows that each token has its own limit, and that there is no entry for a token without requests.
func TestSeats(t *testing.T) {
	s := newSeats(SeatLimit{3, 2})
	none, a, b := caller{}, caller{1}, caller{2}
	for i, step := range []struct {
		by   caller
		want bool
	}{{a, true}, {a, true}, {a, false}, {b, true}, {b, false}, {none, false}} {
		if got := s.take(step.by); got != step.want {
			t.Errorf("step %d: got %v", i, got)
		}
	}
	for _, c := range []caller{a, a, b} {
		s.leave(c)
	}
	if len(s.by) > 0 || s.taken != 0 {
		t.Errorf("left: %v, %d", s.by, s.taken)
	}
	for range 3 {
		if !s.take(none) {
			t.Error("callers without token share the limit of one")
		}
	}
}
