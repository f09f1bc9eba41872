package process

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// maxStartLines bounds the log of a quiet start at the default level.
const maxStartLines = 20

// loadMessages are parts of log messages that only a slow machine causes.
var loadMessages = []string{
	"Trace[", "trace.go:", "took too long", "slow fdatasync", "waiting for ReadIndex response", `"msg":"request stats"`, "failed to send out heartbeat on time", "leader is overloaded",
}

// logLines returns the lines of the log, without those that only a slow machine causes.
func logLines(s *shard) (lines []string) {
next:
	for line := range strings.Lines(s.Output()) {
		for _, message := range loadMessages {
			if strings.Contains(line, message) {
				continue next
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// TestQuietLog checks that a start logs little at the default level, last what to do next, and an idle shard nothing.
func TestQuietLog(t *testing.T) {
	t.Parallel()
	s := start(t, newRootDirectory(t))
	kubeconfig := filepath.Join(s.directory, "admin.kubeconfig")
	want := "Ready. To use it, type: export KUBECONFIG=" + kubeconfig + "; kubectl get workspaces\"\n"
	shardtesting.Eventually(t, "the shard logs that it is ready", func(context.Context) error {
		if lines := logLines(s); !strings.HasSuffix(lines[len(lines)-1], want) {
			return fmt.Errorf("last line %q", lines[len(lines)-1])
		}
		return nil
	})
	started := logLines(s)
	if len(started) > maxStartLines {
		t.Errorf("the start logged %d lines, want at most %d:\n%s", len(started), maxStartLines, strings.Join(started, ""))
	}
	waitForHealthChecks(t, s, 2)
	if idle := logLines(s)[len(started):]; len(idle) > 0 {
		t.Errorf("the idle shard logged:\n%s", strings.Join(idle, ""))
	}
	s.stop(t)
}

// waitForHealthChecks waits until the root shard has checked the health of shards a number of times, which it does every
// few seconds.
func waitForHealthChecks(t *testing.T, s *shard, count int) {
	t.Helper()
	before := healthChecks(t, s)
	shardtesting.Eventually(t, "the health of shards is checked", func(context.Context) error {
		if now := healthChecks(t, s); now < before+count {
			return fmt.Errorf("%d times, before %d times", now, before)
		}
		return nil
	})
}

func healthChecks(t *testing.T, s *shard) (count int) {
	t.Helper()
	metrics, err := s.kubernetes(t, s.config(t, "shard-base")).Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const series = `atoll_controller_reconciles_total{controller="shard-health",outcome="success"} `
	_, value, _ := strings.Cut(string(metrics), series)
	_, _ = fmt.Sscan(value, &count)
	return count
}

// TestStopDuringStart terminates shards while their start has reached different points: each must end, and must not wait for a connection
// without requests.
func TestStopDuringStart(t *testing.T) {
	t.Parallel()
	for name, reached := range map[string]string{
		"the port is open":   "Serving securely on",
		"the shard is ready": "Ready. ",
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

// TestStopWithUnusedConnection holds a connection whose handshake ends after the shutdown has started: the HTTP server does not request
// its end. The shard must end while it is open.
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
	transport := &http.Transport{
		ForceAttemptHTTP2: true,
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			connection := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) // no data is sent
			return connection, connection.HandshakeContext(ctx)
		},
	}
	if _, err := transport.NewClientConn(t.Context(), "https", address.Host); err != nil {
		t.Logf("the shard ended before the connection was established: %v", err)
	}
	if code := s.Exit(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.Tail())
	}
}
