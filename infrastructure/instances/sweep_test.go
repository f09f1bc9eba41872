package instances

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// TestCandidatesHaveTurns checks that a tenant that is gone becomes a candidate soon, even if many tenants are bound and have no instances.
func TestCandidatesHaveTurns(t *testing.T) {
	t.Parallel()
	const rounds = 3
	var tenants []logicalcluster.Name
	for i := range rounds * maxCandidates {
		tenants = append(tenants, logicalcluster.MustParseName(fmt.Sprintf("t%04d", i)))
	}
	present := sets.New(tenants[0].String())
	var before candidacy
	asked := sets.New[logicalcluster.Name]()
	for range 2 * rounds {
		now := missing(tenants, present, before)
		if len(now.missed) > maxCandidates || now.missed.Has(tenants[0]) {
			t.Fatalf("%d are missed, the one that is there: %v", len(now.missed), now.missed.Has(tenants[0]))
		}
		due := now.missed.Intersection(before.missed)
		if before.missed == nil && len(due) > 0 {
			t.Errorf("after one miss, %d are due", len(due))
		}
		asked = asked.Union(due)
		before = candidacy{missed: now.missed.Difference(due), after: now.after} // all checked tenants are bound
	}
	if len(asked) != len(tenants)-1 {
		t.Errorf("%d of %d were asked about", len(asked), len(tenants)-1)
	}
}

// TestCandidatesStay checks that candidates stay until servers have answered.
func TestCandidatesStay(t *testing.T) {
	t.Parallel()
	var tenants []logicalcluster.Name
	for i := range 2 * maxCandidates {
		tenants = append(tenants, logicalcluster.MustParseName(fmt.Sprintf("t%04d", i)))
	}
	first := missing(tenants, nil, candidacy{})
	if second := missing(tenants, nil, first); len(first.missed) != maxCandidates || !second.missed.Equal(first.missed) {
		t.Errorf("%d were missed, then %d, of which %d are others", len(first.missed), len(second.missed), len(second.missed.Difference(first.missed)))
	}
}

// TestBackendsWithoutKindsAreSwept checks that a backend without kinds has no instances, unless the endpoints are unknown.
func TestBackendsWithoutKindsAreSwept(t *testing.T) {
	t.Parallel()
	for _, complete := range []bool{true, false} {
		if present, known := (&runner{complete: complete}).present(); len(present) > 0 || known != complete {
			t.Errorf("endpoints are known: %v, instances: %v, of %v", complete, known, present)
		}
	}
}

// view is a client with configurable answers of a shard to lists of bindings.
type view struct {
	dynamic.ResourceInterface
	ofTenant, ofAll error
	others          int
}

func (v *view) List(ctx context.Context, _ metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if _, ok := logicalcluster.From(ctx); ok {
		return &unstructured.UnstructuredList{}, v.ofTenant
	}
	return &unstructured.UnstructuredList{Items: make([]unstructured.Unstructured, v.others)}, v.ofAll
}

func TestAWorkspaceIsGoneOnEvidence(t *testing.T) {
	t.Parallel()
	notFound, forbidden := apierrors.NewNotFound(bindings.GroupResource(), ""), apierrors.NewForbidden(bindings.GroupResource(), "", nil)
	unreachable := errors.New("connection refused")
	for name, tc := range map[string]struct {
		views []view
		want  bool
	}{
		"one server serves only others":              {[]view{{ofTenant: notFound, others: 1}}, true},
		"one server serves others, another one none": {[]view{{ofTenant: forbidden}, {ofTenant: notFound, others: 1}}, true},
		"no server":                                      {nil, false},
		"the servers serve no workspace":                 {[]view{{ofTenant: notFound}, {ofTenant: forbidden}}, false},
		"the export is unbound":                          {[]view{{ofTenant: notFound}, {ofTenant: forbidden}}, true},
		"unbound, and a server does not answer":          {[]view{{ofTenant: notFound}, {ofTenant: unreachable}}, false},
		"unbound, and a server refuses everything":       {[]view{{ofTenant: notFound}, {ofTenant: forbidden, ofAll: forbidden}}, false},
		"a server serves the workspace":                  {[]view{{ofTenant: notFound, others: 1}, {others: 1}}, false},
		"a server does not answer":                       {[]view{{ofTenant: notFound, others: 1}, {ofTenant: unreachable, others: 1}}, false},
		"a server refuses everything":                    {[]view{{ofTenant: notFound, others: 1}, {ofTenant: forbidden, ofAll: forbidden}}, false},
		"a server has just been lost after one question": {[]view{{ofTenant: notFound, ofAll: unreachable}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var views []dynamic.ResourceInterface
			for i := range tc.views {
				views = append(views, &tc.views[i])
			}
			isGone, isBound := ask(t.Context(), logicalcluster.MustParseName("tenant"), views, strings.Contains(name, "unbound"))
			if served := name == "a server serves the workspace"; isGone != tc.want || isBound != served {
				t.Errorf("it is gone: %v, bound: %v", isGone, isBound)
			}
		})
	}
}
