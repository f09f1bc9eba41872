package versions

import (
	"encoding/json"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestValidator(t *testing.T) {
	for _, test := range []struct {
		name, schema, spec string
		want               []string
	}{
		{"a valid instance", `{"type":"object","properties":{"a":{"type":"string"}}}`, `{"a":"secret"}`, nil},
		{"an unknown field is left out", `{"type":"object"}`, `{"a":"secret"}`, nil},
		{"a default satisfies required", `{"type":"object","required":["a"],"properties":{"a":{"type":"string","default":"b"}}}`, `{}`, nil},
		{"without spec", `{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}`, ``, []string{"spec.a: Required value: "}},
		{"another type", `{"type":"object","properties":{"a":{"type":"integer"}}}`, `{"a":"secret"}`, []string{"spec.a: Invalid value: a in body must be of type integer: \"string\""}},
		{"a value that is not in the enum", `{"type":"object","properties":{"a":{"type":"string","enum":["b"]}}}`, `{"a":"secret"}`, []string{`spec.a: Unsupported value: supported values: "b"`}},
		{"a rule that does not hold", `{"type":"object","properties":{"a":{"type":"string"}},"x-kubernetes-validations":[{"rule":"self.a == 'b'","message":"must be b"}]}`, `{"a":"secret"}`, []string{"spec: Invalid value: must be b"}},
		{"a set with duplicates", `{"type":"object","properties":{"a":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}}}`, `{"a":["secret","secret"]}`, []string{"spec.a[1]: Duplicate value: "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			schema := &apiextensionsv1.JSONSchemaProps{}
			if err := json.Unmarshal([]byte(test.schema), schema); err != nil {
				t.Fatal(err)
			}
			validator, err := NewValidator(schema)
			if err != nil {
				t.Fatal(err)
			}
			object := &unstructured.Unstructured{}
			if test.spec != "" {
				test.spec = `,"spec":` + test.spec
			}
			if err := json.Unmarshal([]byte(`{"apiVersion":"example.org/v1","kind":"A"`+test.spec+`}`), &object.Object); err != nil {
				t.Fatal(err)
			}
			if got := validator.Validate(t.Context(), object); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
