package loopback

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func clusterContext(t *testing.T) context.Context {
	return logicalcluster.With(t.Context(), logicalcluster.MustParseName("a"))
}

// newDirectClients returns clients of a server on the network, whose writes are passed to handler until end is called.
func newDirectClients(t *testing.T, handler http.HandlerFunc) (clients *Clients, network *recorder, end context.CancelFunc) {
	t.Helper()
	network = &recorder{}
	server := httptest.NewServer(network)
	t.Cleanup(server.Close)
	clients, err := NewClients(&rest.Config{Host: server.URL, BearerToken: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	clients.ServeDirectly(ctx, handler)
	return clients, network, end
}

func TestServeDirectlyPassesWrites(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(clusterContext(t), key{}, "the caller's")
	clients, network, _ := newDirectClients(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !strings.Contains(string(body), "x") {
			t.Errorf("body %s, error %v", body, err)
		}
		if r.URL.String() != "/clusters/a/api/v1/namespaces?dryRun=All" || r.RequestURI != r.URL.String() || r.Method != http.MethodPost {
			t.Errorf("%s %s (%s)", r.Method, r.URL, r.RequestURI)
		}
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("headers %v", r.Header)
		}
		if r.UserAgent() != rest.DefaultKubernetesUserAgent() {
			t.Errorf("user agent %q", r.UserAgent())
		}
		if r.Context().Value(key{}) != nil {
			t.Error("the handler inherits values of the caller's context")
		}
		r.Header.Del("Authorization") // as authentication does
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"metadata":{"name":"x",`))
		_, _ = w.Write([]byte(`"uid":"1"}}`))
	})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	if err := clients.Typed.Create(ctx, namespace, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if namespace.UID != "1" {
		t.Errorf("answered with %v", namespace)
	}
	if n := network.requests.Load(); n != 0 {
		t.Errorf("%d requests took the network", n)
	}
}

func TestServeDirectlyPassesOnlyWritesUntilContextEnds(t *testing.T) {
	clients, network, end := newDirectClients(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			t.Error("a read took the shortcut")
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Namespace"}`))
	})
	deleteNamespace := func() int64 {
		if err := clients.Typed.Delete(clusterContext(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}); err != nil {
			t.Fatal(err)
		}
		return network.requests.Load()
	}
	if err := clients.Typed.Get(clusterContext(t), client.ObjectKey{Name: "x"}, &corev1.Namespace{}); err != nil {
		t.Fatal(err)
	}
	if n := network.requests.Load(); n != 1 {
		t.Errorf("a read made %d requests over the network", n)
	}
	if n := deleteNamespace(); n != 1 {
		t.Errorf("a write took the network, which has seen %d requests", n)
	}
	end()
	for n := deleteNamespace(); n < 2; n = deleteNamespace() { // the function that runs after the context is asynchronous
	}
}

func TestServeDirectlyPanic(t *testing.T) {
	clients, _, _ := newDirectClients(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	err := clients.Typed.Delete(clusterContext(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
	if err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("got %v", err)
	}
}

func TestServeDirectlyCancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(clusterContext(t))
	clients, _, _ := newDirectClients(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	err := clients.Typed.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
