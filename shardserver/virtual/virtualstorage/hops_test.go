package virtualstorage

import (
	"net/http"
	"testing"
)

func TestHopLimit(t *testing.T) {
	for text, want := range map[string]bool{"": false, "0": false, "3": false, "4": true, "100": true, "-1": true, "many": true, "3 ": true} {
		req := &http.Request{Header: http.Header{}}
		if text != "" {
			req.Header.Set(hopsHeader, text)
		}
		if got := hasTooManyHops(req); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}
