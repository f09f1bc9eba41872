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

func TestBodiesThatCanBeSentAgain(t *testing.T) {
	t.Run("what has come is there for the next attempt, and the rest follows", func(t *testing.T) {
		body := newRewindable(httptest.NewRequest(http.MethodPatch, "/", iotest.OneByteReader(strings.NewReader("content"))).WithContext(t.Context()))
		if body != nil {
			t.Fatal("one of unknown size is remembered")
		}
		body = &rewindable{source: iotest.OneByteReader(strings.NewReader("content"))}
		first := make([]byte, 3)
		if _, err := io.ReadFull(body.attempt(), first); err != nil || string(first) != "con" {
			t.Fatalf("got %q, %v", first, err)
		}
		for range 2 {
			if again, err := io.ReadAll(body.attempt()); err != nil || string(again) != "content" {
				t.Errorf("got %q, %v", again, err)
			}
		}
	})
	t.Run("a large one goes on as it comes", func(t *testing.T) {
		if newRewindable(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", maxRewindable+1)))) != nil {
			t.Error("it is remembered")
		}
	})
	t.Run("one that breaks off fails in every attempt", func(t *testing.T) {
		broken := errors.New("broken")
		body := &rewindable{source: io.MultiReader(strings.NewReader("con"), iotest.ErrReader(broken))}
		for range 2 {
			if got, err := io.ReadAll(body.attempt()); !errors.Is(err, broken) || string(got) != "con" {
				t.Errorf("got %q, %v", got, err)
			}
		}
	})
}
