package instance

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

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
