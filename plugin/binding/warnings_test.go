package binding

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestWarnings(t *testing.T) {
	const exported = "status: {exportPermissionClaims: [{group: apps, resource: deployments, identityHash: abc, verbs: [list, get]}]}\n"
	const accept = "kubectl kcp claims accept b --resource deployments.apps -w :root:org"
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
		"no warning for a rejected claim with other verbs": {
			exported + "spec: {permissionClaims: [{group: apps, resource: deployments, identityHash: abc, verbs: ['*'], state: Rejected}]}", nil,
		},
		"no warning for a claim that is not exported any more": {
			"spec: {permissionClaims: [{resource: secrets, verbs: ['*'], state: Accepted}]}", nil,
		},
		"warning for a claim without a state": {
			exported + "spec: {permissionClaims: [{group: apps, resource: deployments, identityHash: abc, verbs: [get, list]}]}",
			[]string{"Warning: claim for deployments.apps specified on APIBinding b but not accepted or rejected. Accept it: " + accept},
		},
		"one warning for a claim without state and verbs": {
			exported + "spec: {permissionClaims: [{group: apps, resource: deployments, identityHash: abc}]}",
			[]string{"Warning: claim for deployments.apps specified on APIBinding b but not accepted or rejected. Accept it: " + accept},
		},
		"warning for fewer verbs": {
			exported + "spec: {permissionClaims: [{group: apps, resource: deployments, identityHash: abc, verbs: [get], state: Accepted}]}",
			[]string{"Warning: allowed verbs (get) on claim for deployments.apps on APIBinding b do not match expected verbs (get,list). Change the verbs in its spec.permissionClaims."},
		},
		"warning for other verbs": {
			exported + "spec: {permissionClaims: [{group: apps, resource: deployments, identityHash: abc, verbs: ['*'], state: Accepted}]}",
			[]string{"Warning: allowed verbs (*) on claim for deployments.apps on APIBinding b do not match expected verbs (get,list). Accept them: " + accept},
		},
		"one warning for a claim on a core resource": {
			"status: {exportPermissionClaims: [{resource: secrets, verbs: [get]}]}",
			[]string{"Warning: claim for secrets exported but not specified on APIBinding b. Accept it: kubectl kcp claims accept b --resource secrets.core -w :root:org"},
		},
		"one warning for a claim with another identity": {
			exported + "spec: {permissionClaims: [{group: apps, resource: deployments, identityHash: other, verbs: [get, list], state: Accepted}]}",
			[]string{"Warning: claim for deployments.apps exported but not specified on APIBinding b. Accept it: " + accept},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var object unstructured.Unstructured
			if err := yaml.Unmarshal([]byte("metadata: {name: b}\n"+tc.binding), &object.Object); err != nil {
				t.Fatal(err)
			}
			got, err := Warnings(&object, " -w :root:org")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
