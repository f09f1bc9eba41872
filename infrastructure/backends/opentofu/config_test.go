package opentofu

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

const validModule = `
variable "size" { type = string }
variable "region" { default = "here" }
resource "terraform_data" "a" { input = var.size }
output "size" { value = terraform_data.a.output }
output "password" {
  value     = "x"
  sensitive = true
}
`

// template returns a Template with a module of one file, and a configuration that change modifies.
func template(t *testing.T, module string, change func(map[string]any)) *infrastructurev1alpha1.Template {
	t.Helper()
	config := map[string]any{"module": map[string]any{"inline": map[string]any{"main.tf": module}}, "variables": map[string]any{"size": "${self.spec.size}"}, "outputs": []any{"size"}, "connection": []any{"password"}}
	if change != nil {
		change(config)
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return &infrastructurev1alpha1.Template{Spec: infrastructurev1alpha1.TemplateSpec{BackendConfig: &runtime.RawExtension{Raw: text}}}
}

func inline(config map[string]any) map[string]any {
	return config["module"].(map[string]any)["inline"].(map[string]any)
}

// resources sets the memory of runs.
func resources(list, quantity string) func(map[string]any) {
	return func(config map[string]any) {
		of := map[string]any{"requests": map[string]any{"memory": "1Gi"}, "limits": map[string]any{"memory": "1Gi"}}
		of[list] = map[string]any{"memory": quantity}
		config["resources"] = of
	}
}

func TestConfigIsValidated(t *testing.T) {
	for name, test := range map[string]struct {
		add    string // to the module
		change func(map[string]any)
		want   string // empty: the configuration is valid
	}{
		"a valid one": {},
		"files that are no code": {change: func(c map[string]any) {
			inline(c)["cloud-init.yaml"], inline(c)[lockFile] = "a: {", ""
		}},
		"JSON":                      {change: func(c map[string]any) { inline(c)["more.tf.json"] = `{"output": {"b": {"value": "c"}}}` }},
		"a module that is absent":   {change: func(c map[string]any) { delete(c, "module") }, want: "spec.backendConfig.module.inline: Required"},
		"a module of a registry":    {change: func(c map[string]any) { c["module"].(map[string]any)["source"] = "a/b/c" }, want: "spec.backendConfig.module.source: Forbidden"},
		"an unknown field":          {change: func(c map[string]any) { c["chart"] = true }, want: `spec.backendConfig: unknown field "chart"`},
		"a directory":               {change: func(c map[string]any) { inline(c)["a/b.tf"] = "" }, want: "spec.backendConfig.module.inline[a/b.tf]"},
		"a name of the backend":     {change: func(c map[string]any) { inline(c)["atoll_backend.tf.json"] = "{}" }, want: "used by the backend"},
		"values in a file":          {change: func(c map[string]any) { inline(c)["x.auto.tfvars"] = "" }, want: "spec.backendConfig.module.inline[x.auto.tfvars]: Forbidden"},
		"an override":               {change: func(c map[string]any) { inline(c)["main_override.tf.json"] = "{}" }, want: "files that override"},
		"a module that is too long": {change: func(c map[string]any) { inline(c)["a"] = strings.Repeat("a", maxModule) }, want: "spec.backendConfig.module.inline: Too long"},
		"a mistake in the syntax":   {add: `output "x" {`, want: "spec.backendConfig.module.inline[main.tf]: Invalid value: main.tf:10"},
		"a mistake in JSON":         {change: func(c map[string]any) { inline(c)["more.tf.json"] = `{` }, want: "spec.backendConfig.module.inline[more.tf.json]"},
		"an unknown block":          {add: `resuorce "a" "b" {}`, want: "resuorce"},
		"an unknown variable":       {change: func(c map[string]any) { c["variables"].(map[string]any)["sise"] = "a" }, want: `spec.backendConfig.variables[sise]: Unsupported value: "sise": supported values: "region", "size"`},
		"a variable without value":  {change: func(c map[string]any) { delete(c, "variables") }, want: "spec.backendConfig.variables[size]: Required"},
		"an expression with a mistake": {change: func(c map[string]any) { c["variables"] = map[string]any{"size": []any{"${self.}"}} },
			want: "spec.backendConfig.variables[size][0]"},
		"an unknown output":            {change: func(c map[string]any) { c["outputs"] = []any{"size", "x"} }, want: `spec.backendConfig.outputs[1]: Unsupported value: "x"`},
		"a sensitive output":           {change: func(c map[string]any) { c["outputs"] = []any{"password"} }, want: "spec.backendConfig.outputs[0]: Forbidden"},
		"an output of the platform":    {add: `output "phase" { value = "x" }`, change: func(c map[string]any) { c["outputs"] = []any{"phase"} }, want: "spec.backendConfig.outputs[0]: Forbidden"},
		"an output twice":              {change: func(c map[string]any) { c["connection"] = []any{"size", "size"} }, want: "spec.backendConfig.connection[1]: Duplicate"},
		"an interval of nothing":       {change: func(c map[string]any) { c["driftInterval"] = "0s" }, want: "spec.backendConfig.driftInterval"},
		"repair without interval":      {change: func(c map[string]any) { c["autoApply"] = true }, want: "spec.backendConfig.driftInterval: Required"},
		"a timeout of nothing":         {change: func(c map[string]any) { c["timeout"] = "1ms" }, want: "spec.backendConfig.timeout"},
		"a backend of its own":         {add: "terraform {\n  backend \"s3\" {}\n}", want: "main.tf:11,3-15: the state is kept by the backend"},
		"a cloud":                      {add: "terraform {\n  cloud {}\n}", want: "the state is kept by the backend"},
		"encryption by a program":      {add: "terraform {\n  encryption {}\n}", want: "the state is kept by the backend"},
		"a provisioner":                {add: `resource "a" "b" {` + "\n" + `provisioner "local-exec" {}` + "\n}", want: "a provisioner runs programs"},
		"a provisioner at the end":     {add: "removed {\n  from = a.b\n  provisioner \"local-exec\" {}\n}", want: "a provisioner runs programs"},
		"data of a program":            {add: `data "external" "x" {}`, want: "data of external runs programs"},
		"data of a program in a check": {add: "check \"x\" {\n  data \"external\" \"y\" {}\n}", want: "data of external runs programs"},
		"a provisioner in JSON": {change: func(c map[string]any) {
			inline(c)["more.tf.json"] = `{"resource": {"a": {"b": {"provisioner": {"local-exec": {"command": "x"}}}}}}`
		}, want: "a provisioner runs programs"},
		"an expression in a key": {change: func(c map[string]any) {
			c["variables"] = map[string]any{"size": map[string]any{"${self.spec.size}": "x"}}
		}, want: "spec.backendConfig.variables[size][${self.spec.size}]: Invalid"},
		"an image with white space": {change: func(c map[string]any) { c["image"] = "runner " }, want: "spec.backendConfig.image: Invalid"},
		"a name that no Secret has": {change: func(c map[string]any) { c["credentials"] = []any{"cloud", "a/b"} }, want: "spec.backendConfig.credentials[1]: Invalid"},
		"a name that is empty":      {change: func(c map[string]any) { c["credentials"] = []any{""} }, want: "spec.backendConfig.credentials[0]: Invalid"},
		"a request above its limit": {change: resources("requests", "2Gi"), want: "spec.backendConfig.resources.requests[memory]: Invalid"},
		"a negative limit":          {change: resources("limits", "-1"), want: "spec.backendConfig.resources.limits[memory]: Invalid"},
		"a request that is allowed": {change: resources("requests", "1Gi")},
		"a child module":            {add: "module \"x\" {\n  source = \"a/b/c\"\n}", want: "cannot be checked before"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseConfig(template(t, validModule+test.add, test.change), false)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestUnrestrictedModules(t *testing.T) {
	allowed := "data \"external\" \"x\" {}\nmodule \"x\" {\n  source = \"a/b/c\"\n}\nresource \"a\" \"b\" {\n  provisioner \"local-exec\" {}\n}\n"
	if _, err := parseConfig(template(t, validModule+allowed, nil), true); err != nil {
		t.Error(err)
	}
	if _, err := parseConfig(template(t, validModule+"terraform {\n  backend \"s3\" {}\n}", nil), true); err == nil {
		t.Error("a backend of its own is allowed")
	}
}

func TestRevision(t *testing.T) {
	revision := func(t *testing.T, size any, change func(map[string]any)) string {
		t.Helper()
		parsed, err := parseConfig(template(t, validModule, change), false)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parsed.inputs(map[string]any{"spec": map[string]any{"size": size}})
		if err != nil {
			t.Fatal(err)
		}
		return got.settings.Revision
	}
	before := revision(t, "small", nil)
	for name, test := range map[string]struct {
		size    any
		change  func(map[string]any)
		changes bool
	}{
		"nothing":       {size: "small"},
		"a value":       {size: "large", changes: true},
		"the module":    {size: "small", change: func(c map[string]any) { inline(c)["main.tf"] = validModule + "\n" }, changes: true},
		"the outputs":   {size: "small", change: func(c map[string]any) { c["outputs"] = []any{} }, changes: true},
		"how runs run":  {size: "small", change: func(c map[string]any) { c["image"], c["timeout"] = "other", "1h" }},
		"drift's check": {size: "small", change: func(c map[string]any) { c["driftInterval"] = "1h" }},
	} {
		t.Run(name, func(t *testing.T) {
			if got := revision(t, test.size, test.change); (got != before) != test.changes {
				t.Errorf("the revision is %s, before %s", got, before)
			}
		})
	}
}
