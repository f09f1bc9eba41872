package mcp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/client-go/rest"
)

// withToken is a transport that adds a bearer token.
type withToken struct{}

func (withToken) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer token")
	return http.DefaultTransport.RoundTrip(req)
}

// TestRefusedArgumentsAreExplained checks that errors about arguments contain advice, so that language models can correct the arguments.
func TestRefusedArgumentsAreExplained(t *testing.T) {
	handler, err := NewHandler(Config{FrontProxy: &rest.Config{Host: "https://127.0.0.1:1"}, Group: "infrastructure.example.org", Limits: DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: server.URL, HTTPClient: &http.Client{Transport: withToken{}}, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for name, tc := range map[string]struct {
		arguments map[string]any
		want      string
	}{
		"an argument is unknown":                   {map[string]any{"workspace": "root", "template": "cache"}, `"template"`},
		"an argument is missing":                   {nil, "workspace"},
		"an argument is refused by the tool":       {map[string]any{"workspace": "*", "kind": "Cache", "name": "mine"}, "workspace: "},
		"the control plane does not answer at all": {map[string]any{"workspace": "root", "kind": "Cache", "name": "mine"}, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "infrastructure__get_instance", Arguments: tc.arguments})
			if err != nil || !result.IsError || len(result.Content) != 1 {
				t.Fatalf("got %+v, %v", result, err)
			}
			text := result.Content[0].(*sdk.TextContent).Text
			if !strings.HasPrefix(text, "Failed to ") || !strings.Contains(text, tc.want) || strings.Count(text, nextStep) != 1 {
				t.Errorf("the error is %s", text)
			}
		})
	}
}

func TestSentences(t *testing.T) {
	for _, tc := range []struct {
		given instanceDetails
		want  string
	}{
		{newDetails("Ready", "", "mine-cache"), "Cache mine is Ready. Its credentials are in the Secret default/mine-cache of the workspace."},
		{newDetails("Failed", "The quota is exhausted.", ""), "Cache mine is Failed: The quota is exhausted."},
	} {
		if got := tc.given.sentence(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
	if got := count(1, "template") + ", " + count(0, "instance"); got != "1 template, 0 instances" {
		t.Errorf("got %q", got)
	}
}

func newDetails(phase, message, secret string) instanceDetails {
	d := instanceDetails{}
	d.Kind, d.Name, d.Phase, d.Message = "Cache", "mine", phase, message
	if secret != "" {
		d.ConnectionSecret = &connection{"default", secret}
	}
	return d
}
