package binding

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
)

// newExportedResource is a resource of an export that can be bound.
func newExportedResource(plural, version string, changes ...func(*exportedResource)) *exportedResource {
	r := &exportedResource{
		GroupResource: schema.GroupResource{Group: "example.io", Resource: plural},
		identity:      "1d", established: true,
		schema: &apisv1alpha1.APIResourceSchema{
			ObjectMeta: metav1.ObjectMeta{Name: version + "." + plural + ".example.io", UID: types.UID(version + plural)},
			Spec: apisv1alpha1.APIResourceSchemaSpec{
				Group: "example.io", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural},
				Versions: []apisv1alpha1.APIResourceVersion{{Name: version, Served: true, Storage: true}},
			},
		},
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

func newWidgetsExport() *apisv1alpha2.APIExport {
	return &apisv1alpha2.APIExport{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets", Annotations: map[string]string{logicalcluster.AnnotationKey: "provider"}},
		Spec: apisv1alpha2.APIExportSpec{PermissionClaims: []apisv1alpha2.PermissionClaim{{
			GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"get"},
		}}},
	}
}

func TestDecide(t *testing.T) {
	reservedByOther := func(r *exportedResource) { r.reservedBy = `APIBinding "other"` }
	withNameConflict := func(r *exportedResource) { r.nameConflict = "the kind is in use" }
	withInvalidSchema := func(r *exportedResource) { r.invalid = errors.New("spec is invalid") }
	notEstablished := func(r *exportedResource) { r.established = false }
	reference := apiindex.Reference{Path: logicalcluster.MustParsePath("root:org"), Name: "widgets"}
	for name, tc := range map[string]struct {
		inputs       statusInputs
		invalid      string // reason of APIExportValid, "" for True
		incomplete   string // reason of InitialBindingCompleted and BindingUpToDate
		severity     conditionsv1alpha1.Severity
		bound        []string
		noUpToDate   bool
		phase        apisv1alpha2.APIBindingPhaseType
		messageParts []string
	}{
		"all resources can be bound":                 {inputs: statusInputs{resources: []*exportedResource{newExportedResource("a", "v1"), newExportedResource("b", "v1")}}, bound: []string{"a", "b"}, phase: "Bound"},
		"an export without resources":                {inputs: statusInputs{}, phase: "Bound"},
		"one resource is reserved for another owner": {inputs: statusInputs{resources: []*exportedResource{newExportedResource("a", "v1"), newExportedResource("b", "v1", reservedByOther)}}, bound: []string{"a"}, incomplete: "NamingConflicts", severity: "Error", phase: "Binding", messageParts: []string{`"b.example.io"`, `APIBinding "other"`}},
		"one resource has a name conflict":           {inputs: statusInputs{resources: []*exportedResource{newExportedResource("a", "v1", withNameConflict), newExportedResource("b", "v1")}}, bound: []string{"b"}, incomplete: "NamingConflicts", severity: "Error", phase: "Binding", messageParts: []string{"the kind is in use"}},
		"an invalid schema":                          {inputs: statusInputs{resources: []*exportedResource{newExportedResource("a", "v1", withInvalidSchema)}}, incomplete: "APIResourceSchemaInvalid", severity: "Error", phase: "Binding", messageParts: []string{"spec is invalid"}},
		"one resource is not served yet":             {inputs: statusInputs{resources: []*exportedResource{newExportedResource("a", "v1"), newExportedResource("b", "v1", notEstablished)}}, bound: []string{"a"}, incomplete: "WaitingForEstablished", severity: "Info", phase: "Binding", messageParts: []string{"b.example.io"}},
		"a conflict takes precedence over a delay":   {inputs: statusInputs{resources: []*exportedResource{newExportedResource("a", "v1", notEstablished), newExportedResource("b", "v1", reservedByOther)}}, incomplete: "NamingConflicts", severity: "Error", phase: "Binding"},
		"no logical cluster":                         {inputs: statusInputs{clusterMissing: true, resources: []*exportedResource{newExportedResource("a", "v1", notEstablished)}}, incomplete: "LogicalClusterNotFound", severity: "Error", phase: "Binding"},
		"missing export":                             {inputs: statusInputs{problem: exportNotFound(reference)}, invalid: "APIExportNotFound", incomplete: "WaitingForEstablished", severity: "Info", noUpToDate: true, phase: "Binding"},
		"the export has no identity":                 {inputs: statusInputs{problem: missingIdentity(reference)}, invalid: "MissingIdentityHash", incomplete: "WaitingForEstablished", severity: "Info", noUpToDate: true, phase: "Binding"},
		"an invalid reference":                       {inputs: statusInputs{problem: invalidReference(errors.New("no path"))}, invalid: "APIExportInvalidReference", incomplete: "WaitingForEstablished", severity: "Info", noUpToDate: true, phase: "Binding"},
		"a missing schema":                           {inputs: statusInputs{problem: schemaMissing(newWidgetsExport(), "v1.a")}, invalid: "InternalError", incomplete: "WaitingForEstablished", severity: "Info", noUpToDate: true, phase: "Binding"},
		"virtual storage has no storage versions":    {inputs: statusInputs{resources: []*exportedResource{newExportedResource("a", "v1", func(r *exportedResource) { r.virtual = true })}}, bound: []string{"a"}, phase: "Bound"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.inputs.problem == nil {
				tc.inputs.export = newWidgetsExport()
			}
			binding := &apisv1alpha2.APIBinding{}
			decide(binding, tc.inputs)
			if got := conditionsv1alpha1.GetReason(binding, apisv1alpha2.APIExportValid); got != tc.invalid || conditionsv1alpha1.IsTrue(binding, apisv1alpha2.APIExportValid) != (tc.invalid == "") {
				t.Errorf("APIExportValid is %+v", conditionsv1alpha1.Get(binding, apisv1alpha2.APIExportValid))
			}
			for _, condition := range []conditionsv1alpha1.Type{"Ready", apisv1alpha2.InitialBindingCompleted, apisv1alpha2.BindingUpToDate} {
				got := conditionsv1alpha1.Get(binding, condition)
				if condition == apisv1alpha2.BindingUpToDate && tc.noUpToDate {
					if got != nil {
						t.Errorf("%s is %+v", condition, got)
					}
					continue
				}
				if got == nil || got.Reason != tc.incomplete || got.Severity != tc.severity {
					t.Fatalf("%s is %+v", condition, got)
				}
				for _, part := range tc.messageParts {
					if !strings.Contains(got.Message, part) {
						t.Errorf("message of %s is %q, want %q", condition, got.Message, part)
					}
				}
			}
			var bound []string
			for _, resource := range binding.Status.BoundResources {
				bound = append(bound, resource.Resource)
			}
			if !slices.Equal(bound, tc.bound) || binding.Status.Phase != tc.phase {
				t.Errorf("phase is %s, bound are %v", binding.Status.Phase, bound)
			}
			if tc.inputs.export != nil && (binding.Status.APIExportClusterName != "provider" || len(binding.Status.ExportPermissionClaims) != 1) {
				t.Errorf("unexpected export in the status: %+v", binding.Status)
			}
			second := binding.DeepCopy()
			if decide(second, tc.inputs); !equality.Semantic.DeepEqual(second, binding) {
				t.Errorf("the status is not stable: %+v, then %+v", binding.Status, second.Status)
			}
		})
	}
}

func TestBoundResourcesAreKept(t *testing.T) {
	binding := &apisv1alpha2.APIBinding{}
	decide(binding, statusInputs{export: newWidgetsExport(), resources: []*exportedResource{newExportedResource("a", "v1"), newExportedResource("b", "v1")}})

	// Resource a is removed from the export, b gets another schema with another storage version, c is added and not
	// served yet.
	later := statusInputs{export: newWidgetsExport(), resources: []*exportedResource{newExportedResource("b", "v2"), newExportedResource("c", "v1", func(r *exportedResource) { r.established = false })}}
	decide(binding, later)
	got := binding.Status.BoundResources
	if len(got) != 2 || got[0].Schema.UID != "v1a" || got[1].Schema.UID != "v2b" || !slices.Equal(got[1].StorageVersions, []string{"v1", "v2"}) {
		t.Errorf("bound are %+v", got)
	}
	if !conditionsv1alpha1.IsTrue(binding, apisv1alpha2.InitialBindingCompleted) || binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound ||
		!conditionsv1alpha1.IsTrue(binding, "Ready") || conditionsv1alpha1.GetReason(binding, apisv1alpha2.BindingUpToDate) != apisv1alpha2.WaitingForEstablishedReason {
		t.Errorf("conditions are %+v", binding.Status.Conditions)
	}

	// The export is deleted.
	decide(binding, statusInputs{problem: exportNotFound(apiindex.Reference{Path: logicalcluster.MustParsePath("root"), Name: "x"})})
	if len(binding.Status.BoundResources) != 2 || binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound || !conditionsv1alpha1.IsTrue(binding, "Ready") ||
		conditionsv1alpha1.GetReason(binding, apisv1alpha2.APIExportValid) != apisv1alpha2.APIExportNotFoundReason || binding.Status.APIExportClusterName != "provider" {
		t.Errorf("status is %+v", binding.Status)
	}
}

func TestExtraAnnotationsPatch(t *testing.T) {
	current := map[string]string{"extra.apis.kcp.io/old": "1", "extra.apis.kcp.io/same": "2", "extra.apis.kcp.io/other": "3", "own": "4"}
	desired := map[string]string{"extra.apis.kcp.io/same": "2", "extra.apis.kcp.io/other": "5", "extra.apis.kcp.io/new": "", "theirs": "6"}
	got := extraAnnotationsPatch(current, desired)
	if value, ok := got["extra.apis.kcp.io/old"]; len(got) != 3 || !ok || value != nil || got["extra.apis.kcp.io/other"] != "5" || got["extra.apis.kcp.io/new"] != "" {
		t.Errorf("got %v", got)
	}
	if len(extraAnnotationsPatch(desired, desired)) != 0 || len(extraAnnotationsPatch(nil, nil)) != 0 {
		t.Error("the status changes without a change of the inputs")
	}
}
