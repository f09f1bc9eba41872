package limits

import (
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/rbac"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"

	"github.com/atoll-dev/atoll/shardserver/admission/admissiontest"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

func TestPublishedSizeLimit(t *testing.T) {
	role := func(names int) *rbac.ClusterRole {
		rule := rbac.PolicyRule{Verbs: []string{"bind"}, APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports"}}
		rule.ResourceNames = slices.Repeat([]string{"a"}, names) // three bytes each when stored, four when published
		return &rbac.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Rules: []rbac.PolicyRule{rule}}
	}
	const fits, nearLimit, tooMany = 1000, 320_000, 400_000
	for name, tc := range map[string]struct {
		operation admission.Operation
		old, now  int
		sub       string
		refused   bool
	}{
		"role below the limit":                {operation: admission.Create, now: fits},
		"new role above the limit":            {operation: admission.Create, now: tooMany, refused: true},
		"role that grows above the limit":     {operation: admission.Update, old: fits, now: tooMany, refused: true},
		"role above the limit that shrinks":   {operation: admission.Update, old: tooMany + 1, now: tooMany},
		"status of an object near the limit":  {operation: admission.Update, old: nearLimit, now: nearLimit + 20_000, sub: "status"},
		"status above the limit of both":      {operation: admission.Update, old: fits, now: tooMany, sub: "status", refused: true},
		"status above the limit that shrinks": {operation: admission.Update, old: tooMany + 1, now: tooMany, sub: "status"},
	} {
		t.Run(name, func(t *testing.T) {
			q := admissiontest.Request{Cluster: "one", Resource: rbac.Resource("clusterroles"), Name: "large", Operation: tc.operation, Subresource: tc.sub, Object: role(tc.now)}
			if tc.operation == admission.Update {
				q.Old = role(tc.old)
			}
			if err := admissiontest.AdmitAndValidate(t, NewPublishedSize(rules.Config{}), q); apierrors.IsRequestEntityTooLargeError(err) != tc.refused || (err != nil) != tc.refused {
				t.Errorf("got %v, want refused %t", err, tc.refused)
			}
		})
	}
}
