package defaultbindings

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

const maintain, once = tenancyv1alpha1.APIBindingLifecycleModeMaintain, tenancyv1alpha1.APIBindingLifecycleModeInitializeOnly

// newType returns a type of a logical cluster that binds "<path>:<export>" or "<export>" by default.
func newType(cluster string, mode tenancyv1alpha1.APIBindingLifecycleMode, exports ...string) workspacetype.Resolved {
	resolved := workspacetype.Resolved{WorkspaceType: &tenancyv1alpha1.WorkspaceType{}, Cluster: logicalcluster.MustParseName(cluster)}
	resolved.Spec.DefaultAPIBindingLifecycle = ptr.To(mode)
	for _, export := range exports {
		path, name, ok := strings.Cut(export, "/")
		if !ok {
			path, name = "", export
		}
		resolved.Spec.DefaultAPIBindings = append(resolved.Spec.DefaultAPIBindings, tenancyv1alpha1.APIExportReference{Path: path, Export: name})
	}
	return resolved
}

func TestDefaultBindings(t *testing.T) {
	for name, tc := range map[string]struct {
		aliases []workspacetype.Resolved
		want    string
	}{
		"export without a path":              {[]workspacetype.Resolved{newType("abc", once, "x")}, "abc:x"},
		"order of the aliases":               {[]workspacetype.Resolved{newType("abc", once, "root/y", "root/x"), newType("root", once, "z")}, "root:y root:x root:z"},
		"same export of two aliases":         {[]workspacetype.Resolved{newType("root", once, "x"), newType("abc", once, "root/x")}, "root:x"},
		"path and cluster name":              {[]workspacetype.Resolved{newType("abc", once, "root:org/x"), newType("abc", once, "x")}, "root:org:x abc:x"},
		"lifecycle per alias":                {[]workspacetype.Resolved{newType("abc", once, "x"), newType("abc", maintain, "y")}, "abc:x abc:y!"},
		"one of two aliases maintains":       {[]workspacetype.Resolved{newType("abc", maintain, "x"), newType("abc", once, "x")}, "abc:x!"},
		"maintaining alias without bindings": {[]workspacetype.Resolved{newType("abc", maintain), newType("abc", once, "x")}, "abc:x"},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := defaultBindings(logicalcluster.MustParseName("consumer"), tc.aliases)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range all {
				text := w.reference.String()
				if w.maintained {
					text += "!"
				}
				if !strings.HasPrefix(w.name, w.reference.Name+"-") {
					t.Errorf("the binding of %s has the name %s", text, w.name)
				}
				got = append(got, text)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %v, want %s", got, tc.want)
			}
		})
	}
}

func TestSpecOf(t *testing.T) {
	reference := apiindex.Reference{Path: logicalcluster.Root.Path(), Name: "x"}
	chosen := &apisv1alpha2.PermissionClaimSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
	export := &apisv1alpha2.APIExport{Spec: apisv1alpha2.APIExportSpec{PermissionClaims: []apisv1alpha2.PermissionClaim{
		{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"get"}},
		{GroupResource: apisv1alpha2.GroupResource{Resource: "secrets"}, Verbs: []string{"*"}, DefaultSelector: chosen},
	}}}
	for name, keep := range map[string]bool{"initialized": true, "maintained": false} {
		t.Run(name, func(t *testing.T) {
			spec := newSpec(reference, export, keep)
			if ref := spec.Reference.Export; ref.Path != "root" || ref.Name != "x" {
				t.Errorf("references %v", ref)
			}
			all, some := spec.PermissionClaims[0], spec.PermissionClaims[1]
			if all.State != apisv1alpha2.ClaimAccepted || some.State != apisv1alpha2.ClaimAccepted || all.Verbs[0] != "get" {
				t.Errorf("accepts %+v", spec.PermissionClaims)
			}
			if !all.Selector.MatchAll || some.Selector.MatchAll || some.Selector.MatchLabels["a"] != "b" {
				t.Errorf("selects %v and %v", all.Selector, some.Selector)
			}
			if (some.DefaultSelector != nil) != keep {
				t.Errorf("the default selector is %v", some.DefaultSelector)
			}
		})
	}
}

func TestIsCompleteIn(t *testing.T) {
	w := defaultBinding{name: "x-abcde", reference: apiindex.Reference{Path: logicalcluster.Root.Path(), Name: "x"}}
	binding := func(name, path, export, at string, conditions ...conditionsv1alpha1.Type) *apisv1alpha2.APIBinding {
		b := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
		b.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: path, Name: export}
		b.Status.APIExportClusterName = at
		for _, condition := range conditions {
			conditionsv1alpha1.MarkTrue(b, condition)
		}
		return b
	}
	accepting := func(b *apisv1alpha2.APIBinding, state apisv1alpha2.AcceptablePermissionClaimState) *apisv1alpha2.APIBinding {
		b.Spec.PermissionClaims = []apisv1alpha2.AcceptablePermissionClaim{{State: state}}
		return b
	}
	const initial, applied = apisv1alpha2.InitialBindingCompleted, apisv1alpha2.PermissionClaimsApplied
	for name, tc := range map[string]struct {
		bindings []*apisv1alpha2.APIBinding
		want     bool
	}{
		"none":                                 {nil, false},
		"bound":                                {[]*apisv1alpha2.APIBinding{binding("x-abcde", "root", "x", "root", initial)}, true},
		"not bound":                            {[]*apisv1alpha2.APIBinding{binding("x-abcde", "root", "x", "root")}, false},
		"claims not applied":                   {[]*apisv1alpha2.APIBinding{accepting(binding("x-abcde", "root", "x", "root", initial), apisv1alpha2.ClaimAccepted)}, false},
		"claims applied":                       {[]*apisv1alpha2.APIBinding{accepting(binding("x-abcde", "root", "x", "root", initial, applied), apisv1alpha2.ClaimAccepted)}, true},
		"claims rejected":                      {[]*apisv1alpha2.APIBinding{accepting(binding("x-abcde", "root", "x", "root", initial), apisv1alpha2.ClaimRejected)}, true},
		"binding of a user to the same export": {[]*apisv1alpha2.APIBinding{binding("mine", "root", "x", "root", initial)}, true},
		"binding of a user to another export":  {[]*apisv1alpha2.APIBinding{binding("mine", "root", "y", "root", initial)}, false},
		"another path of the same cluster":     {[]*apisv1alpha2.APIBinding{binding("x-abcde", "root", "x", "abc"), binding("other", "abc", "x", "abc", initial)}, true},
		"path of another cluster":              {[]*apisv1alpha2.APIBinding{binding("x-abcde", "root", "x", "abc"), binding("other", "abd", "x", "abd", initial)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := w.isCompleteIn(tc.bindings); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
