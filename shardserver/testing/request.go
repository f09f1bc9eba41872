package testing

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// Send sends one request to a path of a server and returns the response with its body. Both bodies are JSON, that of a
// PATCH is a merge patch, unless headers, pairs of name and value, differ.
func Send(t testing.TB, config *rest.Config, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	response := Open(t.Context(), t, config, method, path, body, headers...)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return response, string(content)
}

// Open is Send for a response whose body the caller reads, and closes.
func Open(ctx context.Context, t testing.TB, config *rest.Config, method, path, body string, headers ...string) *http.Response {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(ctx, method, config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json")
	switch {
	case method == http.MethodPatch:
		request.Header.Set("Content-Type", "application/merge-patch+json")
	case body != "":
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}
