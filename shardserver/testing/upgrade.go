package testing

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"

	"k8s.io/client-go/rest"
)

// UpgradedConnection is a connection to a SubresourceBackend with the protocol "echo".
type UpgradedConnection struct {
	reader *bufio.Reader
	io.Writer
}

// Upgrade opens a connection with a POST to a path of a server, upgrades it, and expects the echo of a line.
func Upgrade(t testing.TB, config *rest.Config, path string, headers ...string) *UpgradedConnection {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig.NextProtos = []string{"http/1.1"}
	host, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := (&tls.Dialer{Config: tlsConfig}).DialContext(t.Context(), "tcp", host.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	if config.BearerToken != "" {
		req.Header.Set("Authorization", "Bearer "+config.BearerToken)
	}
	if impersonated := config.Impersonate; impersonated.UserName != "" {
		req.Header["Impersonate-User"], req.Header["Impersonate-Group"] = []string{impersonated.UserName}, impersonated.Groups
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if err := req.Write(connection); err != nil {
		t.Fatal(err)
	}
	upgraded := &UpgradedConnection{bufio.NewReader(connection), connection}
	response, err := http.ReadResponse(upgraded.reader, req)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Upgrade") != "echo" || response.Header.Get("Set-Cookie") != "" {
		t.Fatalf("%d %v", response.StatusCode, response.Header)
	}
	upgraded.ExpectEcho(t, "hello")
	return upgraded
}

// ExpectEcho sends a line, and expects its echo.
func (c *UpgradedConnection) ExpectEcho(t testing.TB, line string) {
	t.Helper()
	fmt.Fprintln(c, line)
	if got, err := c.reader.ReadString('\n'); got != "echo "+line+"\n" {
		t.Fatalf("got %q, %v", got, err)
	}
}

// WaitForEnd waits for the end of the connection.
func (c *UpgradedConnection) WaitForEnd(t testing.TB) {
	t.Helper()
	if rest, err := io.ReadAll(c.reader); len(rest) > 0 || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("at the end of the connection: %q, %v", rest, err)
	}
}
