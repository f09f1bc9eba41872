package sharded

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// requestTimeout bounds one probe, pollInterval is the time between two.
const (
	requestTimeout = 10 * time.Second
	pollInterval   = 50 * time.Millisecond
)

// WaitReady returns when a server is ready. If the context ends before, the error contains the server's last response.
func (l *Layout) WaitReady(ctx context.Context, server Server) error {
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: l.servers.CertFile}, Timeout: requestTimeout})
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for {
		last := checkReady(ctx, client, server.URL+"/readyz")
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", server.Name, last)
		case <-time.After(pollInterval):
		}
	}
}

func checkReady(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	const enough = 2000
	body, _ := io.ReadAll(io.LimitReader(response.Body, enough)) // the status suffices if the body cannot be read
	return fmt.Errorf("%s returns %s: %s", url, response.Status, strings.TrimSpace(string(body)))
}
