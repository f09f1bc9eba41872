package backend

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReplayableBody(t *testing.T) {
	t.Run("a second reader replays the body from its start", func(t *testing.T) {
		body := newReplayableBody(httptest.NewRequest(http.MethodPatch, "/", iotest.OneByteReader(strings.NewReader("content"))).WithContext(t.Context()))
		if body != nil {
			t.Fatal("a body of unknown size is buffered")
		}
		body = &replayableBody{source: iotest.OneByteReader(strings.NewReader("content"))}
		first := make([]byte, 3)
		if _, err := io.ReadFull(body.reader(), first); err != nil || string(first) != "con" {
			t.Fatalf("got %q, %v", first, err)
		}
		for range 2 {
			if again, err := io.ReadAll(body.reader()); err != nil || string(again) != "content" {
				t.Errorf("got %q, %v", again, err)
			}
		}
	})
	t.Run("a large body is not buffered", func(t *testing.T) {
		if newReplayableBody(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", maxReplayable+1)))) != nil {
			t.Error("it is buffered")
		}
	})
	t.Run("a read error fails every attempt", func(t *testing.T) {
		broken := errors.New("broken")
		body := &replayableBody{source: io.MultiReader(strings.NewReader("con"), iotest.ErrReader(broken))}
		for range 2 {
			if got, err := io.ReadAll(body.reader()); !errors.Is(err, broken) || string(got) != "con" {
				t.Errorf("got %q, %v", got, err)
			}
		}
	})
}
