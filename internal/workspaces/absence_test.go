package workspaces

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// bindingsClient is a client with configurable answers of a shard to lists of bindings.
type bindingsClient struct {
	dynamic.ResourceInterface
	ofTenant, ofAll error
	others          int
}

func (c *bindingsClient) List(ctx context.Context, _ metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if _, ok := logicalcluster.From(ctx); ok {
		return &unstructured.UnstructuredList{}, c.ofTenant
	}
	return &unstructured.UnstructuredList{Items: make([]unstructured.Unstructured, c.others)}, c.ofAll
}

func TestAWorkspaceIsGoneOnEvidence(t *testing.T) {
	t.Parallel()
	bindings := schema.GroupResource{Group: "apis.kcp.io", Resource: "apibindings"}
	notFound, forbidden := apierrors.NewNotFound(bindings, ""), apierrors.NewForbidden(bindings, "", nil)
	unreachable := errors.New("connection refused")
	for name, tc := range map[string]struct {
		views []bindingsClient
		want  bool
	}{
		"one server serves only others":              {[]bindingsClient{{ofTenant: notFound, others: 1}}, true},
		"one server serves others, another one none": {[]bindingsClient{{ofTenant: forbidden}, {ofTenant: notFound, others: 1}}, true},
		"no server":                                      {nil, false},
		"the servers serve no workspace":                 {[]bindingsClient{{ofTenant: notFound}, {ofTenant: forbidden}}, false},
		"the export is unbound":                          {[]bindingsClient{{ofTenant: notFound}, {ofTenant: forbidden}}, true},
		"unbound, and a server does not answer":          {[]bindingsClient{{ofTenant: notFound}, {ofTenant: unreachable}}, false},
		"unbound, and a server refuses everything":       {[]bindingsClient{{ofTenant: notFound}, {ofTenant: forbidden, ofAll: forbidden}}, false},
		"a server serves the workspace":                  {[]bindingsClient{{ofTenant: notFound, others: 1}, {others: 1}}, false},
		"a server does not answer":                       {[]bindingsClient{{ofTenant: notFound, others: 1}, {ofTenant: unreachable, others: 1}}, false},
		"a server refuses everything":                    {[]bindingsClient{{ofTenant: notFound, others: 1}, {ofTenant: forbidden, ofAll: forbidden}}, false},
		"a server has just been lost after one question": {[]bindingsClient{{ofTenant: notFound, ofAll: unreachable}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var views []dynamic.ResourceInterface
			for i := range tc.views {
				views = append(views, &tc.views[i])
			}
			isGone, isBound := IsGone(t.Context(), logicalcluster.MustParseName("tenant"), views, strings.Contains(name, "unbound"))
			if served := name == "a server serves the workspace"; isGone != tc.want || isBound != served {
				t.Errorf("it is gone: %v, bound: %v", isGone, isBound)
			}
		})
	}
}
