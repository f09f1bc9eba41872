package expression

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestExpand(t *testing.T) {
	self := map[string]any{"spec": map[string]any{"size": int64(3), "name": "mine", "tags": []any{"a", "b"}}}
	for name, test := range map[string]struct{ value, want string }{
		"an expression keeps the type of its result": {`"${self.spec.size + 1}"`, `4`},
		"a list is inserted whole":                   {`{"tags": "${self.spec.tags}"}`, `{"tags": ["a","b"]}`},
		"results are inserted as text":               {`["${self.spec.name}-${self.spec.size}.example.org"]`, `["mine-3.example.org"]`},
		"braces and quotes are the expression's":     {`"${{'a}': self.spec.name}['a}']}"`, `"mine"`},
		"other values stay":                          {`{"a": 1, "b": true, "c": null, "d": "$5"}`, `{"a": 1, "b": true, "c": null, "d": "$5"}`},
		"results are not expanded again":             {`"${'$' + '{self.spec.size}'}"`, `"${self.spec.size}"`},
	} {
		t.Run(name, func(t *testing.T) {
			var value, want any
			if err := json.Unmarshal([]byte(test.value), &value); err != nil {
				t.Fatal(err)
			}
			if errs := ValidateExpand(value, field.NewPath("value")); len(errs) > 0 {
				t.Fatal(errs)
			}
			got, err := Expand(value, self, nil)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(test.want), &want); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %s, want %s", text, test.want)
			}
		})
	}
}

func TestValidateExpandNamesTheField(t *testing.T) {
	for value, want := range map[string]string{"${self.": "has no end", "${self.}": "value[0].a"} {
		errs := ValidateExpand([]any{map[string]any{"a": value}}, field.NewPath("value"))
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%s: %v", value, errs)
		}
	}
}

func TestKeysHaveNoExpressions(t *testing.T) {
	value := map[string]any{"a": []any{map[string]any{"x-${self.name}": "b", "$y": "c"}}}
	errs := ValidateExpand(value, field.NewPath("value"))
	if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "value.a[0][x-${self.name}]: ") {
		t.Errorf("got %v", errs)
	}
}

// Conditions contain the errors: if the error changed each time, the condition would be written each time.
func TestOfSeveralErrorsTheFirstIsReturned(t *testing.T) {
	value := map[string]any{"d": "${1/0}${", "c": "${1/0}${", "b": "${1/0}${", "a": "${1/0}${"}
	for range 8 {
		_, expanding := Expand(value, nil, nil)
		_, selecting := Selected(value, "other")
		for _, err := range []error{expanding, selecting, ValidateExpand(value, nil)[0]} {
			if err == nil || !strings.HasPrefix(err.Error(), "a: ") {
				t.Errorf("got %v", err)
			}
		}
	}
}
