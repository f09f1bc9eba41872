// Package freeport finds ports for servers of tests that receive their address as a flag.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// The ports are below those that the kernel assigns to connections, and below those of Services of type NodePort: a port remains unused
// between the end of the listener and the start of the server, which takes seconds on a busy machine.
const (
	first, count = 20000, 10000
	attempts     = 1000
)

// Listen listens at a free port of the loopback interface. The port is for a server that is started after the listener is closed. No
// other process on the machine gets the port from this package until this process ends.
func Listen() (net.Listener, error) {
	var last error
	for range attempts {
		port := first + rand.IntN(count)
		if err := reserve(port); err != nil {
			last = err
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return listener, nil
		}
		last = err
	}
	return nil, fmt.Errorf("no port is free: %w", last)
}

// reserved are the locked files of the ports of this process. The kernel unlocks them at its end.
var reserved struct {
	sync.Mutex
	files []*os.File
}

// reserve locks the file of a port. It fails if a process has already locked it, including this process.
func reserve(port int) error {
	directory := filepath.Join(os.TempDir(), "atoll-ports")
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(directory, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return fmt.Errorf("port %d is another server's: %w", port, err)
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.files = append(reserved.files, file)
	return nil
}
