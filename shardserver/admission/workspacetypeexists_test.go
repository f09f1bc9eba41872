package admission

import (
	"errors"
	"maps"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

const typeKey = corev1alpha1.LogicalClusterTypeAnnotationKey

func typeRef(path, name string) tenancyv1alpha1.WorkspaceTypeReference {
	return tenancyv1alpha1.WorkspaceTypeReference{Path: path, Name: tenancyv1alpha1.WorkspaceTypeName(name)}
}

// testWorkspaceType returns a workspace type as it is stored in the logical cluster at path.
func testWorkspaceType(path, name string, changes ...func(*tenancyv1alpha1.WorkspaceTypeSpec)) *tenancyv1alpha1.WorkspaceType {
	w := &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: toMap([]string{logicalcluster.PathAnnotationKey, path})}}
	for _, change := range changes {
		change(&w.Spec)
	}
	return w
}

func extending(refs ...tenancyv1alpha1.WorkspaceTypeReference) func(*tenancyv1alpha1.WorkspaceTypeSpec) {
	return func(s *tenancyv1alpha1.WorkspaceTypeSpec) { s.Extend.With = refs }
}

func TestWorkspaceTypeExists(t *testing.T) {
	universal := typeRef("root", "universal")
	state := newFakeShard().
		cluster("root", logicalcluster.PathAnnotationKey, "root", typeKey, "root:root").
		cluster("c1", logicalcluster.PathAnnotationKey, "root:org", typeKey, "root:organization").
		cluster("c2", logicalcluster.PathAnnotationKey, "root:untyped").
		workspace("root", "org", "c1").
		workspace("root", "untyped", "c2").
		add("root", testWorkspaceType("root", "root", extending(universal), func(s *tenancyv1alpha1.WorkspaceTypeSpec) {
			s.DefaultChildWorkspaceType = ptr.To(typeRef("root", "organization"))
			s.LimitAllowedParents = &tenancyv1alpha1.WorkspaceTypeSelector{None: ptr.To(true)}
		}), true).
		add("root", testWorkspaceType("root", "universal"), true).
		add("root", testWorkspaceType("root", "organization", extending(universal), func(s *tenancyv1alpha1.WorkspaceTypeSpec) {
			s.DefaultChildWorkspaceType = &universal
			s.LimitAllowedParents = &tenancyv1alpha1.WorkspaceTypeSelector{Types: []tenancyv1alpha1.WorkspaceTypeReference{typeRef("root", "root")}}
			s.AdditionalWorkspaceLabels = toMap([]string{"tier", "org", "mine", "type"})
		}), true).
		add("root", testWorkspaceType("root", "secret"), true).
		add("root", testWorkspaceType("root", "on-secret", extending(typeRef("root", "secret"))), true).
		add("root", testWorkspaceType("root", "ring", extending(typeRef("root", "ring"))), true).
		add("c1", testWorkspaceType("root:org", "own", extending(universal)), false).
		allow("alice use root/workspacetypes/universal", "alice use root/workspacetypes/organization", "alice use root/workspacetypes/root",
			"alice use root/workspacetypes/on-secret", "alice use root/workspacetypes/ring", "alice use c1/workspacetypes/own")
	typed := func(path, name string) func(*tenancyv1alpha1.Workspace) {
		return func(w *tenancyv1alpha1.Workspace) { w.Spec.Type = ptr.To(typeRef(path, name)) }
	}
	untyped := func(w *tenancyv1alpha1.Workspace) { w.Spec.Type = nil }

	for name, tc := range map[string]struct {
		cluster string
		by      user.Info
		choose  func(*tenancyv1alpha1.Workspace)
		labels  map[string]string
		want    string
		now     map[string]string
		wantErr string
	}{
		"default of the parent's type":                              {cluster: "root", choose: untyped, want: "root:organization", now: map[string]string{"tier": "org", "mine": "type"}},
		"labels of the user take precedence":                        {cluster: "root", choose: untyped, labels: map[string]string{"mine": "user", "a": "b"}, want: "root:organization", now: map[string]string{"tier": "org", "mine": "user", "a": "b"}},
		"path without a name":                                       {cluster: "c1", choose: typed("root", ""), want: "root:universal"},
		"name without a path":                                       {cluster: "c1", choose: typed("", "universal"), want: "root:universal"},
		"name of a type in the parent that the cache does not have": {cluster: "c1", choose: typed("", "own"), want: "root:org:own"},
		"path and name":                                             {cluster: "c1", choose: typed("root", "universal"), want: "root:universal"},
		"cluster name and name":                                     {cluster: "c1", choose: typed("c1", "own"), want: "c1:own"},
		"missing type":                                              {cluster: "root", choose: typed("", "nope"), wantErr: `workspace type "nope" not found`},
		"missing path":                                              {cluster: "root", choose: typed("root:nope", "own"), wantErr: `workspace type "root:nope:own" not found`},
		"invalid path":                                              {cluster: "root", choose: typed("Root", "own"), wantErr: "spec.type"},
		"type without permission":                                   {cluster: "root", choose: typed("root", "secret"), wantErr: `unable to use workspace type "root:secret": missing verb=use`},
		"extended type without permission":                          {cluster: "root", choose: typed("root", "on-secret"), wantErr: `unable to use workspace type "root:secret": missing verb=use`},
		"type without permission by masters":                        {cluster: "root", by: master, choose: typed("root", "on-secret"), want: "root:on-secret"},
		"a cycle":                                                   {cluster: "root", choose: typed("root", "ring"), wantErr: `"root:ring" extends itself`},
		"type that allows no parent":                                {cluster: "root", choose: typed("root", "root"), wantErr: "spec.limitAllowedParents"},
		"parent that the type does not allow":                       {cluster: "c1", choose: typed("root", "organization"), wantErr: "spec.limitAllowedParents"},
		"parent that the type does not allow by masters":            {cluster: "c1", by: master, choose: typed("root", "organization"), wantErr: "spec.limitAllowedParents"},
		"default without a type of the parent":                      {cluster: "c2", choose: untyped, wantErr: "has no annotation " + typeKey},
		"type without a type of the parent":                         {cluster: "c2", choose: typed("root", "universal"), wantErr: "has no annotation " + typeKey},
		"type without a logical cluster":                            {cluster: "gone", choose: typed("", "universal"), wantErr: "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			w := testWorkspace(tc.choose)
			w.Labels = tc.labels
			if tc.by == nil {
				tc.by = alice
			}
			q := testRequest{cluster: tc.cluster, resource: workspaces, name: "team", user: tc.by, operation: admission.Create, obj: w}
			wantForbidden(t, admitAndValidate(t, newWorkspaceTypeExists(state.config()), q), tc.wantErr)
			if tc.wantErr != "" {
				return
			}
			if got := w.Spec.Type.String(); got != tc.want {
				t.Errorf("type %q, want %q", got, tc.want)
			}
			if !maps.Equal(w.Labels, tc.now) {
				t.Errorf("labels %v, want %v", w.Labels, tc.now)
			}
		})
	}

	t.Run("updates do not resolve the type, which may be deleted", func(t *testing.T) {
		q := testRequest{cluster: "c1", resource: workspaces, name: "team", user: alice, operation: admission.Update, obj: testWorkspace(typed("root", "gone")), old: testWorkspace(typed("root", "gone"))}
		wantForbidden(t, admitAndValidate(t, newWorkspaceTypeExists(state.config()), q), "")
	})
	t.Run("labels of a workspace do not change the stored type", func(t *testing.T) {
		stored := state.stores[workspaceTypes].cached["root/organization"].(*tenancyv1alpha1.WorkspaceType)
		if !maps.Equal(stored.Spec.AdditionalWorkspaceLabels, toMap([]string{"tier", "org", "mine", "type"})) {
			t.Fatalf("labels of the type are now %v", stored.Spec.AdditionalWorkspaceLabels)
		}
	})
}

func TestToAPIError(t *testing.T) {
	a := testRequest{resource: workspaces, name: "team", operation: admission.Create}.attributes()
	if err := toAPIError(a, errors.New("storage is unavailable")); !apierrors.IsInternalError(err) {
		t.Errorf("got %v, want 500", err)
	}
	if err := toAPIError(a, workspacetype.ErrNotAllowed); !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want 403", err)
	}
}
