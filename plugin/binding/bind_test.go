package binding

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestParseExport(t *testing.T) {
	for name, tc := range map[string]struct {
		reference, path, export, err string
	}{
		"reads path and name":          {reference: "root:org:cowboys", path: "root:org", export: "cowboys"},
		"reads an absolute path":       {reference: ":root:cowboys", path: "root", export: "cowboys"},
		"reads names of exports":       {reference: "root:org:tenancy.kcp.io", path: "root:org", export: "tenancy.kcp.io"},
		"requires a path":              {reference: "cowboys", err: `"cowboys" is not a reference to an APIExport: expected <path>:<apiexport>, the full path of its workspace and its name, as in root:org:provider:cowboys`},
		"requires a path, not a colon": {reference: ":cowboys", err: `":cowboys" is not a reference to an APIExport: expected <path>:<apiexport>, the full path of its workspace and its name, as in root:org:provider:cowboys`},
		"requires a name":              {reference: "root:org:", err: `"root:org:" is not a reference to an APIExport: expected <path>:<apiexport>, the full path of its workspace and its name, as in root:org:provider:cowboys`},
		"wants a path that can exist":  {reference: "root:No:cowboys", err: `"root:No" is no workspace path in "root:No:cowboys": want <path>:<apiexport>, as in root:org:provider:cowboys`},
	} {
		t.Run(name, func(t *testing.T) {
			path, export, err := parseExport(tc.reference)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("got %v\nwant %s", err, tc.err)
				}
				return
			}
			if err != nil || path.String() != tc.path || export != tc.export {
				t.Errorf("got %s, %s, %v", path, export, err)
			}
		})
	}
}

func TestRequestValidation(t *testing.T) {
	for name, tc := range map[string]struct {
		wanted Request
		err    string
	}{
		"nothing answered":  {Request{}, ""},
		"some answered":     {Request{Accept: []string{"configmaps.core", "configmaps"}, Reject: []string{"deployments.apps"}}, ""},
		"all both ways":     {Request{AcceptAll: true, RejectAll: true}, "--accept-all-permission-claims and --reject-all-permission-claims exclude each other"},
		"all and one":       {Request{AcceptAll: true, Reject: []string{"x.y"}}, "--accept-all-permission-claims cannot be combined with --accept-permission-claim or --reject-permission-claim"},
		"none and one":      {Request{RejectAll: true, Accept: []string{"x.y"}}, "--reject-all-permission-claims cannot be combined with --accept-permission-claim or --reject-permission-claim"},
		"one both ways":     {Request{Accept: []string{"configmaps"}, Reject: []string{"configmaps.core"}}, "the permission claim configmaps.core is both accepted and rejected"},
		"no resource":       {Request{Accept: []string{".apps"}}, `invalid permission claim ".apps": want RESOURCE.GROUP, as in deployments.apps or configmaps.core`},
		"no time":           {Request{Timeout: -time.Second}, "--timeout must be positive, not -1s"},
		"a group not ended": {Request{Reject: []string{"deployments."}}, `invalid permission claim "deployments.": want RESOURCE.GROUP, as in deployments.apps or configmaps.core`},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.wanted.Timeout == 0 {
				tc.wanted.Timeout = time.Second
			}
			err := tc.wanted.validate()
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || err.Error() != tc.err) {
				t.Errorf("got %v\nwant %s", err, tc.err)
			}
		})
	}
}

func TestRequestObject(t *testing.T) {
	exported := []claim{
		{Resource: "configmaps", Verbs: []string{"get", "list"}},
		{Group: "wildwest.dev", Resource: "horses", IdentityHash: "abc", Verbs: []string{"*"}},
	}
	for name, tc := range map[string]struct {
		wanted  Request
		version string
		want    string
	}{
		"without claims": {
			Request{}, "v1alpha2", "{reference: {export: {path: 'root:org', name: cowboys}}}",
		},
		"single claims take the identity that the export names": {
			Request{Accept: []string{"horses.wildwest.dev"}, Reject: []string{"secrets.core"}}, "v1alpha2", `
reference: {export: {path: 'root:org', name: cowboys}}
permissionClaims:
- {group: wildwest.dev, resource: horses, identityHash: abc, verbs: ['*'], selector: {matchAll: true}, state: Accepted}
- {group: "", resource: secrets, verbs: ['*'], selector: {matchAll: true}, state: Rejected}`,
		},
		"all claims": {
			Request{RejectAll: true}, "v1alpha2", `
reference: {export: {path: 'root:org', name: cowboys}}
permissionClaims:
- {group: "", resource: configmaps, verbs: ['*'], selector: {matchAll: true}, state: Rejected}
- {group: wildwest.dev, resource: horses, identityHash: abc, verbs: ['*'], selector: {matchAll: true}, state: Rejected}`,
		},
		"the old version": {
			Request{AcceptAll: true}, "v1alpha1", `
reference: {export: {path: 'root:org', name: cowboys}}
permissionClaims:
- {group: "", resource: configmaps, all: true, state: Accepted}
- {group: wildwest.dev, resource: horses, identityHash: abc, all: true, state: Accepted}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.wanted.Path, tc.wanted.Export = logicalcluster.MustParsePath("root:org"), "cowboys"
			requested, err := tc.wanted.parseClaims()
			if err != nil {
				t.Fatal(err)
			}
			requested = withIdentities(requested, exported)
			if tc.wanted.AcceptAll || tc.wanted.RejectAll {
				requested = tc.wanted.claimAll(exported)
			}
			var want map[string]any
			if err := yaml.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			object := tc.wanted.object(tc.version, requested)
			if diff := cmp.Diff(want, object.Object["spec"]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if object.GetName() != "cowboys" || object.GetAPIVersion() != "apis.kcp.io/"+tc.version {
				t.Errorf("it is %s of %s", object.GetName(), object.GetAPIVersion())
			}
		})
	}
}
