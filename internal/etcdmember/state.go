package etcdmember

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// emptyVolumeCheck is the name of the readiness check that fails while a member waits with an empty volume. etcd has no check of that
// name.
const emptyVolumeCheck = "[-]empty-volume failed: "

// waitingServer answers the probes of a member that waits, at the address where etcd answers them later.
type waitingServer struct {
	mu     sync.Mutex
	reason string

	server *http.Server
	done   chan struct{}
}

// startWaitingServer listens on a URL such as http://0.0.0.0:2381.
func startWaitingServer(listenURL, reason string) (*waitingServer, error) {
	u, err := url.Parse(listenURL)
	if err != nil {
		return nil, fmt.Errorf("--listen-metrics-urls: %w", err)
	}
	listener, err := net.Listen("tcp", u.Host)
	if err != nil {
		return nil, fmt.Errorf("--listen-metrics-urls: %w", err)
	}
	s := &waitingServer{reason: reason, done: make(chan struct{})}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.done)
		_ = s.server.Serve(listener)
	}()
	return s, nil
}

func (s *waitingServer) setReason(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reason = reason
}

func (s *waitingServer) stop() {
	_ = s.server.Close()
	<-s.done
}

// ServeHTTP reports the process as live and not ready.
func (s *waitingServer) ServeHTTP(response http.ResponseWriter, req *http.Request) {
	if strings.HasPrefix(req.URL.Path, "/livez") {
		_, _ = io.WriteString(response, "ok")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	http.Error(response, emptyVolumeCheck+s.reason, http.StatusServiceUnavailable)
}

// IsVolumeEmpty queries a member at its URL of health checks whether it waits because its volume is empty. An error means that the member
// does not respond.
func IsVolumeEmpty(ctx context.Context, metricsURL string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, metricsURL+"/readyz", nil)
	if err != nil {
		return false, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	const maxBody = 4 << 10
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return strings.HasPrefix(string(body), emptyVolumeCheck), nil
}
