package binding

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestWarnings(t *testing.T) {
	const exported = "status: {exportPermissionClaims: [{group: apps, resource: deployments, identityHash: abc, verbs: [list, get]}]}\n"
	for name, tc := range map[string]struct {
		binding string
		want    []string
	}{
		"no warning for an accepted claim with the same verbs": {
			exported + "spec: {permissionClaims: [{group: apps, resource: deployments, identityHash: abc, verbs: [get, list], state: Accepted}]}", nil,
		},
		"no warning for a rejected claim": {
			exported + "spec: {permissionClaims: [{group: apps, resource: deployments, identityHash: abc, verbs: [get, list], state: Rejected}]}", nil,
		},
		"no warning for a claim that is not exported any more": {
			"spec: {permissionClaims: [{resource: secrets, verbs: ['*'], state: Accepted}]}", nil,
		},
		"warning for a claim without a state": {
			exported + "spec: {permissionClaims: [{group: apps, resource: deployments, identityHash: abc, verbs: [get, list]}]}",
			[]string{"Warning: claim for deployments.apps specified on APIBinding b but not accepted or rejected."},
		},
		"warning for other verbs": {
			exported + "spec: {permissionClaims: [{group: apps, resource: deployments, identityHash: abc, verbs: ['*'], state: Accepted}]}",
			[]string{"Warning: allowed verbs (*) on claim for deployments.apps on APIBinding b do not match expected verbs (get,list)."},
		},
		"warnings for a claim with another identity": {
			exported + "spec: {permissionClaims: [{group: apps, resource: deployments, identityHash: other, verbs: [get, list], state: Accepted}]}",
			[]string{
				"Warning: claim for deployments.apps exported but not specified on APIBinding b",
				"Add this claim to the APIBinding's spec.permissionClaims, accepted or rejected.",
				"Warning: claim for deployments.apps specified on APIBinding b but not accepted or rejected.",
				"Warning: allowed verbs () on claim for deployments.apps on APIBinding b do not match expected verbs (get,list).",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var object unstructured.Unstructured
			if err := yaml.Unmarshal([]byte("metadata: {name: b}\n"+tc.binding), &object.Object); err != nil {
				t.Fatal(err)
			}
			got, err := Warnings(&object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
