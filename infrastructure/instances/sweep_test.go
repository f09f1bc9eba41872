package instances

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestCandidatesAreBounded(t *testing.T) {
	var tenants []logicalcluster.Name
	for i := range 2 * maxCandidates {
		tenant, err := logicalcluster.ParseName(fmt.Sprintf("t%04d", i))
		if err != nil {
			t.Fatal(err)
		}
		tenants = append(tenants, tenant)
	}
	last := tenants[len(tenants)-maxPurges-1:]
	missed := missing(tenants, sets.New(tenants[0].String()), sets.New(last...))
	if len(missed) != maxCandidates || missed.Has(tenants[0]) || !missed.HasAll(last...) {
		t.Errorf("%d are missed, the one that is there: %v, those that were missed before: %v", len(missed), missed.Has(tenants[0]), missed.HasAll(last...))
	}
	if got := due(missed, sets.New(last...)); len(got) != maxPurges || slices.ContainsFunc(got, func(tenant logicalcluster.Name) bool { return !slices.Contains(last, tenant) }) {
		t.Errorf("%d are due: %v", len(got), got)
	}
	if got := due(missed, nil); len(got) != 0 {
		t.Errorf("after one miss, %v are due", got)
	}
}
