package crdpaths_test

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/atoll-dev/atoll/internal/crdpaths"
)

// low has limits that harmless paths exceed.
var low = crdpaths.Limits{Columns: 2, PathBytes: 40, Visits: 6}

func TestColumns(t *testing.T) {
	for name, test := range map[string]struct {
		path, want string
	}{
		"fields are accepted":                                {path: ".spec.names.kind"},
		"an index is accepted":                               {path: ".spec.rules[0].host"},
		"a wildcard is accepted":                             {path: ".spec.rules[*].host"},
		"a filter is accepted":                               {path: `.status.c[?(@.type=="Ready")].status`},
		"a small union is accepted":                          {path: ".data['a','b']"},
		"what does not parse is accepted and not evaluated":  {path: ".spec[unclosed"},
		"a descending path is refused":                       {path: ".spec..host", want: "must not descend recursively"},
		"a descending path in a filter is refused":           {path: ".spec.rules[?(@..host)].name", want: "must not descend recursively"},
		"a descending path in a second expression is found":  {path: ".spec}{.status..host", want: "must not descend recursively"},
		"a range is refused":                                 {path: ".a}{range .b}{.c}{end", want: "must not contain range"},
		"a path with many steps is refused":                  {path: ".a.b.c.d.e.f.g", want: "more than 6 times"},
		"filters in a row are refused":                       {path: ".a[?(@.b)][?(@.c)][?(@.d)]", want: "more than 6 times"},
		"unions in a row are refused":                        {path: ".a['b','c']['d','e']", want: "more than 6 times"},
		"a union that repeats a field is refused":            {path: ".a['b','b','b'].c", want: "more than 6 times"},
		"the number of unions does not overflow the counter": {path: strings.Repeat("[0,0,0]", 5), want: "more than 6 times"},
		"a long path is refused":                             {path: "." + strings.Repeat("x", 40), want: "more than 40 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := low.ValidateColumns([]string{".ok", test.path}, crdpaths.Stored{}, field.NewPath("columns"))
			if test.want == "" {
				if len(errs) > 0 {
					t.Errorf("got %v", errs)
				}
				return
			}
			if len(errs) != 1 || errs[0].Field != "columns[1].jsonPath" || !strings.Contains(errs[0].Detail, test.want) {
				t.Errorf("got %v, want one error with %q", errs, test.want)
			}
		})
	}
}

// The paths are those of definitions that many clusters have.
func TestColumnsOfKnownDefinitionsAreAccepted(t *testing.T) {
	paths := []string{
		`.metadata.creationTimestamp`,
		`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`,
		`.metadata.annotations.crossplane\.io/external-name`,
		`.status.conditions[?(@.type=="Ready")].status`,
		`.status.conditions[?(@.type == 'Reconciled')].status`,
		`.status.conditions[?(@.type=="ACK.ResourceSynced")].status`,
		`.status.conditions[-1:].type`,
		`.status.addresses[*].value`,
		`.status.networking.addressing[?(@.type=="InternalIP")].ip`,
		`.spec.template.spec.containers[*].image`,
		`.spec.http[*].route[*].destination.host`,
		`.spec.ports[0,1].port`,
		`.spec.hosts`,
		`.status.sync.status`,
		`.status.history[0].version`,
		`$.spec.versions[?(@.served==true)].name`,
	}
	if errs := crdpaths.Default.ValidateColumns(paths, crdpaths.Stored{}, nil); len(errs) > 0 {
		t.Error(errs)
	}
}

func TestTheNumberOfColumnsIsLimited(t *testing.T) {
	errs := low.ValidateColumns([]string{".a", ".b", ".c"}, crdpaths.Stored{}, field.NewPath("columns"))
	if len(errs) != 1 || errs[0].Type != field.ErrorTypeTooMany || errs[0].Field != "columns" {
		t.Errorf("got %v", errs)
	}
}

func TestSelectableFields(t *testing.T) {
	for name, test := range map[string]struct{ path, want string }{
		"fields are accepted":                     {path: ".spec.color"},
		"escaped names are accepted":              {path: `.spec.my\.color`},
		"a descending path is refused":            {path: ".spec..color", want: "names of fields"},
		"a wildcard is refused":                   {path: ".spec.*", want: "names of fields"},
		"a second expression is refused":          {path: ".spec}{.color", want: "one path"},
		"a text is refused":                       {path: ".spec}color", want: "one path"},
		"what does not parse is refused":          {path: ".spec[unclosed", want: "unterminated"},
		"a long path is refused":                  {path: "." + strings.Repeat("x", 40), want: "more than 40 bytes"},
		"an index in the place of a name is none": {path: ".spec[0]", want: "names of fields"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := low.ValidateFields([]string{test.path}, crdpaths.Stored{}, field.NewPath("fields"))
			if test.want == "" {
				if len(errs) > 0 {
					t.Errorf("got %v", errs)
				}
				return
			}
			if len(errs) != 1 || errs[0].Field != "fields[0].jsonPath" || !strings.Contains(errs[0].Detail, test.want) {
				t.Errorf("got %v, want one error with %q", errs, test.want)
			}
		})
	}
}

func TestStoredPathsMayStay(t *testing.T) {
	var stored crdpaths.Stored
	stored.Add([]string{".a..b", ".b", ".c"})
	if errs := low.ValidateColumns([]string{".b", ".a..b", ".d"}, stored, nil); len(errs) > 0 {
		t.Errorf("unchanged columns in another order: %v", errs)
	}
	if errs := low.ValidateFields([]string{".a..b"}, stored, nil); len(errs) > 0 {
		t.Errorf("an unchanged field: %v", errs)
	}
	if errs := low.ValidateColumns([]string{".a..b", ".a..c"}, stored, nil); len(errs) != 1 {
		t.Errorf("a new path besides a stored one: %v", errs)
	}
	if errs := low.ValidateColumns([]string{".a", ".b", ".c", ".d"}, stored, nil); len(errs) != 1 {
		t.Errorf("more columns than stored: %v", errs)
	}
}

func column(path string) apiextensionsv1.CustomResourceColumnDefinition {
	return apiextensionsv1.CustomResourceColumnDefinition{Name: path, Type: "string", JSONPath: path}
}

func version(columns ...apiextensionsv1.CustomResourceColumnDefinition) apiextensionsv1.CustomResourceDefinitionVersion {
	return apiextensionsv1.CustomResourceDefinitionVersion{
		Name: "v1", AdditionalPrinterColumns: columns,
		SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".a..b"}, {JSONPath: ".b"}},
	}
}

func TestRefusedPathsAreNotEvaluated(t *testing.T) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	definition.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{version(column(".a..b"), column(".b"), column(".c"))}
	before := definition.DeepCopy()
	got := low.Evaluated(definition).Spec.Versions[0]
	if len(got.AdditionalPrinterColumns) != 2 || strings.Contains(got.AdditionalPrinterColumns[0].JSONPath, "..") || got.AdditionalPrinterColumns[1] != column(".b") {
		t.Errorf("columns %v", got.AdditionalPrinterColumns)
	}
	if !strings.Contains(got.AdditionalPrinterColumns[0].Description, "must not descend") {
		t.Errorf("description %q", got.AdditionalPrinterColumns[0].Description)
	}
	if !slices.Equal(got.SelectableFields, []apiextensionsv1.SelectableField{{JSONPath: ".b"}}) {
		t.Errorf("selectable fields %v", got.SelectableFields)
	}
	if !slices.Equal(definition.Spec.Versions[0].AdditionalPrinterColumns, before.Spec.Versions[0].AdditionalPrinterColumns) {
		t.Error("the argument was changed")
	}
}

func TestAccepted(t *testing.T) {
	versions := []apiextensionsv1.CustomResourceDefinitionVersion{version(column(".a..b"), column(".b"), column(".c"), column(".d"))}
	low.Accepted(versions)
	if got := versions[0]; !slices.Equal(got.AdditionalPrinterColumns, []apiextensionsv1.CustomResourceColumnDefinition{column(".b"), column(".c")}) || len(got.SelectableFields) != 1 {
		t.Errorf("got %v", got)
	}
}
