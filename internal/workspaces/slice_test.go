package workspaces

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// Only a slice whose conditions are true lists the endpoints.
func TestEndpointURLs(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	for name, test := range map[string]struct {
		partition string
		status    map[conditionsv1alpha1.Type]corev1.ConditionStatus
		problem   string
	}{
		"valid":                                 {"", map[conditionsv1alpha1.Type]corev1.ConditionStatus{apisv1alpha1.APIExportValid: yes, apisv1alpha1.PartitionValid: yes}, ""},
		"without partition":                     {"", map[conditionsv1alpha1.Type]corev1.ConditionStatus{apisv1alpha1.APIExportValid: yes}, ""},
		"new":                                   {"", nil, "APIExportValid"},
		"export not found":                      {"", map[conditionsv1alpha1.Type]corev1.ConditionStatus{apisv1alpha1.APIExportValid: no, apisv1alpha1.PartitionValid: yes}, "APIExportValid"},
		"partition not found":                   {"p", map[conditionsv1alpha1.Type]corev1.ConditionStatus{apisv1alpha1.APIExportValid: yes, apisv1alpha1.PartitionValid: no}, "PartitionValid"},
		"a partition that nobody has looked at": {"p", map[conditionsv1alpha1.Type]corev1.ConditionStatus{apisv1alpha1.APIExportValid: yes}, "PartitionValid"},
	} {
		t.Run(name, func(t *testing.T) {
			slice := &apisv1alpha1.APIExportEndpointSlice{}
			slice.Spec.Partition = test.partition
			slice.Status.APIExportEndpoints = []apisv1alpha1.APIExportEndpoint{{URL: "https://a"}}
			for kind, status := range test.status {
				slice.Status.Conditions = append(slice.Status.Conditions, conditionsv1alpha1.Condition{Type: kind, Status: status})
			}
			urls, err := EndpointURLs(slice)
			if test.problem == "" && (err != nil || len(urls) != 1) {
				t.Errorf("got %v, %v", urls, err)
			}
			if test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)) {
				t.Errorf("got %v, %v", urls, err)
			}
		})
	}
}
