package join

import (
	"errors"
	"testing"
)

func TestHealthy(t *testing.T) {
	unavailable, foreign := errors.New("root is away"), &ConflictError{Conflicts: []Conflict{{Export: "x"}}}
	for name, tc := range map[string]struct {
		required bool
		results  []error // of registration, one after the other
		remote   error   // of what root has published
		healthy  bool
		foreign  bool
	}{
		"a new shard is not before it is registered":   {required: true},
		"nor while root is away":                       {required: true, results: []error{unavailable}},
		"it is once it is registered":                  {required: true, results: []error{unavailable, nil}, healthy: true},
		"and when root goes away later":                {required: true, results: []error{nil, unavailable}, healthy: true},
		"one that was there before is without root":    {results: []error{unavailable}, healthy: true},
		"it is not at the root of another":             {results: []error{foreign}, foreign: true},
		"even if it was registered before":             {results: []error{nil, foreign}, foreign: true},
		"nor when another root has published":          {results: []error{nil}, remote: foreign, foreign: true},
		"it is again when the right root is back":      {results: []error{foreign, nil}, healthy: true},
		"a root that goes away was not foreign for it": {results: []error{nil, unavailable}, healthy: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Registration{Required: tc.required}
			for _, err := range tc.results {
				r.setResult(err)
			}
			r.SetPublishedError(tc.remote)
			if err := r.Healthy(); (err == nil) != tc.healthy {
				t.Errorf("healthy: %v", err)
			}
			if err := r.ForeignRootError(); (err != nil) != tc.foreign {
				t.Errorf("foreign: %v", err)
			}
		})
	}
}
