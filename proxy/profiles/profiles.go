// Package profiles serves pprof on the machine itself. It asks nobody who they are, so it listens nowhere else.
package profiles

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Validate checks the address of --profiler-address: it must be one of the loopback interface.
func Validate(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--profiler-address: got %q, expected <loopback host>:<port>: %w", address, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--profiler-address: got %q, expected a loopback host such as localhost, because profiles are served without authentication", address)
	}
	return nil
}

// Serve listens until the context ends. What it starts belongs to the group.
func Serve(ctx context.Context, running *sync.WaitGroup, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--profiler-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	running.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.ErrorS(err, "Profiler stopped")
		}
	})
	running.Go(func() {
		<-ctx.Done()
		_ = server.Close()
	})
	return nil
}
