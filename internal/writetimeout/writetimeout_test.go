package writetimeout_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/atoll-dev/atoll/internal/writetimeout"
	unread "github.com/atoll-dev/atoll/internal/writetimeout/testing"
)

const (
	large = 16 << 20
	short = 50 * time.Millisecond
)

// never are timeouts that do not pass during a test.
var never = writetimeout.Timeouts{Response: time.Hour, Watch: time.Hour}

// server serves /large, /small and watches at /watch/read and /watch/unread.
type server struct {
	*httptest.Server
	// ended counts the requests whose handler has returned.
	ended atomic.Int32
	// events has the channel of each watch.
	events map[string]chan string
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newServer starts a server with timeouts of responses and of connections.
func newServer(t *testing.T, timeouts, connections writetimeout.Timeouts) *server {
	t.Helper()
	s := &server{events: map[string]chan string{"read": make(chan string), "unread": make(chan string)}}
	mux := http.NewServeMux()
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, large)) })
	mux.HandleFunc("/small", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "small") })
	mux.HandleFunc("/watch/{name}", func(w http.ResponseWriter, req *http.Request) {
		w.(http.Flusher).Flush()
		for {
			select {
			case event := <-s.events[req.PathValue("name")]:
				if _, err := io.WriteString(w, event); err != nil {
					return
				}
				w.(http.Flusher).Flush()
			case <-req.Context().Done():
				return
			}
		}
	})
	s.Server = httptest.NewUnstartedServer(timeouts.WithTimeouts(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer s.ended.Add(1)
		mux.ServeHTTP(w, req)
	})))
	s.Listener = connections.NewListener(s.Listener)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// unreadClient returns a client whose streams have a window of one byte.
func (s *server) unreadClient(t *testing.T) *unread.Client {
	t.Helper()
	c, err := unread.Dial(t.Context(), s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true}, 1) // a test server
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

// TestUnreadResponses sends requests whose responses no one reads, over HTTP/2.
func TestUnreadResponses(t *testing.T) {
	for _, path := range []string{"/large", "/small"} { // the server writes the small one after the handler
		t.Run(path, func(t *testing.T) {
			s := newServer(t, writetimeout.Timeouts{Response: short, Watch: time.Hour}, never)
			c := s.unreadClient(t)
			for range 10 {
				if err := c.Get(path); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "the server resets the streams", func() bool { return c.Count().Reset == 10 })
			eventually(t, "the handlers return", func() bool { return s.ended.Load() == 10 })
		})
	}
}

// TestWatches ends only the watch that has an event which no one reads.
func TestWatches(t *testing.T) {
	s := newServer(t, writetimeout.Timeouts{Response: time.Millisecond, Watch: time.Second}, never)
	read, err := s.Client().Get(s.URL + "/watch/read?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer read.Body.Close()
	c := s.unreadClient(t)
	if err := c.Get("/watch/unread?watch=true"); err != nil {
		t.Fatal(err)
	}
	s.events["unread"] <- "event\n"
	eventually(t, "the unread watch ends", func() bool { return c.Count().Reset == 1 && s.ended.Load() == 1 })
	// The other one had nothing to write for longer than the timeout.
	for range 2 {
		s.events["read"] <- "event\n"
		if line, err := io.ReadAll(io.LimitReader(read.Body, 6)); err != nil || string(line) != "event\n" {
			t.Fatalf("the watch that is read: %q, %v", line, err)
		}
	}
}

// TestSlowReader reads a response with pauses that together exceed the timeout, and then another one.
func TestSlowReader(t *testing.T) {
	const timeout = 2 * time.Second
	timeouts := writetimeout.Timeouts{Response: timeout, Watch: time.Hour}
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, timeouts, timeouts)
			transport := s.Client().Transport.(*http.Transport).Clone()
			defer transport.CloseIdleConnections()
			if protocol == "HTTP/1.1" {
				transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
				transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
			}
			transport.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 1 << 20}
			for path, want := range map[string]int64{"/large": large, "/small": 5} {
				res, err := (&http.Client{Transport: transport}).Get(s.URL + path)
				if err != nil {
					t.Fatal(err)
				}
				var read int64
				for pause := time.NewTicker(timeout / 10); err == nil; <-pause.C {
					var n int64
					n, err = io.CopyN(io.Discard, res.Body, 1<<20)
					read += n
				}
				_ = res.Body.Close()
				if err != io.EOF || read != want || res.Proto != protocol {
					t.Fatalf("%s: read %d bytes by %s: %v", path, read, res.Proto, err)
				}
			}
		})
	}
}

// TestUnreadConnections stops reading connections.
func TestUnreadConnections(t *testing.T) {
	soon := writetimeout.Timeouts{Response: short, Watch: short}
	for name, tc := range map[string]struct{ responses, connections writetimeout.Timeouts }{
		"the response times out":   {soon, never},
		"the connection times out": {never, soon},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // package tls waits five seconds for the client when it closes a connection
			s := newServer(t, tc.responses, tc.connections)
			config := &tls.Config{InsecureSkipVerify: true} // a test server
			conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			raw := conn.(*tls.Conn).NetConn()
			defer raw.Close()
			if err := raw.(*net.TCPConn).SetReadBuffer(1); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(conn, "GET /large HTTP/1.1\r\nHost: %s\r\n\r\n", s.Listener.Addr()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the handler returns", func() bool { return s.ended.Load() == 1 })
		})
	}
}

// TestInProcess serves a writer without deadlines.
func TestInProcess(t *testing.T) {
	served := writetimeout.Default().WithTimeouts(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, ok := w.(*httptest.ResponseRecorder); !ok {
			t.Errorf("the handler gets a %T", w)
		}
	}))
	served.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil))
}
