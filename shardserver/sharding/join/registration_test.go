package join

import (
	"errors"
	"testing"
)

func TestWhenAShardIsHealthy(t *testing.T) {
	away, foreign := errors.New("root is away"), &ConflictError{Conflicts: []Conflict{{Export: "x"}}}
	for name, tc := range map[string]struct {
		required bool
		said     []error // of registration, one after the other
		heard    error   // of what root has published
		healthy  bool
		foreign  bool
	}{
		"a new shard is not before it is registered":   {required: true},
		"nor while root is away":                       {required: true, said: []error{away}},
		"it is once it is registered":                  {required: true, said: []error{away, nil}, healthy: true},
		"and when root goes away later":                {required: true, said: []error{nil, away}, healthy: true},
		"one that was there before is without root":    {said: []error{away}, healthy: true},
		"it is not at the root of another":             {said: []error{foreign}, foreign: true},
		"even if it was registered before":             {said: []error{nil, foreign}, foreign: true},
		"nor when another root has published":          {said: []error{nil}, heard: foreign, foreign: true},
		"it is again when the right root is back":      {said: []error{foreign, nil}, healthy: true},
		"a root that goes away was not foreign for it": {said: []error{nil, away}, healthy: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Registration{Required: tc.required}
			for _, err := range tc.said {
				r.note(err)
			}
			r.Published(tc.heard)
			if err := r.Healthy(); (err == nil) != tc.healthy {
				t.Errorf("healthy: %v", err)
			}
			if err := r.Foreign(); (err != nil) != tc.foreign {
				t.Errorf("foreign: %v", err)
			}
		})
	}
}
