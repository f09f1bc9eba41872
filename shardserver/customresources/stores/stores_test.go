package stores

import (
	"strings"
	"testing"
)

// That the stock handler is built as expected is shown by package customresources, which serves kinds that need it.
func TestAHandlerOfAnotherMakeIsRefused(t *testing.T) {
	for name, handler := range map[string]any{
		"no pointer":        3,
		"a pointer to none": new(int),
		"another struct":    &struct{ storages map[string]string }{},
		"another field":     &struct{ customStorage int }{},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Of(handler, "uid"); err == nil || !strings.Contains(err.Error(), "not made as expected") {
				t.Errorf("got %v", err)
			}
		})
	}
}
