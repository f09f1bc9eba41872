package proxy

import (
	"errors"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/atoll-dev/atoll/proxy/backend"
)

const (
	// movingTimeout bounds how long a read of a logical cluster that is handed over waits for the shard that takes over.
	movingTimeout = 2 * time.Second
	// minMovingDelay and maxMovingDelay bound the time from one attempt to the next, which doubles.
	minMovingDelay, maxMovingDelay = 10 * time.Millisecond, 200 * time.Millisecond
)

// isRead reports whether a request can be repeated and ends by itself.
func isRead(req *http.Request) bool {
	return (req.Method == http.MethodGet || req.Method == http.MethodHead) && req.ContentLength == 0 && !backend.IsLongRunning(req)
}

// forwardRead forwards a read to a shard, and repeats it while the shard says that the logical cluster moves: between the moments at which the origin
// serves its last read and the destination its first one, and until this proxy knows of the latter. A destination without a URL is not known yet. At
// the end of its time the client gets the answer of the shard. The request waits in its own goroutine, and counts as one in flight.
func (h *proxyHandler) forwardRead(w http.ResponseWriter, req *http.Request, to destination, u user.Info) {
	deadline := time.Now().Add(movingTimeout)
	for delay := minMovingDelay; time.Now().Before(deadline); delay = min(2*delay, maxMovingDelay) {
		if to.url != nil && !h.forwarder.ForwardRead(w, req, to.backend, to.url, u) {
			return
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-req.Context().Done():
			timer.Stop()
			return
		}
		next, err := h.resolve(req)
		if errors.Is(err, errNotSynced) {
			continue // it moves to a shard that this proxy does not know to have it
		}
		if err == nil && !next.isShard {
			err = errNotSynced // the path has become that of a mount, which may believe other tokens than those of this user
		}
		if err != nil {
			h.respond.resolutionError(w, req, err)
			return
		}
		to = next
	}
	if to.url == nil {
		h.respond.resolutionError(w, req, errMoving)
		return
	}
	h.forwarder.Forward(w, req, to.backend, to.url, u)
}
