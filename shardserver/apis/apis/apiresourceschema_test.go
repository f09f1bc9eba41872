package apis

import (
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
)

func TestEqualJSON(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		want bool
	}{
		"another order of fields":                {`{"type":"integer","maximum":2}`, `{ "maximum": 2, "type": "integer" }`, true},
		"a number in another form":               {`{"enum":[1,100]}`, `{"enum":[1.0,1e2]}`, true},
		"another number":                         {`{"default":1}`, `{"default":2}`, false},
		"numbers that are one in floating point": {`{"default":9007199254740993}`, `{"default":9007199254740992}`, false},
		"invalid JSON":                           {`{`, `{}`, false},
	} {
		if got := equalJSON([]byte(tc.a), []byte(tc.b)); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestPathsOfSchemasAreBounded(t *testing.T) {
	version := apisv1alpha1.APIResourceVersion{
		Name: "v1", Served: true, Storage: true, Schema: runtime.RawExtension{Raw: []byte(`{}`)},
		AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{
			{Name: "Size", Type: "string", JSONPath: ".spec.size"}, {Name: "Any", Type: "string", JSONPath: ".spec..size"},
		},
		SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.."}},
	}
	var got []string
	for _, err := range validateSchemaVersions([]apisv1alpha1.APIResourceVersion{version}, field.NewPath("spec", "versions")) {
		got = append(got, err.Field)
	}
	want := []string{"spec.versions[0].additionalPrinterColumns[1].jsonPath", "spec.versions[0].selectableFields[0].jsonPath"}
	if !slices.Equal(got, want) {
		t.Errorf("got errors of %q, want %q", got, want)
	}
}
