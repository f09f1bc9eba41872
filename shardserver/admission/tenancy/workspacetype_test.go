package tenancy

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/admissiontest"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

func TestWorkspaceType(t *testing.T) {
	state := admissiontest.NewShard().
		Workspace("root", "org", "c1").
		Cluster("c2", logicalcluster.PathAnnotationKey, "root:far:own").
		Allow("alice bind c1/apiexports/widgets", "alice bind c2/apiexports/own")
	type change = func(*tenancyv1alpha1.WorkspaceTypeSpec)
	child := func(path string) change {
		return func(s *tenancyv1alpha1.WorkspaceTypeSpec) {
			s.DefaultChildWorkspaceType = ptr.To(admissiontest.TypeReference(path, "universal"))
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
		wantErr     string
	}{
		"empty type":                                      {spec: nil},
		"valid type":                                      {spec: []change{child("root"), parents(admissiontest.TypeReference("root", "organization")), children(admissiontest.TypeReference("root:org", "own")), binds("root:org", "widgets")}},
		"type named root outside root":                    {named: "root", wantErr: "root workspace type can only be created in root"},
		"type named root in root":                         {cluster: "root", named: "root"},
		"type named root outside root by masters":         {named: "root", by: admissiontest.Master, wantErr: "root workspace type can only be created in root"},
		"default child without a path":                    {spec: []change{child("")}, wantErr: "spec.defaultChildWorkspaceType.path must be set"},
		"an allowed parent without a path":                {spec: []change{parents(admissiontest.TypeReference("root", "a"), admissiontest.TypeReference("", "b"))}, wantErr: "spec.limitAllowedParents.types.path must be set"},
		"an allowed child without a path":                 {spec: []change{children(admissiontest.TypeReference("", "a"))}, wantErr: "spec.limitAllowedChildren.types.path must be set"},
		"update removes a path":                           {update: true, old: []change{child("root")}, spec: []change{child("")}, wantErr: "spec.defaultChildWorkspaceType.path must be set"},
		"export with permission":                          {spec: []change{binds("root:org", "widgets")}},
		"export with permission by cluster name":          {spec: []change{binds("c1", "widgets")}},
		"export in the same workspace":                    {spec: []change{binds("", "own")}},
		"export in the same workspace by its path":        {spec: []change{binds("root:far:own", "own")}},
		"export without permission":                       {spec: []change{binds("root:org", "secrets")}, wantErr: "no permission to bind to export root:org:secrets"},
		"export at a missing path":                        {spec: []change{binds("root:gone", "widgets")}, wantErr: "no permission to bind to export root:gone:widgets"},
		"export in the same workspace without permission": {spec: []change{binds("", "widgets")}, wantErr: "no permission to bind to export c2:widgets"},
		"export without permission by masters":            {by: admissiontest.Master, spec: []change{binds("root:org", "secrets")}},
		"existing entry without permission":               {update: true, old: []change{binds("root:org", "secrets")}, spec: []change{binds("root:org", "secrets"), binds("root:org", "widgets")}},
		"added entry without permission":                  {update: true, old: []change{binds("root:org", "secrets")}, spec: []change{binds("root:org", "secrets"), binds("root:org", "more")}, wantErr: "no permission to bind to export root:org:more"},
		"status update":                                   {update: true, subresource: "status", spec: []change{child("")}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.cluster == "" {
				tc.cluster = "c2"
			}
			if tc.by == nil {
				tc.by = admissiontest.Alice
			}
			if tc.named == "" {
				tc.named = "own"
			}
			q := admissiontest.Request{Cluster: tc.cluster, Resource: rules.WorkspaceTypes, Subresource: tc.subresource, Name: tc.named, User: tc.by, Operation: admission.Create, Object: admissiontest.WorkspaceType("root:x", tc.named, tc.spec...)}
			if tc.update {
				q.Operation, q.Old = admission.Update, admissiontest.WorkspaceType("root:x", tc.named, tc.old...)
			}
			admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, NewWorkspaceType(state.Config()), q), tc.wantErr)
		})
	}
}

// A path that leads through another shard is that of a LogicalCluster.
func TestFindByPath(t *testing.T) {
	at := func(cluster, path string, deleting bool) *corev1alpha1.LogicalCluster {
		object := &corev1alpha1.LogicalCluster{}
		object.Annotations = map[string]string{logicalcluster.AnnotationKey: cluster, logicalcluster.PathAnnotationKey: path}
		if deleting {
			object.DeletionTimestamp = new(metav1.Now())
		}
		return object
	}
	for name, tc := range map[string]struct {
		all  []*corev1alpha1.LogicalCluster
		want string
	}{
		"the one with the path":        {[]*corev1alpha1.LogicalCluster{at("c1", "root:a", false), at("c2", "root:a:b", false)}, "c1"},
		"none":                         {all: []*corev1alpha1.LogicalCluster{at("c2", "root:a:b", false)}},
		"one that is being deleted":    {all: []*corev1alpha1.LogicalCluster{at("c1", "root:a", true)}},
		"its successor":                {[]*corev1alpha1.LogicalCluster{at("c1", "root:a", true), at("c2", "root:a", false)}, "c2"},
		"two, of which none is meant":  {all: []*corev1alpha1.LogicalCluster{at("c1", "root:a", false), at("c2", "root:a", false)}},
		"one without a path, its name": {all: []*corev1alpha1.LogicalCluster{at("root:a", "", false)}},
	} {
		found, err := findByPath(tc.all, logicalcluster.MustParsePath("root:a"))
		if found.String() != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: got %q, %v", name, found, err)
		}
	}
}

func TestReservedNames(t *testing.T) {
	plugin := NewReservedNames(admissiontest.NewShard().Config())
	for name, tc := range map[string]struct {
		ask     admissiontest.Request
		wantErr string
	}{
		"type named system":      {admissiontest.Request{Resource: rules.WorkspaceTypes, Name: "system"}, "name is reserved"},
		"type named any":         {admissiontest.Request{Resource: rules.WorkspaceTypes, Name: "any"}, "name is reserved"},
		"type with another name": {admissiontest.Request{Resource: rules.WorkspaceTypes, Name: "anything"}, ""},
		"workspace named any":    {admissiontest.Request{Resource: rules.Workspaces, Name: "any"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tc.ask.Cluster, tc.ask.User, tc.ask.Operation = "root", admissiontest.Master, admission.Create
			admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, plugin, tc.ask), tc.wantErr)
		})
	}
}
