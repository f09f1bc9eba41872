package instances

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"

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

// view is what a shard answers to lists of bindings.
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
		"one server serves only others":                {[]view{{ofTenant: notFound, others: 1}}, true},
		"one server serves others, another one nobody": {[]view{{ofTenant: forbidden}, {ofTenant: notFound, others: 1}}, true},
		"no server":                                      {nil, false},
		"the servers serve nobody":                       {[]view{{ofTenant: notFound}, {ofTenant: forbidden}}, false},
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
			if got := isGone(t.Context(), logicalcluster.MustParseName("tenant"), views); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
