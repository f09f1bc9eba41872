package tenancy

import (
	"errors"
	"maps"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/admissiontest"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// testWorkspaceType returns a workspace type as it is stored in the logical cluster at path.
func TestWorkspaceTypeExists(t *testing.T) {
	universal := admissiontest.TypeReference("root", "universal")
	state := admissiontest.NewShard().
		Cluster("root", logicalcluster.PathAnnotationKey, "root", admissiontest.TypeKey, "root:root").
		Cluster("c1", logicalcluster.PathAnnotationKey, "root:org", admissiontest.TypeKey, "root:organization").
		Cluster("c2", logicalcluster.PathAnnotationKey, "root:untyped").
		Workspace("root", "org", "c1").
		Workspace("root", "untyped", "c2").
		Add("root", admissiontest.WorkspaceType("root", "root", admissiontest.Extending(universal), func(s *tenancyv1alpha1.WorkspaceTypeSpec) {
			s.DefaultChildWorkspaceType = ptr.To(admissiontest.TypeReference("root", "organization"))
			s.LimitAllowedParents = &tenancyv1alpha1.WorkspaceTypeSelector{None: ptr.To(true)}
		}), true).
		Add("root", admissiontest.WorkspaceType("root", "universal"), true).
		Add("root", admissiontest.WorkspaceType("root", "organization", admissiontest.Extending(universal), func(s *tenancyv1alpha1.WorkspaceTypeSpec) {
			s.DefaultChildWorkspaceType = &universal
			s.LimitAllowedParents = &tenancyv1alpha1.WorkspaceTypeSelector{Types: []tenancyv1alpha1.WorkspaceTypeReference{admissiontest.TypeReference("root", "root")}}
			s.AdditionalWorkspaceLabels = admissiontest.ToMap([]string{"tier", "org", "mine", "type"})
		}), true).
		Add("root", admissiontest.WorkspaceType("root", "secret"), true).
		Add("root", admissiontest.WorkspaceType("root", "on-secret", admissiontest.Extending(admissiontest.TypeReference("root", "secret"))), true).
		Add("root", admissiontest.WorkspaceType("root", "ring", admissiontest.Extending(admissiontest.TypeReference("root", "ring"))), true).
		Add("c1", admissiontest.WorkspaceType("root:org", "own", admissiontest.Extending(universal)), false).
		Allow("alice use root/workspacetypes/universal", "alice use root/workspacetypes/organization", "alice use root/workspacetypes/root",
			"alice use root/workspacetypes/on-secret", "alice use root/workspacetypes/ring", "alice use c1/workspacetypes/own")
	typed := func(path, name string) func(*tenancyv1alpha1.Workspace) {
		return func(w *tenancyv1alpha1.Workspace) { w.Spec.Type = ptr.To(admissiontest.TypeReference(path, name)) }
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
		"type without permission by masters":                        {cluster: "root", by: admissiontest.Master, choose: typed("root", "on-secret"), want: "root:on-secret"},
		"a cycle":                                                   {cluster: "root", choose: typed("root", "ring"), wantErr: `"root:ring" extends itself`},
		"type that allows no parent":                                {cluster: "root", choose: typed("root", "root"), wantErr: "spec.limitAllowedParents"},
		"parent that the type does not allow":                       {cluster: "c1", choose: typed("root", "organization"), wantErr: "spec.limitAllowedParents"},
		"parent that the type does not allow by masters":            {cluster: "c1", by: admissiontest.Master, choose: typed("root", "organization"), wantErr: "spec.limitAllowedParents"},
		"default without a type of the parent":                      {cluster: "c2", choose: untyped, wantErr: "has no annotation " + admissiontest.TypeKey},
		"type without a type of the parent":                         {cluster: "c2", choose: typed("root", "universal"), wantErr: "has no annotation " + admissiontest.TypeKey},
		"type without a logical cluster":                            {cluster: "gone", choose: typed("", "universal"), wantErr: "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			w := admissiontest.Workspace(tc.choose)
			w.Labels = tc.labels
			if tc.by == nil {
				tc.by = admissiontest.Alice
			}
			q := admissiontest.Request{Cluster: tc.cluster, Resource: rules.Workspaces, Name: "team", User: tc.by, Operation: admission.Create, Object: w}
			admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, NewWorkspaceTypeExists(state.Config()), q), tc.wantErr)
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
		q := admissiontest.Request{Cluster: "c1", Resource: rules.Workspaces, Name: "team", User: admissiontest.Alice, Operation: admission.Update, Object: admissiontest.Workspace(typed("root", "gone")), Old: admissiontest.Workspace(typed("root", "gone"))}
		admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, NewWorkspaceTypeExists(state.Config()), q), "")
	})
	t.Run("labels of a workspace do not change the stored type", func(t *testing.T) {
		stored := state.Cached(rules.WorkspaceTypes, "root", "organization").(*tenancyv1alpha1.WorkspaceType)
		if !maps.Equal(stored.Spec.AdditionalWorkspaceLabels, admissiontest.ToMap([]string{"tier", "org", "mine", "type"})) {
			t.Fatalf("labels of the type are now %v", stored.Spec.AdditionalWorkspaceLabels)
		}
	})
}

func TestToAPIError(t *testing.T) {
	a := admissiontest.Request{Resource: rules.Workspaces, Name: "team", Operation: admission.Create}.Attributes()
	if err := toAPIError(a, errors.New("storage is unavailable")); !apierrors.IsInternalError(err) {
		t.Errorf("got %v, want 500", err)
	}
	if err := toAPIError(a, workspacetype.ErrNotAllowed); !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want 403", err)
	}
}
