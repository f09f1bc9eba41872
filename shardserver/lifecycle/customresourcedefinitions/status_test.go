package customresourcedefinitions

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type names = apiextensions.CustomResourceDefinitionNames

func newNames(plural, singular, kind string, short ...string) names {
	return names{Plural: plural, Singular: singular, Kind: kind, ListKind: kind + "List", ShortNames: short}
}

// acceptedDefinition returns a definition whose names are accepted.
func acceptedDefinition(n names) *apiextensions.CustomResourceDefinition {
	d := newDefinition(n)
	d.Status.AcceptedNames = n
	return computeStatus(d, acceptedNamesExcept(nil, ""))
}

func newDefinition(n names) *apiextensions.CustomResourceDefinition {
	return &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: n.Plural + ".example.com"},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: "example.com", Names: n, Versions: []apiextensions.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
		},
	}
}

func TestNames(t *testing.T) {
	cats := acceptedDefinition(newNames("cats", "cat", "Cat", "c"))
	for name, tc := range map[string]struct {
		definition       *apiextensions.CustomResourceDefinition
		accepted         string // reason of NamesAccepted
		establishes      bool
		kind, singular   string // accepted ones
		short            int
		message          string
		establishedsWith string
	}{
		"no conflict":                      {definition: newDefinition(newNames("dogs", "dog", "Dog", "d")), accepted: "NoConflicts", establishes: true, kind: "Dog", singular: "dog", short: 1},
		"kind of another definition":       {definition: newDefinition(newNames("dogs", "dog", "Cat")), accepted: "ListKindConflict", kind: "", singular: "dog", message: `"CatList" is already in use`, establishedsWith: "NotAccepted"},
		"singular is another's short name": {definition: newDefinition(newNames("dogs", "c", "Dog")), accepted: "SingularConflict", kind: "Dog", message: `"c" is already in use`},
		"short name is another's plural":   {definition: newDefinition(newNames("dogs", "dog", "Dog", "d", "cats")), accepted: "ShortNamesConflict", kind: "Dog", singular: "dog", short: 0, message: `"cats" is already in use`},
		"accepted names stay accepted":     {definition: acceptedDefinition(newNames("dogs", "dog", "Dog", "d")), accepted: "NoConflicts", establishes: true, kind: "Dog", singular: "dog", short: 1},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.definition.DeepCopy()
			got := computeStatus(tc.definition, acceptedNamesExcept([]*apiextensions.CustomResourceDefinition{cats, tc.definition}, tc.definition.Name))
			if !equality.Semantic.DeepEqual(before, tc.definition) {
				t.Error("the definition, which the watch cache shares, was modified")
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

func TestStatusIsStable(t *testing.T) {
	d := acceptedDefinition(newNames("dogs", "dog", "Dog", "d"))
	d.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Unix(1, 0))
	if again := computeStatus(d, acceptedNamesExcept(nil, "")); !equality.Semantic.DeepEqual(again.Status, d.Status) {
		t.Errorf("the status flaps: %+v, then %+v", d.Status, again.Status)
	}
	if len(outdated([]*apiextensions.CustomResourceDefinition{d})) != 0 {
		t.Error("a definition with a current status is outdated")
	}
	// An established definition remains established when it requests another's name.
	d.Spec.Names.Kind, d.Spec.Names.ListKind = "Cat", "CatList"
	if len(outdated([]*apiextensions.CustomResourceDefinition{d})) != 1 {
		t.Error("a definition that requests other names is not outdated")
	}
	again := computeStatus(d, acceptedNamesExcept([]*apiextensions.CustomResourceDefinition{acceptedDefinition(newNames("cats", "cat", "Cat"))}, d.Name))
	if !apiextensions.IsCRDConditionTrue(again, apiextensions.Established) || !apiextensions.IsCRDConditionFalse(again, apiextensions.NamesAccepted) || again.Status.AcceptedNames.Kind != "Dog" {
		t.Errorf("status is %+v", again.Status)
	}
}

func TestHasContention(t *testing.T) {
	for name, tc := range map[string]struct {
		requested, others names
		want              bool
	}{
		"nothing in common":              {newNames("dogs", "dog", "Dog"), newNames("cats", "cat", "Cat"), false},
		"a kind":                         {newNames("dogs", "dog", "Cat"), newNames("cats", "cat", "Cat"), true},
		"a plural that is a short name":  {newNames("dogs", "dog", "Dog"), newNames("cats", "cat", "Cat", "dogs"), true},
		"a kind in the name of resource": {newNames("dogs", "dog", "cats"), newNames("cats", "cat", "Cat"), false},
	} {
		t.Run(name, func(t *testing.T) {
			d, other := newDefinition(tc.requested), newDefinition(tc.others)
			if got := hasContention(d, []*apiextensions.CustomResourceDefinition{d, other}); got != tc.want {
				t.Errorf("hasContention() = %v", got)
			}
		})
	}
}

func TestApproval(t *testing.T) {
	for name, tc := range map[string]struct {
		group, annotation string
		reason            string
	}{
		"a group of a tenant":   {group: "example.com"},
		"a group of Kubernetes": {group: "things.k8s.io", reason: "MissingAnnotation"},
		"approved":              {group: "things.k8s.io", annotation: "https://github.com/kubernetes/kubernetes/pull/1", reason: "ApprovedAnnotation"},
		"bypassed":              {group: "things.kubernetes.io", annotation: "unapproved, experimental-only", reason: "UnapprovedAnnotation"},
		"invalid approval":      {group: "things.k8s.io", annotation: "yes", reason: "InvalidAnnotation"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDefinition(newNames("dogs", "dog", "Dog"))
			d.Spec.Group = tc.group
			if tc.annotation != "" {
				d.Annotations = map[string]string{"api-approved.kubernetes.io": tc.annotation}
			}
			got := apiApproval(d)
			if (got == nil) != (tc.reason == "") || (got != nil && got.Reason != tc.reason) {
				t.Errorf("got %+v, want %q", got, tc.reason)
			}
		})
	}
}

func TestNonStructuralSchema(t *testing.T) {
	preserve := true
	d := newDefinition(newNames("dogs", "dog", "Dog"))
	d.Spec.PreserveUnknownFields = &preserve
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
