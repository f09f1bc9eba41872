package mcp

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr/testr"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// FuzzWorkspace shows that every accepted workspace is one segment of a URL.
func FuzzWorkspace(f *testing.F) {
	for _, seed := range []string{"root", "root:org:team", "1x2y3z", "*", "..", "../..", "root/../other", "root%2f..", "system:admin", "root?a", "root#a", "@other", "root:\n", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, workspace string) {
		accepted, err := inWorkspace{workspace}.workspace()
		if err != nil {
			var argument *argumentError
			if !errors.As(err, &argument) || len(err.Error()) > 1000 {
				t.Errorf("%q: %v", workspace, err)
			}
			return
		}
		u, err := url.Parse("https://kcp.example.org/clusters/" + accepted + "/apis")
		if err != nil || accepted != workspace || u.Host != "kcp.example.org" || u.Path != "/clusters/"+workspace+"/apis" || u.EscapedPath() != u.Path || u.RawQuery != "" || strings.Count(u.Path, "/") != 3 || strings.Contains(u.Path, "*") {
			t.Errorf("%q is accepted: %v, %v", workspace, u, err)
		}
	})
}

// FuzzPosition shows that the tool accepts only arguments continue that it has returned.
func FuzzPosition(f *testing.F) {
	f.Add(position{"redis", "token"}.encode())
	f.Add("W10")
	for _, text := range []string{`{"r":"redis", "c":"token"}`, `{"r":"redis","c":"token","d":1}`, `{"R":"redis"}`, "{\"r\":\"\xcf\"}"} {
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(text)))
	}
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"r":"redis","c":"` + strings.Repeat("\xcf", maxToken/2) + `"}`)))
	f.Fuzz(func(t *testing.T, token string) {
		p, err := decodePosition(token)
		if err == nil && token != "" && p.encode() != token {
			t.Errorf("%q becomes %+v, which is %q", token, p, p.encode())
		}
	})
}

// TestControlPlaneMisbehaves shows that no other server receives the token of a user, that responses are bounded, and that errors contain no
// addresses.
func TestControlPlaneMisbehaves(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	answers := map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, other.URL, http.StatusTemporaryRedirect)
		},
		"large": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"List","a":"`+strings.Repeat("a", 1000)+`"}`)
		},
		"broken": func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
		"failed": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "goroutine 1 at 10.0.0.1", http.StatusInternalServerError)
		},
	}
	front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		answers[strings.Split(req.URL.Path, "/")[2]](w, req)
	}))
	defer front.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	limits := DefaultLimits()
	limits.Response = 500
	cfg := Config{
		FrontProxy: &rest.Config{Host: front.URL, BearerToken: "of-the-provider", TLSClientConfig: rest.TLSClientConfig{CAData: ca}},
		Group:      "infrastructure.example.org", Limits: limits,
	}
	clients, err := newClients(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{cfg: cfg, clients: clients}
	for workspace, want := range map[string]string{"redirect": "", "large": "too large", "broken": "answer", "failed": "has failed"} {
		c, err := clients.in(workspace, "of-the-user")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err = c.template(ctx, "redis"); err == nil {
			t.Fatalf("%s: no error", workspace)
		}
		explained := s.explain("Failed to", workspace, err).Error()
		if !strings.Contains(explained, want) || strings.Contains(explained, "127.0.0.1") || strings.Contains(explained, "10.0.0.1") || strings.Contains(explained, "of-the-") {
			t.Errorf("%s: got %s of %v", workspace, explained, err)
		}
	}
	if elsewhere.Load() > 0 {
		t.Error("a redirect was followed")
	}
}

// TestPanic shows that a panic of a tool ends the call, and not the process with the backends.
func TestPanic(t *testing.T) {
	s := &server{cfg: Config{Log: testr.New(t)}, clients: nil, calls: make(chan struct{}, 1)}
	request := &sdk.CallToolRequest{Extra: &sdk.RequestExtra{Header: http.Header{"Authorization": {"Bearer a"}}}}
	for range 2 { // the first call has released its slot
		_, _, workspace, err := listTemplates.call(t.Context(), s, request, listTemplatesArguments{inWorkspace: inWorkspace{"root"}})
		if explained := s.explain("Failed to", workspace, err); !errors.Is(err, errPanic) || strings.Contains(explained.Error(), "nil pointer") {
			t.Errorf("got %v, %v", err, explained)
		}
	}
}

// TestExplainIsBounded shows that errors are short, regardless of the length of the message of the control plane.
func TestExplainIsBounded(t *testing.T) {
	s := &server{}
	var causes []metav1.StatusCause
	for range 1000 {
		causes = append(causes, metav1.StatusCause{Field: "spec." + strings.Repeat("a", 1000), Message: strings.Repeat("ä", 10_000)})
	}
	for name, details := range map[string]*metav1.StatusDetails{"causes": {Causes: causes}, "a message": nil} {
		got := s.explain("Failed to", "root", &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: 422, Reason: metav1.StatusReasonInvalid, Message: strings.Repeat("ä", 1_000_000), Details: details,
		}}).Error()
		if len(got) > 20_000 || !utf8.ValidString(got) || !strings.Contains(got, "What to do next") {
			t.Errorf("%s: the error has %d bytes", name, len(got))
		}
	}
}

// TestNested sends requests that are nested as deeply as their size allows, which must not exhaust the stack of the process.
func TestNested(t *testing.T) {
	handler, err := NewHandler(Config{FrontProxy: &rest.Config{Host: "https://127.0.0.1:1"}, Group: "infrastructure.example.org", Limits: DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]string{"arrays": {"[", "]"}, "objects": {`{"a":`, "}"}} {
		for _, message := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"infrastructure__provision","arguments":{"workspace":"root","template":"a","name":"a","values":{"a":%}}}}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%}`, `{"jsonrpc":"2.0","id":%,"method":"tools/call"}`,
		} {
			depth := 990_000 / (len(pair[0]) + len(pair[1]))
			nested := strings.Repeat(pair[0], depth) + "1" + strings.Repeat(pair[1], depth)
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(strings.Replace(message, "%", nested, 1)))
			req.Header.Set("Authorization", "Bearer a")
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			res := httptest.NewRecorder()
			handler.ServeHTTP(res, req)
			if res.Code != http.StatusBadRequest {
				t.Errorf("%s in %.50s: %d %.200s", name, message, res.Code, res.Body)
			}
		}
	}
}
