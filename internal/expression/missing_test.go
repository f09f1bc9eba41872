package expression

import (
	"errors"
	"testing"
)

func TestWhatIsMissingOfTheCounterpartMayAppear(t *testing.T) {
	self := map[string]any{"spec": map[string]any{"size": "small"}}
	other := map[string]any{"main": map[string]any{"data": map[string]any{"size": "small"}, "ports": []any{}}}
	for expression, missing := range map[string]bool{
		"other.main.data.host":             true,
		"other.main.status.host":           true,
		"other.main.ports[0]":              true,
		"other.main.data[self.spec.size]":  true,
		"other.main.data.size + 1":         false,
		"1 / int(other.main.ports.size())": false,
		"self.spec.tier":                   false,
		"[{'a': 1}].map(other, other.b)":   false,
	} {
		_, err := EvaluateCEL(expression, nil, self, other)
		if _, got := errors.AsType[*MissingError](err); err == nil || got != missing {
			t.Errorf("%s: %v, may appear: %v", expression, err, got)
		}
	}
}
