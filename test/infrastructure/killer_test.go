package infrastructure

import (
	"errors"
	"net/http"
	"sync"
)

var errKilled = errors.New("the process is dead")

// killer simulates the end of a process: its connections fail after a number of successful writes. A negative number means no limit.
type killer struct {
	mu   sync.Mutex
	left int
	dead bool
}

func (k *killer) isDead() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead
}

// wrap wraps the transport of a client.
func (k *killer) wrap(next http.RoundTripper) http.RoundTripper { return &killed{k, next} }

type killed struct {
	*killer
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (k *killed) RoundTrip(request *http.Request) (*http.Response, error) {
	if k.isDead() {
		return nil, errKilled
	}
	response, err := k.next.RoundTrip(request)
	if err != nil || request.Method == http.MethodGet || request.URL.Query().Has("dryRun") || response.StatusCode >= http.StatusMultipleChoices {
		return response, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left--; k.left == 0 {
		k.dead = true
	}
	return response, nil
}
