// Package profiling serves pprof on a loopback address, without authentication.
package profiling

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

// Validate returns an error unless the address of --profiler-address is a loopback address.
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

// Serve listens until the context ends. Its goroutines run in the group.
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
