package arrivals

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func guarded(t *testing.T) *Gate {
	t.Helper()
	g := New()
	if err := g.guard(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.leave(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func TestOldestAndNewestGoInTurn(t *testing.T) {
	var l line
	turns := make([]<-chan struct{}, 5)
	for i := range turns {
		turns[i] = l.join()
	}
	var order []int
	for !l.empty() {
		turn := l.next()
		order = append(order, slices.IndexFunc(turns, func(of <-chan struct{}) bool { return of == turn }))
	}
	if want := []int{0, 4, 1, 3, 2}; !slices.Equal(order, want) {
		t.Errorf("they go in the order %v, want %v", order, want)
	}
}

func TestEverybodyPasses(t *testing.T) {
	g := guarded(t)
	var running sync.WaitGroup
	for range 500 {
		running.Go(func() {
			for range 20 {
				g.Pass()
				g.greet()
				g.part()
			}
		})
	}
	running.Wait()
}

func TestNobodyWaitsAtAGateThatIsLeft(t *testing.T) {
	g := guarded(t)
	g.bell.Close() // is heard no more
	g.impatient.Stop()
	g.mu.Lock()
	g.asked = true // nor is anybody impatient
	g.mu.Unlock()
	var running sync.WaitGroup
	for range 3 * batch {
		running.Go(g.Pass)
		running.Go(func() { g.greet(); g.part() })
	}
	_ = g.leave()
	running.Wait()
	g.Pass()
}

// TestHandshakesLeaveAProcessorToRequests has more handshakes than may be under way, each of which takes until it is told
// to end, and requests that pass meanwhile.
func TestHandshakesLeaveAProcessorToRequests(t *testing.T) {
	g := guarded(t)
	const handshakes = 50
	begun, end := make(chan struct{}, handshakes), make(chan struct{})
	var running sync.WaitGroup
	for range handshakes {
		running.Go(func() {
			g.greet()
			begun <- struct{}{}
			<-end
			g.part()
		})
	}
	may := g.hellos.width
	for range may {
		<-begun
	}
	for range 10 * batch { // so the network is looked at again and again
		g.Pass()
	}
	if n := len(begun); n > 0 {
		t.Errorf("%d handshakes more are under way than %d", n, may)
	}
	close(end)
	running.Wait()
	if g.hellos.within != 0 {
		t.Errorf("%d handshakes count that have ended", g.hellos.within)
	}
}

// TestHalfAHelloHoldsNothing has connections that send the beginning of a handshake and no more, and some that are closed
// before it is their turn.
func TestHalfAHelloHoldsNothing(t *testing.T) {
	g := New()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that fail
	listener, err := g.Listen(s.Listener)
	if err != nil {
		t.Fatal(err)
	}
	s.Listener = listener
	s.StartTLS()
	for n := range 10 * g.hellos.width {
		half, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer half.Close()
		if _, err := half.Write([]byte{22, 3, 1}); err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 {
			half.Close()
		}
	}
	response, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	s.CloseClientConnections()
	s.Close()
	for end := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		g.mu.Lock()
		within := g.hellos.within
		g.mu.Unlock()
		if within == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d handshakes count after all connections were closed", within)
		}
	}
}

// TestABurstIsNotWaitedFor has a hundred connections that all have sent something when their receiver gets a processor,
// and counts how many of them are seen to before an answer is that came after them. Without a gate mostly all are.
func TestABurstIsNotWaitedFor(t *testing.T) {
	const burst = 100
	behind, together := int64(0), false
	for !together {
		behind, together = behindABurst(t, burst)
	}
	if behind > burst/4 {
		t.Errorf("the answer comes after %d of %d requests, want a few", behind, burst)
	}
}

// behindABurst returns how many requests are seen to before the answer, and whether all had been sent before the first was
// seen to, as it happens if the sender keeps its processor.
func behindABurst(t *testing.T, burst int) (behind int64, together bool) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	gate := guarded(t)
	var seen, when atomic.Int64
	var running, reading sync.WaitGroup
	send := make([]net.Conn, 0, burst+1)
	receive := func(then func()) {
		client, server := connected(t)
		send = append(send, client)
		reading.Add(1)
		running.Go(func() {
			reading.Done()
			if _, err := server.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
			then()
		})
	}
	for range burst {
		receive(func() {
			gate.Pass()
			seen.Add(1)
			for range 100 { // about as long as a request's beginning takes
				_ = make([]byte, 1<<14)
			}
		})
	}
	receive(func() { when.Store(seen.Load()) })
	reading.Wait()
	runtime.Gosched() // so that all of them read
	for _, connection := range send {
		if _, err := connection.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	together = seen.Load() == 0
	running.Wait()
	return when.Load(), together
}

// connected returns both ends of a connection.
func connected(t *testing.T) (client, server net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if client, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// TestServing has requests on connections of both kinds pass, and the gate end with the listener.
func TestServing(t *testing.T) {
	for name, http2 := range map[string]bool{"a request at a time": false, "requests beside each other": true} {
		t.Run(name, func(t *testing.T) {
			g := New()
			s := httptest.NewUnstartedServer(g.With(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if (r.ProtoMajor > 1) != http2 {
					t.Errorf("got %s", r.Proto)
				}
				_, _ = io.Copy(w, r.Body)
			})))
			listener, err := g.Listen(s.Listener)
			if err != nil {
				t.Fatal(err)
			}
			s.EnableHTTP2 = http2
			s.Listener = listener
			s.StartTLS()
			defer s.Close()
			get := func() {
				response, err := s.Client().Get(s.URL)
				if err != nil {
					t.Error(err)
					return
				}
				response.Body.Close()
			}
			get() // on a connection that the others may share
			var running sync.WaitGroup
			for range 50 {
				running.Go(get)
			}
			running.Wait()
		})
	}
}
