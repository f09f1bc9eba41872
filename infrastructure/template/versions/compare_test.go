package versions

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func TestCompare(t *testing.T) {
	for _, test := range []struct {
		name, before, after string
		want                []string
	}{
		{"no change", `{"type":"object","properties":{"a":{"type":"string"}}}`, `{"type":"object","properties":{"a":{"type":"string"}}}`, nil},
		{"description, default and title", `{"type":"string"}`, `{"type":"string","description":"x","title":"y","default":"z"}`, nil},
		{"an optional field", `{"type":"object"}`, `{"type":"object","properties":{"a":{"type":"string"}}}`, nil},
		{"a required field with a default", `{"type":"object"}`, `{"type":"object","required":["a"],"properties":{"a":{"type":"string","default":"x"}}}`, nil},
		{"a required field without", `{"type":"object"}`, `{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}`, []string{"spec.a: the field is newly required and has no default"}},
		{"a field that becomes required", `{"type":"object","properties":{"a":{"type":"string"}}}`, `{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}`, []string{"spec.a: the field is newly required and has no default"}},
		{"a field that is no longer required", `{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}`, `{"type":"object","properties":{"a":{"type":"string"}}}`, nil},
		{"a removed field", `{"type":"object","properties":{"a":{"type":"string"}}}`, `{"type":"object"}`, []string{"spec.a: the field is removed"}},
		{"another type", `{"type":"object","properties":{"a":{"type":"string"}}}`, `{"type":"object","properties":{"a":{"type":"integer"}}}`, []string{"spec.a: the type changes from string to integer"}},
		{"a wider enum", `{"type":"string","enum":["a"]}`, `{"type":"string","enum":["a","b"]}`, nil},
		{"a narrower enum", `{"type":"string","enum":["a","b"]}`, `{"type":"string","enum":["a"]}`, []string{`spec: the enum loses "b"`}},
		{"a new enum", `{"type":"string"}`, `{"type":"string","enum":["a"]}`, []string{"spec: the value is newly restricted to an enum"}},
		{"an enum that goes", `{"type":"string","enum":["a"]}`, `{"type":"string"}`, nil},
		{"wider limits", `{"type":"integer","minimum":2,"maximum":5}`, `{"type":"integer","minimum":1,"maximum":6}`, nil},
		{"a higher minimum", `{"type":"integer","minimum":2}`, `{"type":"integer","minimum":3}`, []string{"spec: minimum is new or narrower: 3"}},
		{"a lower maximum", `{"type":"integer","maximum":2}`, `{"type":"integer","maximum":1}`, []string{"spec: maximum is new or narrower: 1"}},
		{"a new maximum of lengths", `{"type":"string"}`, `{"type":"string","maxLength":3}`, []string{"spec: maxLength is new or narrower: 3"}},
		{"a new pattern", `{"type":"string"}`, `{"type":"string","pattern":"a"}`, []string{"spec: the pattern is new or changes (?)"}},
		{"a pattern that goes", `{"type":"string","pattern":"a"}`, `{"type":"string"}`, nil},
		{"a new format", `{"type":"string"}`, `{"type":"string","format":"date"}`, []string{"spec: the format is new or changes (?)"}},
		{"no longer nullable", `{"type":"string","nullable":true}`, `{"type":"string"}`, []string{"spec: null is no longer allowed"}},
		{"a new rule", `{"type":"object"}`, `{"type":"object","x-kubernetes-validations":[{"rule":"self.a"}]}`, []string{`spec: the rule "self.a" is new (?)`}},
		{"a rule with another message", `{"type":"object","x-kubernetes-validations":[{"rule":"self.a"}]}`, `{"type":"object","x-kubernetes-validations":[{"rule":"self.a","message":"m"}]}`, nil},
		{"within elements", `{"type":"array","items":{"type":"string"}}`, `{"type":"array","items":{"type":"integer"}}`, []string{"spec[]: the type changes from string to integer"}},
		{"within values of a map", `{"type":"object","additionalProperties":{"type":"string"}}`, `{"type":"object","additionalProperties":{"type":"string","minLength":1}}`, []string{"spec.*: minLength is new or narrower: 1"}},
		{"unknown fields are no longer kept", `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`, `{"type":"object"}`, []string{"spec: a keyword changes whose effect on existing instances is not known (?)"}},
		{"a field where unknown fields are kept", `{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"a":{"type":"string"}}}`, `{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"a":{"type":"string"},"b":{"type":"integer"}}}`, []string{"spec.b: the field gets a schema, and had any value before (?)"}},
		{"a list that becomes a set", `{"type":"array","items":{"type":"string"}}`, `{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"}`, []string{"spec: a keyword changes whose effect on existing instances is not known (?)"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var a, b apiextensionsv1.JSONSchemaProps
			if err := errors.Join(json.Unmarshal([]byte(test.before), &a), json.Unmarshal([]byte(test.after), &b)); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, change := range Compare(&a, &b) {
				if !change.Breaking {
					change.Text += " (?)"
				}
				got = append(got, change.Text)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
