package lifecycle

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type names = apiextensions.CustomResourceDefinitionNames

func wants(plural, singular, kind string, short ...string) names {
	return names{Plural: plural, Singular: singular, Kind: kind, ListKind: kind + "List", ShortNames: short}
}

// settled is a definition that has what it wants.
func settled(n names) *apiextensions.CustomResourceDefinition {
	d := fresh(n)
	d.Status.AcceptedNames = n
	return decide(d, takenBy(nil, ""))
}

func fresh(n names) *apiextensions.CustomResourceDefinition {
	return &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: n.Plural + ".example.com"},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: "example.com", Names: n, Versions: []apiextensions.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
		},
	}
}

func TestNames(t *testing.T) {
	cats := settled(wants("cats", "cat", "Cat", "c"))
	for name, tc := range map[string]struct {
		definition       *apiextensions.CustomResourceDefinition
		accepted         string // reason of NamesAccepted
		establishes      bool
		kind, singular   string // accepted ones
		short            int
		message          string
		establishedsWith string
	}{
		"alone in its names":                  {definition: fresh(wants("dogs", "dog", "Dog", "d")), accepted: "NoConflicts", establishes: true, kind: "Dog", singular: "dog", short: 1},
		"a kind that another has":             {definition: fresh(wants("dogs", "dog", "Cat")), accepted: "ListKindConflict", kind: "", singular: "dog", message: `"CatList" is already in use`, establishedsWith: "NotAccepted"},
		"a singular that is another's short":  {definition: fresh(wants("dogs", "c", "Dog")), accepted: "SingularConflict", kind: "Dog", message: `"c" is already in use`},
		"a short name that is another's name": {definition: fresh(wants("dogs", "dog", "Dog", "d", "cats")), accepted: "ShortNamesConflict", kind: "Dog", singular: "dog", short: 0, message: `"cats" is already in use`},
		"names of its own stay its own":       {definition: settled(wants("dogs", "dog", "Dog", "d")), accepted: "NoConflicts", establishes: true, kind: "Dog", singular: "dog", short: 1},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.definition.DeepCopy()
			got := decide(tc.definition, takenBy([]*apiextensions.CustomResourceDefinition{cats, tc.definition}, tc.definition.Name))
			if !equality.Semantic.DeepEqual(before, tc.definition) {
				t.Error("the definition was changed, which the watch cache shares")
			}
			accepted := apiextensions.FindCRDCondition(got, apiextensions.NamesAccepted)
			if accepted.Reason != tc.accepted || (accepted.Status == apiextensions.ConditionTrue) != (tc.accepted == "NoConflicts") || !strings.Contains(accepted.Message, tc.message) {
				t.Errorf("NamesAccepted is %+v", accepted)
			}
			if apiextensions.IsCRDConditionTrue(got, apiextensions.Established) != tc.establishes {
				t.Errorf("Established is %+v", apiextensions.FindCRDCondition(got, apiextensions.Established))
			}
			if n := got.Status.AcceptedNames; n.Kind != tc.kind || n.Singular != tc.singular || len(n.ShortNames) != tc.short {
				t.Errorf("accepted names are %+v", n)
			}
		})
	}
}

func TestWhatIsDecidedStays(t *testing.T) {
	d := settled(wants("dogs", "dog", "Dog", "d"))
	d.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Unix(1, 0))
	if again := decide(d, takenBy(nil, "")); !equality.Semantic.DeepEqual(again.Status, d.Status) {
		t.Errorf("the status flaps: %+v, then %+v", d.Status, again.Status)
	}
	if len(undecided([]*apiextensions.CustomResourceDefinition{d})) != 0 {
		t.Error("a settled definition is looked at again")
	}
	// One that was established keeps being served when it asks for another's name.
	d.Spec.Names.Kind, d.Spec.Names.ListKind = "Cat", "CatList"
	if len(undecided([]*apiextensions.CustomResourceDefinition{d})) != 1 {
		t.Error("a definition that wants other names is passed over")
	}
	again := decide(d, takenBy([]*apiextensions.CustomResourceDefinition{settled(wants("cats", "cat", "Cat"))}, d.Name))
	if !apiextensions.IsCRDConditionTrue(again, apiextensions.Established) || !apiextensions.IsCRDConditionFalse(again, apiextensions.NamesAccepted) || again.Status.AcceptedNames.Kind != "Dog" {
		t.Errorf("status is %+v", again.Status)
	}
}

func TestDisputes(t *testing.T) {
	for name, tc := range map[string]struct {
		wants, others names
		want          bool
	}{
		"nothing in common":              {wants("dogs", "dog", "Dog"), wants("cats", "cat", "Cat"), false},
		"a kind":                         {wants("dogs", "dog", "Cat"), wants("cats", "cat", "Cat"), true},
		"a plural that is a short name":  {wants("dogs", "dog", "Dog"), wants("cats", "cat", "Cat", "dogs"), true},
		"a kind in the name of resource": {wants("dogs", "dog", "cats"), wants("cats", "cat", "Cat"), false},
	} {
		t.Run(name, func(t *testing.T) {
			d, other := fresh(tc.wants), fresh(tc.others)
			if got := disputed(d, []*apiextensions.CustomResourceDefinition{d, other}); got != tc.want {
				t.Errorf("disputed() = %v", got)
			}
		})
	}
}

func TestApproval(t *testing.T) {
	for name, tc := range map[string]struct {
		group, annotation string
		reason            string
	}{
		"a group of one's own":          {group: "example.com"},
		"a group of Kubernetes":         {group: "things.k8s.io", reason: "MissingAnnotation"},
		"approved":                      {group: "things.k8s.io", annotation: "https://github.com/kubernetes/kubernetes/pull/1", reason: "ApprovedAnnotation"},
		"bypassed":                      {group: "things.kubernetes.io", annotation: "unapproved, experimental-only", reason: "UnapprovedAnnotation"},
		"something that is no approval": {group: "things.k8s.io", annotation: "yes", reason: "InvalidAnnotation"},
	} {
		t.Run(name, func(t *testing.T) {
			d := fresh(wants("dogs", "dog", "Dog"))
			d.Spec.Group = tc.group
			if tc.annotation != "" {
				d.Annotations = map[string]string{"api-approved.kubernetes.io": tc.annotation}
			}
			got := approved(d)
			if (got == nil) != (tc.reason == "") || (got != nil && got.Reason != tc.reason) {
				t.Errorf("got %+v, want %q", got, tc.reason)
			}
		})
	}
}

func TestOldDefinitions(t *testing.T) {
	keep := true
	d := fresh(wants("dogs", "dog", "Dog"))
	d.Spec.PreserveUnknownFields = &keep
	d.Spec.Validation = &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{Type: "object", Properties: map[string]apiextensions.JSONSchemaProps{"spec": {}}}}
	got := nonStructural(d)
	if got == nil || got.Status != apiextensions.ConditionTrue || !strings.Contains(got.Message, "must be false") || !strings.Contains(got.Message, "must not be empty") {
		t.Errorf("got %+v", got)
	}
	d.Spec.PreserveUnknownFields = nil
	if got := nonStructural(d); got != nil {
		t.Errorf("got %+v", got)
	}
}
