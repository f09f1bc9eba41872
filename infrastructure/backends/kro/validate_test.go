package kro

import (
	"fmt"
	"strings"
	"testing"
)

const configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: "${schema.metadata.name}"}}`

func TestMistakesInConfigurations(t *testing.T) {
	one := func(fields string) string { return "resources: [{id: one, " + fields + "}]" }
	for name, test := range map[string]struct{ config, want string }{
		"nothing":                            {`{}`, "spec.backendConfig.resources: Required"},
		"an unknown field":                   {`manifests: []`, `unknown field "manifests"`},
		"too many resources":                 {"resources: [" + many(101) + "]", "spec.backendConfig.resources: Too many: 101"},
		"no id":                              {`resources: [{template: ` + configMap + `}]`, "resources[0].id: Invalid"},
		"an id with a dash":                  {`resources: [{id: a-b, template: ` + configMap + `}]`, "resources[0].id: Invalid"},
		"an id in upper case":                {`resources: [{id: One, template: ` + configMap + `}]`, "resources[0].id: Invalid"},
		"a reserved id":                      {`resources: [{id: schema, template: ` + configMap + `}]`, "resources[0].id: Invalid value: \"schema\": is a reserved word"},
		"an id that is a word of CEL":        {`resources: [{id: in, template: ` + configMap + `}]`, "resources[0].id: Invalid value: \"in\": is a reserved word"},
		"an id twice":                        {`resources: [{id: one, template: ` + configMap + `}, {id: one, template: ` + configMap + `}]`, "resources[1].id: Duplicate"},
		"neither template nor reference":     {`resources: [{id: one}]`, "resources[0].template: Required"},
		"template and reference":             {one(`template: ` + configMap + `, externalRef: {apiVersion: v1, kind: Secret, metadata: {name: a}}`), "resources[0].externalRef: Forbidden"},
		"a template without kind":            {one(`template: {apiVersion: v1, metadata: {name: a}}`), "resources[0].template.kind: Required"},
		"a kind that is an expression":       {one(`template: {apiVersion: v1, kind: "${schema.spec.size}", metadata: {name: a}}`), "resources[0].template.kind: Invalid"},
		"a template without name":            {one(`template: {apiVersion: v1, kind: ConfigMap, metadata: {}}`), "resources[0].template.metadata.name: Required"},
		"metadata that is a text":            {one(`template: {apiVersion: v1, kind: ConfigMap, metadata: a}`), "resources[0].template.metadata: Invalid"},
		"a name that is a number":            {one(`template: {apiVersion: v1, kind: ConfigMap, metadata: {name: 1}}`), "resources[0].template.metadata.name: Required"},
		"a namespace that is a list":         {one(`template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: []}}`), "resources[0].template.metadata.namespace: Invalid"},
		"a generated name":                   {one(`template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, generateName: a}}`), "resources[0].template.metadata.generateName: Forbidden"},
		"another namespace":                  {one(`template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: kube-system}}`), "resources[0].template.metadata.namespace: Invalid"},
		"a namespace that is an expression":  {one(`template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: "${schema.spec.size}"}}`), "resources[0].template.metadata.namespace: Invalid"},
		"a reference into another namespace": {one(`externalRef: {apiVersion: v1, kind: Secret, metadata: {name: a, namespace: kube-system}}`), "resources[0].externalRef.metadata.namespace: Invalid"},
		"a selector in another namespace":    {one(`externalRef: {apiVersion: v1, kind: Secret, metadata: {selector: {}, namespace: kube-system}}`), "resources[0].externalRef.metadata.namespace: Invalid"},
		"a reference with name and selector": {one(`externalRef: {apiVersion: v1, kind: Secret, metadata: {name: a, selector: {}}}`), "resources[0].externalRef.metadata: Invalid"},
		"a reference to nothing":             {one(`externalRef: {apiVersion: v1, kind: Secret, metadata: {}}`), "resources[0].externalRef.metadata: Invalid"},
		"a reference with forEach":           {one(`forEach: [{a: "${schema.spec.users}"}], externalRef: {apiVersion: v1, kind: Secret, metadata: {name: a}}`), "resources[0].forEach: Forbidden"},
		"a selector that is none":            {one(`externalRef: {apiVersion: v1, kind: Secret, metadata: {selector: {matchLabels: {a: "b c"}}}}`), "resources[0].externalRef.metadata.selector.matchLabels: Invalid"},
		"a selector that is a text":          {one(`externalRef: {apiVersion: v1, kind: Secret, metadata: {selector: "a=b"}}`), "resources[0].externalRef.metadata.selector: Invalid"},
		"readyWhen without braces":           {one(`readyWhen: ["true"], template: ` + configMap), "resources[0].readyWhen[0]: Invalid"},
		"includeWhen with text around":       {one(`includeWhen: ["a${true}"], template: ` + configMap), "resources[0].includeWhen[0]: Invalid"},
		"mistakes in both conditions, in order": {one(`includeWhen: [a], readyWhen: [a], template: ` + configMap),
			`resources[0].readyWhen[0]: Invalid value: "a": must be one expression between ${ and }, spec.backendConfig.resources[0].includeWhen[0]`},
		"four dimensions":                             {one(`forEach: [{a: "${[1]}"}, {b: "${[1]}"}, {c: "${[1]}"}, {d: "${[1]}"}], template: ` + configMap), "resources[0].forEach: Too many: 4"},
		"two variables in one dimension":              {one(`forEach: [{a: "${[1]}", b: "${[1]}"}], template: ` + configMap), "resources[0].forEach[0]: Invalid"},
		"a reserved variable":                         {one(`forEach: [{each: "${[1]}"}], template: ` + configMap), "resources[0].forEach[0]: Invalid"},
		"a variable twice":                            {one(`forEach: [{a: "${[1]}"}, {a: "${[1]}"}], template: ` + configMap), "resources[0].forEach[1]: Duplicate"},
		"a variable named as a resource":              {one(`forEach: [{one: "${[1]}"}], template: ` + configMap), "resources[0].forEach[0]: Duplicate"},
		"a list without braces":                       {one(`forEach: [{a: "[1]"}], template: ` + configMap), "resources[0].forEach[0].a: Invalid"},
		"a brace in a string in single quotes":        {one(`template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {list: ["${'{' + schema.spec.size}"]}}`), "resources[0].template.data.list[0]: Invalid"},
		"a double quote in a string in single quotes": {one(`template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: "${'\"' + schema.spec.size}"}}`), "resources[0].template.data.a: Invalid"},
		"a closing brace in such a string":            {one(`template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: "x-${'}' + schema.spec.size}-y"}}`), "resources[0].template.data.a: Invalid"},
		"two of them that look even":                  {one(`template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: "${'{'}${'}'}"}}`), "resources[0].template.data.a: Invalid"},
		"an expression without end":                   {one(`template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: "${schema.spec.size"}}`), "resources[0].template.data.a: Invalid"},
		"such a name of a reference":                  {one(`externalRef: {apiVersion: v1, kind: Secret, metadata: {name: "${'{'}"}}`), "resources[0].externalRef.metadata.name: Invalid"},
		"such a selector":                             {one(`externalRef: {apiVersion: v1, kind: Secret, metadata: {selector: {matchLabels: {a: "${'{'}"}}}}`), "resources[0].externalRef.metadata.selector.matchLabels.a: Invalid"},
		"such a condition":                            {one(`readyWhen: ["${'{' == schema.spec.size}"], template: ` + configMap), "resources[0].readyWhen[0]: Invalid"},
		"such a list":                                 {one(`forEach: [{a: "${['{']}"}], template: ` + configMap), "resources[0].forEach[0].a: Invalid"},
		"such an output":                              {one(`template: `+configMap) + "\nstatusMapping: {hosts: [{name: \"${'{' + schema.spec.size}\"}]}", "statusMapping[hosts][0].name: Invalid"},
		"such an output by the other name":            {one(`template: `+configMap) + "\nstatus: {host: \"${'{'}\"}", "status[host]: Invalid"},
		"such a connection":                           {one(`template: `+configMap) + "\nconnection: {host: \"${'{' + schema.spec.size}\"}", "connection[host]: Invalid"},
		"an expression in a key of an output":         {one(`template: `+configMap) + "\nstatusMapping: {hosts: {\"${schema.spec.size}\": a}}", "statusMapping[hosts][${schema.spec.size}]: Invalid"},
		"an expression in the key of a label":         {one(`template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {"${schema.spec.size}": a}}}`), "resources[0].template.metadata.labels[${schema.spec.size}]: Invalid"},
		"a label that is too long":                    {one(`template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: ` + strings.Repeat("a", 64) + `}}}`), "resources[0].template.metadata.labels[a]: Invalid"},
		"a name that no object has":                   {one(`template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "A-${schema.metadata.name}"}}`), "resources[0].template.metadata.name: Invalid"},
		"a reference that no object has":              {one(`externalRef: {apiVersion: v1, kind: Secret, metadata: {name: a/b}}`), "resources[0].externalRef.metadata.name: Invalid"},
		"status and statusMapping":                    {one(`template: `+configMap) + "\nstatus: {a: b}\nstatusMapping: {a: b}", "spec.backendConfig.status: Forbidden"},
		"an output of the platform":                   {one(`template: `+configMap) + "\nstatusMapping: {phase: \"${schema.spec.size}\"}", "statusMapping[phase]: Forbidden"},
		"the same by the other name":                  {one(`template: `+configMap) + "\nstatus: {conditions: []}", "status[conditions]: Forbidden"},
		"a key that no Secret has":                    {one(`template: `+configMap) + "\nconnection: {\"a b\": \"${schema.spec.size}\"}", "connection[a b]: Invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 8 { // conditions contain the message, so it must be stable
				if _, err := parseConfig(newTemplate(t, "template", test.config)); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want %s", err, test.want)
				}
			}
		})
	}
	missing := newTemplate(t, "template", redis)
	missing.Spec.BackendConfig = nil
	if _, err := parseConfig(missing); err == nil || !strings.Contains(err.Error(), "spec.backendConfig.resources") {
		t.Errorf("without a configuration: %v", err)
	}
}

func TestExpressionsThatTheCompilerFinds(t *testing.T) {
	for _, text := range []string{
		"", "$5", "a${schema.spec.size}b", "${schema.spec.size}", `${"{" + schema.spec.size}`, `${"it's }"}`, `${{"a": {'b': 1}}}`, `${'a' + "\"}"}`, "${'a'}-${\"}\"}",
	} {
		if errs := validateText(text, root()); len(errs) > 0 {
			t.Errorf("%s: %v", text, errs)
		}
	}
}

func many(count int) string {
	var list []string
	for i := range count {
		list = append(list, fmt.Sprintf("{id: r%d, template: %s}", i, configMap))
	}
	return strings.Join(list, ", ")
}

func TestNamespacesAreLeftOut(t *testing.T) {
	for _, namespace := range []string{"default", "${schema.metadata.namespace}", ""} {
		parsed, err := parseConfig(newTemplate(t, "template", `resources: [{id: one, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: "`+namespace+`"}}}]`))
		if err != nil {
			t.Fatalf("namespace %q: %v", namespace, err)
		}
		if metadata := parsed.Resources[0].object()["metadata"].(map[string]any); len(metadata) != 1 {
			t.Errorf("namespace %q: metadata %v", namespace, metadata)
		}
	}
}
