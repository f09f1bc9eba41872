package join

import (
	"errors"
	"testing"
)

func TestHealthy(t *testing.T) {
	unavailable, foreign := errors.New("root is unavailable"), &ConflictError{Conflicts: []Conflict{{Export: "x"}}}
	for name, tc := range map[string]struct {
		required bool
		results  []error // of successive registrations
		remote   error   // of the identities that root published
		healthy  bool
		foreign  bool
	}{
		"new shard, not registered":                     {required: true},
		"new shard, root unavailable":                   {required: true, results: []error{unavailable}},
		"new shard, registered after a retry":           {required: true, results: []error{unavailable, nil}, healthy: true},
		"registered, then root unavailable":             {required: true, results: []error{nil, unavailable}, healthy: true},
		"existing shard, root unavailable":              {results: []error{unavailable}, healthy: true},
		"root of another installation":                  {results: []error{foreign}, foreign: true},
		"registered, then root of another installation": {results: []error{nil, foreign}, foreign: true},
		"conflicting published identities":              {results: []error{nil}, remote: foreign, foreign: true},
		"registered after root of another installation": {results: []error{foreign, nil}, healthy: true},
		"unavailable root is not foreign":               {results: []error{nil, unavailable}, healthy: true},
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
