package admission

import (
	"testing"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

func TestWorkspaceType(t *testing.T) {
	state := newFakeShard().
		workspace("root", "org", "c1").
		allow("alice bind c1/apiexports/widgets", "alice bind c2/apiexports/own")
	type change = func(*tenancyv1alpha1.WorkspaceTypeSpec)
	child := func(path string) change {
		return func(s *tenancyv1alpha1.WorkspaceTypeSpec) {
			s.DefaultChildWorkspaceType = ptr.To(typeRef(path, "universal"))
		}
	}
	parents := func(refs ...tenancyv1alpha1.WorkspaceTypeReference) change {
		return func(s *tenancyv1alpha1.WorkspaceTypeSpec) {
			s.LimitAllowedParents = &tenancyv1alpha1.WorkspaceTypeSelector{Types: refs}
		}
	}
	children := func(refs ...tenancyv1alpha1.WorkspaceTypeReference) change {
		return func(s *tenancyv1alpha1.WorkspaceTypeSpec) {
			s.LimitAllowedChildren = &tenancyv1alpha1.WorkspaceTypeSelector{Types: refs}
		}
	}
	binds := func(path, export string) change {
		return func(s *tenancyv1alpha1.WorkspaceTypeSpec) {
			s.DefaultAPIBindings = append(s.DefaultAPIBindings, tenancyv1alpha1.APIExportReference{Path: path, Export: export})
		}
	}

	for name, tc := range map[string]struct {
		cluster     string
		by          user.Info
		named       string
		old, spec   []change
		update      bool
		subresource string
		says        string
	}{
		"a plain type":                             {spec: nil},
		"a type with everything in order":          {spec: []change{child("root"), parents(typeRef("root", "organization")), children(typeRef("root:org", "own")), binds("root:org", "widgets")}},
		"a type called root below root":            {named: "root", says: "root workspace type can only be created in root"},
		"a type called root in root":               {cluster: "root", named: "root"},
		"not even for masters":                     {named: "root", by: master, says: "root workspace type can only be created in root"},
		"a default child without a path":           {spec: []change{child("")}, says: "spec.defaultChildWorkspaceType.path must be set"},
		"an allowed parent without a path":         {spec: []change{parents(typeRef("root", "a"), typeRef("", "b"))}, says: "spec.limitAllowedParents.types.path must be set"},
		"an allowed child without a path":          {spec: []change{children(typeRef("", "a"))}, says: "spec.limitAllowedChildren.types.path must be set"},
		"a path taken away later":                  {update: true, old: []change{child("root")}, spec: []change{child("")}, says: "spec.defaultChildWorkspaceType.path must be set"},
		"an export that the user may bind":         {spec: []change{binds("root:org", "widgets")}},
		"the same by cluster name":                 {spec: []change{binds("c1", "widgets")}},
		"an export beside the type":                {spec: []change{binds("", "own")}},
		"an export that the user may not bind":     {spec: []change{binds("root:org", "secrets")}, says: "no permission to bind to export root:org:secrets"},
		"an export at a path that does not exist":  {spec: []change{binds("root:gone", "widgets")}, says: "no permission to bind to export root:gone:widgets"},
		"an export beside the type, not permitted": {spec: []change{binds("", "widgets")}, says: "no permission to bind to export c2:widgets"},
		"masters bind what they like":              {by: master, spec: []change{binds("root:org", "secrets")}},
		"an entry from before is kept":             {update: true, old: []change{binds("root:org", "secrets")}, spec: []change{binds("root:org", "secrets"), binds("root:org", "widgets")}},
		"an entry added beside one from before":    {update: true, old: []change{binds("root:org", "secrets")}, spec: []change{binds("root:org", "secrets"), binds("root:org", "more")}, says: "no permission to bind to export root:org:more"},
		"status is not looked at":                  {update: true, subresource: "status", spec: []change{child("")}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.cluster == "" {
				tc.cluster = "c2"
			}
			if tc.by == nil {
				tc.by = alice
			}
			if tc.named == "" {
				tc.named = "own"
			}
			q := testRequest{cluster: tc.cluster, resource: workspaceTypes, subresource: tc.subresource, name: tc.named, user: tc.by, operation: admission.Create, obj: testWorkspaceType("root:x", tc.named, tc.spec...)}
			if tc.update {
				q.operation, q.old = admission.Update, testWorkspaceType("root:x", tc.named, tc.old...)
			}
			wantForbidden(t, admitAndValidate(t, newWorkspaceType(state.config()), q), tc.says)
		})
	}
}

func TestReservedNames(t *testing.T) {
	plugin := newReservedNames(newFakeShard().config())
	for name, tc := range map[string]struct {
		ask  testRequest
		says string
	}{
		"no type is called system":       {testRequest{resource: workspaceTypes, name: "system"}, "name is reserved"},
		"no type is called any":          {testRequest{resource: workspaceTypes, name: "any"}, "name is reserved"},
		"a type may be called otherwise": {testRequest{resource: workspaceTypes, name: "anything"}, ""},
		"a workspace may be called any":  {testRequest{resource: workspaces, name: "any"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tc.ask.cluster, tc.ask.user, tc.ask.operation = "root", master, admission.Create
			wantForbidden(t, admitAndValidate(t, plugin, tc.ask), tc.says)
		})
	}
}
