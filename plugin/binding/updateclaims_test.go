package binding

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// bindingYAML is a binding that has answered one of three claims.
const bindingYAML = `
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: cowboys}
spec:
  permissionClaims:
  - {group: "", resource: configmaps, verbs: [get], selector: {matchLabels: {a: b}}, state: Accepted}
status:
  exportPermissionClaims:
  - {group: "", resource: configmaps, verbs: [get]}
  - {group: wildwest.dev, resource: horses, identityHash: abc, verbs: [get, list], defaultSelector: {matchLabels: {tame: "yes"}}}
  - {group: wildwest.dev, resource: saloons, identityHash: def, verbs: ['*']}
`

func parseYAML(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestClaimOptionsApply(t *testing.T) {
	const (
		configmaps = `{group: "", resource: configmaps, verbs: [get], selector: {matchLabels: {a: b}}, state: %}`
		horses     = `{group: wildwest.dev, resource: horses, identityHash: abc, verbs: [get, list], selector: {matchLabels: {tame: "yes"}}, state: %}`
		saloons    = `{group: wildwest.dev, resource: saloons, identityHash: def, verbs: ['*'], selector: {matchAll: true}, state: %}`
	)
	for name, tc := range map[string]struct {
		given claimOptions
		want  []string // claims, with their states in states
		state []string
		line  string
		err   string
	}{
		"a claim with an answer gets another, and keeps the rest": {
			given: claimOptions{resource: "configmaps.core", state: rejected}, want: []string{configmaps}, state: []string{rejected},
			line: `claim "configmaps.core" on APIBinding "cowboys" is rejected`,
		},
		"a claim without an answer is added as the export proposes it": {
			given: claimOptions{resource: "horses.wildwest.dev", state: accepted}, want: []string{configmaps, horses}, state: []string{accepted, accepted},
			line: `claim "horses.wildwest.dev" on APIBinding "cowboys" is accepted`,
		},
		"an identity is enough": {
			given: claimOptions{identityHash: "def", state: rejected}, want: []string{configmaps, saloons}, state: []string{accepted, rejected},
			line: `claim with identity hash "def" on APIBinding "cowboys" is rejected`,
		},
		"without either all are meant": {
			given: claimOptions{state: rejected}, want: []string{configmaps, horses, saloons}, state: []string{rejected, rejected, rejected},
			line: `on APIBinding "cowboys" is rejected`,
		},
		"an unknown claim is an error with the existing claims": {
			given: claimOptions{resource: "secrets", state: accepted},
			err:   `APIBinding "cowboys" has no such permission claim; it has configmaps.core, horses.wildwest.dev (identity hash abc), saloons.wildwest.dev (identity hash def)`,
		},
		"both must fit": {
			given: claimOptions{resource: "horses.wildwest.dev", identityHash: "def", state: accepted},
			err:   `APIBinding "cowboys" has no such permission claim; it has configmaps.core, horses.wildwest.dev (identity hash abc), saloons.wildwest.dev (identity hash def)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.given.binding = "cowboys"
			object := parseYAML(t, bindingYAML)
			err := tc.given.apply(object)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("got %v\nwant %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var want []any
			for i, one := range tc.want {
				want = append(want, parseYAML(t, "claim: "+string(bytes.ReplaceAll([]byte(one), []byte("%"), []byte(tc.state[i])))).Object["claim"])
			}
			got, _, _ := unstructured.NestedSlice(object.Object, "spec", "permissionClaims")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := tc.given.successMessage(); got != tc.line {
				t.Errorf("got message %q", got)
			}
		})
	}
}

func TestAcceptReplacesWildcardVerb(t *testing.T) {
	for state, want := range map[string]string{accepted: "get,list", rejected: "*"} {
		object := parseYAML(t, `
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
spec: {permissionClaims: [{resource: configmaps, verbs: ['*'], selector: {matchAll: true}, state: Accepted}]}
status: {exportPermissionClaims: [{resource: configmaps, verbs: [get, list]}]}`)
		if err := (claimOptions{state: state}).apply(object); err != nil {
			t.Fatal(err)
		}
		after, err := decodeClaims(object)
		if err != nil {
			t.Fatal(err)
		}
		if got := after.Spec.PermissionClaims[0]; got.verbs() != want || got.State != state {
			t.Errorf("%s: it has verbs %q in state %s, want %q", state, got.verbs(), got.State, want)
		}
	}
}

func TestApplyWithoutClaims(t *testing.T) {
	err := claimOptions{binding: "cowboys", state: accepted}.apply(parseYAML(t, "{apiVersion: apis.kcp.io/v1alpha2, kind: APIBinding, metadata: {name: cowboys}}"))
	if want := `APIBinding "cowboys" has no permission claims`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestRenderClaims(t *testing.T) {
	other := parseYAML(t, "{metadata: {name: o}, spec: {permissionClaims: [{group: apps, resource: deployments, verbs: [list, get], state: Rejected}]}}")
	for version, want := range map[string]string{
		"v1alpha2": "APIBINDING   GROUP-RESOURCE     VERBS      STATUS\n" +
			"cowboys      configmaps         get        Accepted\n" +
			"o            deployments.apps   get,list   Rejected\n",
		"v1alpha1": "APIBINDING   GROUP-RESOURCE     STATUS\n" +
			"cowboys      configmaps         Accepted\n" +
			"o            deployments.apps   Rejected\n",
	} {
		var out bytes.Buffer
		if err := renderClaims([]unstructured.Unstructured{*parseYAML(t, bindingYAML), *other}, version, &out); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
}

func TestNotBoundError(t *testing.T) {
	got := notBoundError(parseYAML(t, `
status:
  phase: Binding
  conditions:
  - {type: Ready, status: "False", reason: InternalError, message: the sum}
  - {type: APIExportValid, status: "True"}
  - {type: InitialBindingCompleted, status: "False", reason: NamingConflicts, message: cowboys is taken}`))
	if want := "phase Binding, InitialBindingCompleted: NamingConflicts: cowboys is taken"; got.Error() != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
