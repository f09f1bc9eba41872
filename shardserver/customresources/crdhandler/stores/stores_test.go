package stores

import (
	"strings"
	"testing"
)

// The tests of package crdhandler cover the upstream handler itself: they serve kinds that need these stores.
func TestUnexpectedHandlerFails(t *testing.T) {
	for name, handler := range map[string]any{
		"not a pointer":             3,
		"a pointer to another type": new(int),
		"another struct":            &struct{ storages map[string]string }{},
		"another field":             &struct{ customStorage int }{},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Get(handler, "uid"); err == nil || !strings.Contains(err.Error(), "unexpected internals") {
				t.Errorf("got %v", err)
			}
		})
	}
}
