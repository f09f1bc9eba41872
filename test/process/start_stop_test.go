package process

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/http2"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestStopDuringStart terminates shards while their start has reached different points: each must end, and what it waits
// for must not be a connection without requests.
func TestStopDuringStart(t *testing.T) {
	t.Parallel()
	for name, reached := range map[string]string{
		"the port is open":   "Serving securely on",
		"the shard is ready": "Bootstrapped",
	} {
		t.Run(name, func(t *testing.T) {
			s := launchShard(t, newRootDirectory(t))
			shardtesting.Eventually(t, name, func(context.Context) error {
				if !strings.Contains(s.Output(), reached) {
					return fmt.Errorf("%q is not in the log", reached)
				}
				return nil
			})
			s.stop(t)
		})
	}
}

// TestStopWithUnusedConnection holds a connection whose handshake ends after the shutdown has begun: the HTTP server does
// not tell it to close. The shard must end while it is open.
func TestStopWithUnusedConnection(t *testing.T) {
	t.Parallel()
	s := start(t, newRootDirectory(t))
	address, err := url.Parse(s.config(t, "base").Host)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := net.Dial("tcp", address.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	expectStatus(t, s.config(t, "base"), "/livez", http.StatusOK) // a later connection: the first was accepted before
	s.Signal(t, syscall.SIGTERM)
	shardtesting.Eventually(t, "the shard closes its port", func(context.Context) error {
		probe, err := net.Dial("tcp", address.Host)
		if err == nil {
			probe.Close()
			return fmt.Errorf("%s accepts connections", address.Host)
		}
		return nil
	})
	connection := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http2.NextProtoTLS}}) //nolint:gosec // no data is sent
	if err := connection.HandshakeContext(t.Context()); err == nil {
		if _, err := (&http2.Transport{}).NewClientConn(connection); err != nil {
			t.Logf("the shard ended before the connection was established: %v", err)
		}
	}
	if code := s.Exit(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.Tail())
	}
}
