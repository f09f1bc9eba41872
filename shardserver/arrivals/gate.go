// Package arrivals keeps a burst of requests from holding up those that are under way. It holds the beginning of requests
// back a little; who is served first is decided behind it, by package fairness.
//
// Go looks for what has come from the network when a processor has nothing else to do. When a hundred clients send a
// request at once, it finds a hundred connections, and the hundred are read, decrypted and authenticated, 65 µs each,
// before it looks again: the answer of etcd to a request that came long before is not seen for 5 ms. So only a few
// requests begin at a time. The next ones wait for a byte that goes through the kernel: Go finds it with everything
// else that has come meanwhile, behind which they line up.
//
// Who connects is seen to beside them, by one processor less than there are: a handshake takes as long as the beginnings of
// several requests, and whoever can reach the port can ask for a thousand. So those who are connected do not wait for those
// who want to be.
package arrivals

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

const (
	// batch is how many begin before the network is looked at again.
	batch = 4
	// patience is how long anybody waits for that. Where computations keep all processors busy, Go looks every 10 ms.
	patience = 2 * time.Millisecond
)

// Gate lets a few pass at a time. It is safe for concurrent use.
type Gate struct {
	mu       sync.Mutex
	requests way
	hellos   way  // begin handshakes
	asked    bool // that is: the bell has been rung and not been heard, or patience is being had
	guarded  bool

	rope, bell *os.File // the ends of a pipe
	impatient  *time.Timer
	ended      chan struct{}
}

// way is one of two through the gate.
type way struct {
	width   int // how many pass before the network is looked at again
	places  int // how many of them still may
	within  int // how many have passed and count until they leave
	waiting line
}

// let has one pass, if there is a place.
func (w *way) let(stays bool) bool {
	if w.places == 0 {
		return false
	}
	w.places--
	if stays {
		w.within++
	}
	return true
}

// admit has the next ones pass, after the network was looked at.
func (w *way) admit(stay bool) {
	for w.places = w.width - w.within; !w.waiting.empty() && w.let(stay); {
		close(w.waiting.next())
	}
}

// full says that there will be no place, however often the network is looked at, until somebody leaves.
func (w *way) full() bool { return w.within >= w.width }

// New returns a gate that lets everybody pass until it has a listener.
func New() *Gate {
	greeters := max(1, runtime.GOMAXPROCS(0)-1)
	return &Gate{requests: way{width: batch, places: batch}, hellos: way{width: greeters, places: greeters}}
}

// guard begins to let few pass at a time, with a goroutine and a pipe, until it is left.
func (g *Gate) guard() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	if g.bell, g.rope, err = os.Pipe(); err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	g.guarded, g.ended = true, make(chan struct{})
	g.impatient = time.AfterFunc(patience, g.admit)
	go g.listen()
	return nil
}

// leave lets everybody pass, now and from now on.
func (g *Gate) leave() error {
	g.mu.Lock()
	guarded := g.guarded
	g.guarded = false
	for ; !g.requests.waiting.empty(); close(g.requests.waiting.next()) {
	}
	for ; !g.hellos.waiting.empty(); close(g.hellos.waiting.next()) {
		g.hellos.within++
	}
	g.mu.Unlock()
	if !guarded {
		return nil
	}
	g.impatient.Stop()
	err := errors.Join(g.rope.Close(), g.bell.Close())
	<-g.ended
	return err
}

// Pass returns when the caller, who has received something, may go on.
func (g *Gate) Pass() {
	if turn := g.arrive(&g.requests, false); turn != nil {
		<-turn
	}
}

// greet returns when the caller, who has received the beginning of a handshake, may go on, which ends with part.
func (g *Gate) greet() {
	if turn := g.arrive(&g.hellos, true); turn != nil {
		<-turn
	}
}

// part ends what greet has begun.
func (g *Gate) part() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hellos.within--
	if g.guarded {
		g.ask()
	}
}

// arrive returns what is closed when it is the caller's turn, or nil if it is.
func (g *Gate) arrive(at *way, stays bool) (turn <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.guarded {
		if stays {
			at.within++
		}
		return nil
	}
	if !at.let(stays) {
		turn = at.waiting.join()
	}
	g.ask()
	return turn
}

// ask has the next ones admitted when the network has been looked at, once one of the ways has no places. The caller holds
// the lock.
func (g *Gate) ask() {
	none := g.requests.places == 0 || g.hellos.places == 0 && !g.hellos.full()
	if !none || g.asked {
		return
	}
	g.asked = true
	g.impatient.Reset(patience)
	_, _ = g.rope.Write([]byte{0}) // it holds thousands; if it could not be rung, patience would end
}

// listen admits the next ones whenever the bell is heard.
func (g *Gate) listen() {
	defer close(g.ended)
	var heard [64]byte // all that was rung since
	for {
		if _, err := g.bell.Read(heard[:]); err != nil {
			return // closed
		}
		g.admit()
	}
}

func (g *Gate) admit() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.guarded {
		return
	}
	g.impatient.Stop()
	g.asked = false
	g.requests.admit(false)
	g.hellos.admit(true)
	g.ask()
}
