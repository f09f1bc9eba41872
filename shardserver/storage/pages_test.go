package storage

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// limitRecorder records the limit of a list.
type limitRecorder struct {
	storage.Interface
	limit int64
}

func (l *limitRecorder) GetList(_ context.Context, _ string, opts storage.ListOptions, _ runtime.Object) error {
	l.limit = opts.Predicate.Limit
	return nil
}

func TestSmallPages(t *testing.T) {
	const maxPageSize = 500
	for name, tc := range map[string]struct {
		recursive bool
		limit     int64
		want      int64
	}{
		"a large page is reduced":                 {true, 10000, maxPageSize},
		"a small page is unchanged":               {true, 20, 20},
		"a list without a limit is unchanged":     {true, 0, 0},
		"a get is unchanged":                      {false, 10000, 10000},
		"a page of the maximum size is unchanged": {true, maxPageSize, maxPageSize},
	} {
		t.Run(name, func(t *testing.T) {
			inner := &limitRecorder{}
			opts := storage.ListOptions{Recursive: tc.recursive, Predicate: storage.SelectionPredicate{Limit: tc.limit}}
			if err := (smallPages{inner, maxPageSize}).GetList(t.Context(), "/", opts, nil); err != nil || inner.limit != tc.want {
				t.Errorf("limit is %d (%v), want %d", inner.limit, err, tc.want)
			}
		})
	}
}
