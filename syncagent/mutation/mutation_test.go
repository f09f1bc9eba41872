package mutation

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

const source = `
apiVersion: example.com/v1
kind: Widget
metadata: {name: w, namespace: ns, labels: {team: blue}}
spec: {size: 24, host: "a.example.com", html: "<&>", items: [{name: a}, {name: b}], nested: {k: v}, none: null}
status: {phase: Ready}
`

const counterpart = `{metadata: {name: copy, namespace: copies}, spec: {size: 1}}`

func parse(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	// UnmarshalJSON would require a kind.
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	if spec, ok := object.Object["spec"].(map[string]any); ok && spec["size"] != nil {
		spec["size"] = int64(spec["size"].(float64))
	}
	return object
}

func parseSteps(t testing.TB, text string) []syncagentv1alpha1.ResourceMutation {
	t.Helper()
	var steps []syncagentv1alpha1.ResourceMutation
	if err := yaml.UnmarshalStrict([]byte(text), &steps); err != nil {
		t.Fatal(err)
	}
	return steps
}

func TestApply(t *testing.T) {
	for name, tt := range map[string]struct {
		steps string
		// want are the fields that differ, by path.
		want map[string]any
	}{
		"no steps":                                {`[]`, nil},
		"delete a field":                          {`[{delete: {path: spec.host}}]`, map[string]any{"spec.host": nil}},
		"delete an element":                       {`[{delete: {path: spec.items.1}}]`, map[string]any{"spec.items": []any{map[string]any{"name": "a"}}}},
		"delete what is missing":                  {`[{delete: {path: spec.missing.field}}]`, nil},
		"delete a label":                          {`[{delete: {path: metadata.labels.team}}]`, map[string]any{"metadata.labels": map[string]any{}}},
		"regex with groups":                       {`[{regex: {path: spec.host, pattern: '^([a-z]+)\.', replacement: '$1-x.'}}]`, map[string]any{"spec.host": "a-x.example.com"}},
		"regex replaces all":                      {`[{regex: {path: spec.host, pattern: 'e', replacement: 'E'}}]`, map[string]any{"spec.host": "a.ExamplE.com"}},
		"regex without replacement":               {`[{regex: {path: spec.host, pattern: 'e'}}]`, map[string]any{"spec.host": "a.xampl.com"}},
		"regex without pattern":                   {`[{regex: {path: spec.host, replacement: 'b$1'}}]`, map[string]any{"spec.host": "b$1"}},
		"regex of a number":                       {`[{regex: {path: spec.size, pattern: '2', replacement: '3'}}]`, map[string]any{"spec.size": "34"}},
		"regex of an object":                      {`[{regex: {path: spec.nested, pattern: '"v"', replacement: '"w"'}}]`, map[string]any{"spec.nested": `{"k":"w"}`}},
		"regex of null":                           {`[{regex: {path: spec.none, pattern: '^$', replacement: 'x'}}]`, map[string]any{"spec.none": "x"}},
		"regex of a missing field":                {`[{regex: {path: spec.new.field, pattern: '^$', replacement: 'x'}}]`, map[string]any{"spec.new": map[string]any{"field": "x"}}},
		"regex of HTML":                           {`[{regex: {path: spec.html, pattern: '&', replacement: '"'}}]`, map[string]any{"spec.html": `<">`}},
		"template with the value":                 {`[{template: {path: spec.host, template: '{{ .Value.String | upper }}'}}]`, map[string]any{"spec.host": "A.EXAMPLE.COM"}},
		"template is not escaped":                 {`[{template: {path: spec.host, template: '{{ .LocalObject.spec.html }}"'}}]`, map[string]any{"spec.host": `<&>"`}},
		"template with both objects":              {`[{template: {path: spec.host, template: '{{ .LocalObject.metadata.name }}-{{ .RemoteObject.metadata.name }}'}}]`, map[string]any{"spec.host": "w-copy"}},
		"template without output":                 {`[{template: {path: spec.host, template: '{{ if false }}x{{ end }}'}}]`, map[string]any{"spec.host": ""}},
		"template with a missing field":           {`[{template: {path: spec.host, template: 'x{{ .RemoteObject.spec.missing }}'}}]`, map[string]any{"spec.host": "x"}},
		"template of a number":                    {`[{template: {path: spec.size, template: '{{ add .Value.Int 1 }}'}}]`, map[string]any{"spec.size": "25"}},
		"template of an annotation":               {`[{template: {path: 'metadata.annotations.example\.com/a', template: 'x'}}]`, map[string]any{"metadata.annotations": map[string]any{"example.com/a": "x"}}},
		"cel of the value":                        {`[{cel: {path: spec.size, expression: 'value * 2'}}]`, map[string]any{"spec.size": int64(48)}},
		"cel with both objects":                   {`[{cel: {path: spec.host, expression: "self.metadata.name + other.metadata.name"}}]`, map[string]any{"spec.host": "wcopy"}},
		"cel with a list":                         {`[{cel: {path: spec.items, expression: "value.map(i, i.name)"}}]`, map[string]any{"spec.items": []any{"a", "b"}}},
		"cel with a map":                          {`[{cel: {path: spec.nested, expression: "{'a': [1, 'x'], 'b': self.spec.nested}"}}]`, map[string]any{"spec.nested": map[string]any{"a": []any{int64(1), "x"}, "b": map[string]any{"k": "v"}}}},
		"cel of a missing field":                  {`[{cel: {path: spec.new, expression: "value == null"}}]`, map[string]any{"spec.new": true}},
		"cel appends":                             {`[{cel: {path: spec.items.-1, expression: "{'name': 'c'}"}}]`, map[string]any{"spec.items": []any{map[string]any{"name": "a"}, map[string]any{"name": "b"}, map[string]any{"name": "c"}}}},
		"steps see what earlier ones did":         {`[{delete: {path: spec.items.0}}, {regex: {path: spec.items.0.name, replacement: c}}, {cel: {path: spec.host, expression: "self.spec.items[0].name"}}]`, map[string]any{"spec.items": []any{map[string]any{"name": "c"}}, "spec.host": "c"}},
		"delete precedes regex, template and cel": {`[{cel: {path: spec.size, expression: '1'}, template: {path: spec.size, template: t}, regex: {path: spec.size, replacement: r}, delete: {path: spec.host}}]`, map[string]any{"spec.host": nil}},
		"regex precedes template and cel":         {`[{cel: {path: spec.host, expression: '1'}, template: {path: spec.host, template: t}, regex: {path: spec.host, replacement: r}}]`, map[string]any{"spec.host": "r"}},
		"template precedes cel":                   {`[{cel: {path: spec.host, expression: '1'}, template: {path: spec.host, template: t}}]`, map[string]any{"spec.host": "t"}},
		"status":                                  {`[{regex: {path: status.phase, pattern: Ready, replacement: Up}}]`, map[string]any{"status": map[string]any{"phase": "Up"}}},
	} {
		t.Run(name, func(t *testing.T) {
			object, other, want := parse(t, source), parse(t, counterpart), parse(t, source)
			for path, value := range tt.want {
				fields := strings.Split(path, ".")
				if value == nil {
					unstructured.RemoveNestedField(want.Object, fields...)
				} else if err := unstructured.SetNestedField(want.Object, value, fields...); err != nil {
					t.Fatal(err)
				}
			}
			if err := Apply(parseSteps(t, tt.steps), object, other); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Object, object.Object); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(parse(t, counterpart).Object, other.Object); diff != "" {
				t.Errorf("the counterpart has been changed: %s", diff)
			}
		})
	}
}

func TestErrorsNameStepAndPath(t *testing.T) {
	for name, tt := range map[string]struct{ steps, want string }{
		"nothing set":                  {`[{delete: {path: spec.host}}, {}]`, "step 1: one of delete, regex, template and cel must be set"},
		"identity":                     {`[{regex: {path: metadata.name, replacement: x}}]`, "step 0 (regex metadata.name): of the metadata, only labels"},
		"identity with an escape":      {`[{regex: {path: 'metada\ta.name', replacement: x}}]`, "only labels"},
		"namespace":                    {`[{template: {path: metadata.namespace, template: x}}]`, "only labels"},
		"finalizers":                   {`[{delete: {path: metadata.finalizers}}]`, "step 0 (delete metadata.finalizers): of the metadata"},
		"the whole metadata":           {`[{cel: {path: metadata, expression: "{}"}}]`, "only labels"},
		"wildcards":                    {`[{delete: {path: 'meta*.name'}}]`, "may be read only"},
		"kind":                         {`[{cel: {path: kind, expression: "'x'"}}]`, "step 0 (cel kind): kind cannot be mutated"},
		"apiVersion":                   {`[{delete: {path: apiVersion}}]`, "apiVersion cannot be mutated"},
		"an empty path":                {`[{delete: {path: ''}}]`, "step 0 (delete ): the path is empty"},
		"a path of many":               {`[{regex: {path: 'spec.items.#.name', replacement: x}}]`, "may be read only"},
		"a pattern with an error":      {`[{regex: {path: spec.host, pattern: '(', replacement: x}}]`, "step 0 (regex spec.host): pattern"},
		"a template with an error":     {`[{template: {path: spec.host, template: '{{'}}]`, "step 0 (template spec.host): template"},
		"a function that is not pure":  {`[{template: {path: spec.host, template: '{{ env "HOME" }}'}}]`, "not defined"},
		"an expression with an error":  {`[{cel: {path: spec.host, expression: '1 +'}}]`, "step 0 (cel spec.host): CEL expression"},
		"labels that are numbers":      {`[{cel: {path: metadata.labels.size, expression: '1'}}]`, "metadata.labels must have values of type string"},
		"annotations that are a text":  {`[{regex: {path: metadata.annotations, replacement: x}}]`, "metadata.annotations must have"},
		"an index behind the end":      {`[{regex: {path: spec.items.9, replacement: x}}]`, "behind the end"},
		"a text that grows":            {`[{cel: {path: spec.host, expression: "lists.range(10000).map(i, self)"}}]`, "larger than"},
		"the second of the same steps": {`[{delete: {path: spec.host}}, {delete: {path: spec..host}}]`, "step 1 (delete spec..host): path"},
	} {
		t.Run(name, func(t *testing.T) {
			object := parse(t, source)
			if name == "a text that grows" {
				object.Object["spec"].(map[string]any)["host"] = strings.Repeat("x", 1000)
			}
			err := Apply(parseSteps(t, tt.steps), object, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestTheCounterpartIsNeverNull(t *testing.T) {
	for _, other := range []*unstructured.Unstructured{nil, {}} {
		object := parse(t, source)
		steps := parseSteps(t, `[{cel: {path: spec.host, expression: "has(other.spec) ? 'some' : 'none'"}}, {template: {path: spec.html, template: '{{ .RemoteObject.spec }}'}}]`)
		if err := Apply(steps, object, other); err != nil {
			t.Fatal(err)
		}
		if host, _, _ := unstructured.NestedString(object.Object, "spec", "host"); host != "none" {
			t.Errorf("got %q", host)
		}
	}
}

// FuzzApply changes objects with arbitrary paths and texts, and expects that their identity does not change.
func FuzzApply(f *testing.F) {
	f.Add("metadata.name", "a", "b", "{{ .Value }}", "value")
	f.Add("metadata.labels.x", "", "b", "{{ .LocalObject.kind }}", "self")
	f.Add("kind", "^", "b", "", "null")
	f.Fuzz(func(t *testing.T, path, pattern, replacement, template, cel string) {
		for _, step := range []syncagentv1alpha1.ResourceMutation{
			{Delete: &syncagentv1alpha1.ResourceDeleteMutation{Path: path}},
			{Regex: &syncagentv1alpha1.ResourceRegexMutation{Path: path, Pattern: pattern, Replacement: replacement}},
			{Template: &syncagentv1alpha1.ResourceTemplateMutation{Path: path, Template: template}},
			{CEL: &syncagentv1alpha1.ResourceCELMutation{Path: path, Expression: cel}},
		} {
			object := parse(t, source)
			if Apply([]syncagentv1alpha1.ResourceMutation{step}, object, nil) != nil {
				continue
			}
			if object.GetName() != "w" || object.GetNamespace() != "ns" || object.GetKind() != "Widget" || object.GetAPIVersion() != "example.com/v1" {
				t.Errorf("%+v changes the identity to %v", step, object.Object)
			}
			if _, err := json.Marshal(object.Object); err != nil {
				t.Errorf("%+v: %v", step, err)
			}
		}
	})
}
