// Package freeport finds ports for servers of tests that get their address as a flag.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports are below those that the kernel gives to connections, and below those of Services of type NodePort: a port stays unused between
// the end of the listener and the start of the server, which takes seconds on a busy machine.
const (
	first, count = 20000, 10000
	attempts     = 1000
)

// Listen listens at a free port of the loopback interface. The port is for a server that is started once the listener is closed.
func Listen() (net.Listener, error) {
	var last error
	for range attempts {
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.IntN(count))))
		if err == nil {
			return listener, nil
		}
		last = err
	}
	return nil, fmt.Errorf("no port is free: %w", last)
}
