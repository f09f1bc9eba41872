package objectstore

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/internal/backup/config"
)

// TestInterruptedRead reads objects from servers whose connection breaks: that is a failure of the store, and not of the object.
func TestInterruptedRead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"0"`)
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("short")) // the server ends the connection, because it lacks the rest
	}))
	t.Cleanup(server.Close)
	store, err := OpenWith(config.Store{EndpointURL: server.URL, Bucket: "bucket"}, nil, Credentials{AccessKeyID: "a", SecretAccessKey: "b"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	object, _, err := store.Get(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	if content, err := io.ReadAll(object); !HasReason(err, ReasonUnreachable) || string(content) != "short" {
		t.Errorf("got %q, %v", content, err)
	}
}
