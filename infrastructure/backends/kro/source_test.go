package kro

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestSource(t *testing.T) {
	template := newTemplate(t, "template", `
resources:
- {id: one, forEach: [{user: "${schema.spec.users}"}], readyWhen: ["${each.data.a == 'b'}"], template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${user}"}, data: {}}}
- {id: two, includeWhen: ["${schema.spec.backup}"], externalRef: {apiVersion: v1, kind: Secret, metadata: {name: a, namespace: default}}}
- {id: three, externalRef: {apiVersion: v1, kind: Secret, metadata: {selector: {matchLabels: {a: b}}}}}
statusMapping: {a: "${schema.spec.size}", b: 3, c: {d: x, e: "${two.metadata.name}"}, f: [1, 2], g: ["${schema.spec.size}"]}
connection: {password: "p-${schema.spec.size}"}
`)
	parsed, err := parseConfig(template)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSource(template, parsed)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.InstanceGVR().String(); got != group+"/v1alpha1, Resource=redis" || !s.InstanceNamespaced() {
		t.Errorf("instances are %s", got)
	}
	resources := s.Resources()
	if r := resources[0]; r.ID != "one" || r.ExternalRef || len(r.ForEach) != 1 || len(r.ReadyWhen) != 1 {
		t.Errorf("one: %+v", r)
	}
	if r := resources[1]; !r.ExternalRef || r.Collection || r.Order != 1 || cmp.Diff(r.Object["metadata"], map[string]any{"name": "a"}) != "" {
		t.Errorf("two: %+v", r)
	}
	if r := resources[2]; !r.ExternalRef || !r.Collection || cmp.Diff(r.Object["metadata"], map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}}) != "" {
		t.Errorf("three: %+v", r)
	}
	var status map[string]any
	if err := json.Unmarshal(s.StatusRaw(), &status); err != nil {
		t.Fatal(err)
	}
	wanted := map[string]any{
		"outputs":    map[string]any{"a": "${schema.spec.size}", "c": map[string]any{"e": "${two.metadata.name}"}, "g": []any{"${schema.spec.size}"}},
		"connection": map[string]any{"password": "p-${schema.spec.size}"},
	}
	if diff := cmp.Diff(wanted, status); diff != "" {
		t.Errorf("status: %s", diff)
	}
	merged := merge(map[string]any{"a": "small", "c": map[string]any{"e": "name"}}, s.constants)
	if diff := cmp.Diff(map[string]any{"a": "small", "b": int64(3), "c": map[string]any{"d": "x", "e": "name"}, "f": []any{int64(1), int64(2)}}, merged); diff != "" {
		t.Errorf("outputs: %s", diff)
	}
	properties := s.SchemaVarSchema().Properties
	if _, found := properties["spec"].Properties["users"]; !found || len(properties["metadata"].Properties) != 3 || len(properties) != 2 {
		t.Errorf("schema: %v", properties)
	}
}

func TestMistakesInOutputs(t *testing.T) {
	for name, test := range map[string]struct{ config, want string }{
		"a list of both":             {`statusMapping: {a: {b: ["${schema.spec.size}", x]}}`, "statusMapping[a][b]: Invalid"},
		"a nested expression":        {`statusMapping: {a: "${schema.spec.${x}}"}`, "statusMapping[a]: Invalid"},
		"several, the first":         {`statusMapping: {d: "${b.${x}}", c: "${b.${x}}", b: "${b.${x}}", a: "${b.${x}}"}`, "statusMapping[a]: Invalid"},
		"a connection that is known": {`connection: {password: secret}`, "connection[password]: Invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			template := newTemplate(t, "template", "resources: [{id: one, template: "+configMap+"}]\n"+test.config)
			parsed, err := parseConfig(template)
			if err == nil {
				_, err = newSource(template, parsed)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestProjection(t *testing.T) {
	template := newTemplate(t, "redis", redis)
	i := newInstance(t, template, "tenant", "mine", "size: small")
	const namespace = types.UID("0a8b9d6e-6f2f-4d53-a3a1-3b5e4a3f9a11")
	got := project(i, namespace)
	uid := string(got.GetUID())
	want := map[string]any{"apiVersion": group + "/v1alpha1", "kind": "Redis",
		"metadata": map[string]any{"name": "mine", "namespace": "tenant", "uid": uid}, "spec": map[string]any{"size": "small"}}
	if diff := cmp.Diff(want, got.Object); diff != "" {
		t.Error(diff)
	}
	if uid == string(i.Object.GetUID()) || uid == "" || uid != string(project(i, namespace).GetUID()) {
		t.Errorf("UID %s", uid)
	}
	if uid == string(project(i, "7c9f2f6e-6f2f-4d53-a3a1-3b5e4a3f9a11").GetUID()) {
		t.Error("the UID does not depend on what tenants do not know")
	}
	got.Object["spec"].(map[string]any)["size"] = "large"
	if i.Object.Object["spec"].(map[string]any)["size"] != "small" {
		t.Error("the copy shares its spec with the instance")
	}
	empty := i
	empty.Object = i.Object.DeepCopy()
	delete(empty.Object.Object, "spec")
	if spec := project(empty, namespace).Object["spec"]; spec == nil {
		t.Error("an instance without spec has none in expressions")
	}
}

func TestIsSet(t *testing.T) {
	object := map[string]any{"status": map[string]any{"outputs": map[string]any{"a": nil, "b.c": []any{map[string]any{"d": "e"}}}}}
	for path, want := range map[string]bool{
		"status.outputs.a": true, `status.outputs["b.c"][0].d`: true, `status.outputs["b.c"][1].d`: false, "status.outputs.b": false, "status.outputs.a.b": false,
	} {
		if got := isSet(object, path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
