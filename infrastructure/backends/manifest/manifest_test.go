package manifest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

func TestExpressionsNameObjectsThatExist(t *testing.T) {
	const known = `{"manifests":[{"id":"main","template":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}},"readyWhen":["has(other.main.data)"]}],` +
		`"outputs":{"size":{"value":"${other.main.data.size}"}},"connection":{"password":"${other.main.data.password}"}}`
	for field, config := range map[string]string{
		"": known,
		"spec.backendConfig.manifests[0].readyWhen[0]": strings.Replace(known, "has(other.main", "has(other.lost", 1),
		"spec.backendConfig.outputs[size]":             strings.Replace(known, "other.main.data.size", "other.lost.data.size", 1),
		"spec.backendConfig.connection[password]":      strings.Replace(known, "other.main.data.password", "other.lost.data.password", 1),
	} {
		template := &infrastructurev1alpha1.Template{}
		template.Spec.BackendConfig = &runtime.RawExtension{Raw: []byte(config)}
		_, err := parseConfig(template)
		if field == "" && err != nil || field != "" && (err == nil || !strings.HasPrefix(err.Error(), field+": ") || !strings.Contains(err.Error(), "other.lost")) {
			t.Errorf("with a mistake at %q: %v", field, err)
		}
	}
}

// TestPartsThatEveryServerRefuses checks that content that every API server refuses is an error in the Template, not in the values of tenants.
func TestPartsThatEveryServerRefuses(t *testing.T) {
	const service = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"${self.metadata.name}"}}`
	for template, field := range map[string]string{
		service: "",
		strings.Replace(service, "${self.metadata.name}", "${self.metadata.name}/${self.spec.size}", 1): "metadata.name: Invalid",
		strings.Replace(service, `"}`, `","labels":{"${self.metadata.name}":"a"}}`, 1):                  "metadata.labels[${self.metadata.name}]: Invalid",
		strings.Replace(service, `"}`, `","labels":{"a":"`+strings.Repeat("a", 64)+`"}}`, 1):            "metadata.labels[a]: Invalid",
		strings.Replace(service, `"}`, `","annotations":{"example.org/generate":"a"}}`, 1):              "metadata.annotations[example.org/generate]: Forbidden",
	} {
		configured := &infrastructurev1alpha1.Template{}
		configured.Spec.InstanceCRD.Group = "example.org"
		configured.Spec.BackendConfig = &runtime.RawExtension{Raw: []byte(`{"manifests":[{"id":"main","template":` + template + `}]}`)}
		_, err := parseConfig(configured)
		if field == "" && err != nil || field != "" && (err == nil || !strings.HasPrefix(err.Error(), "spec.backendConfig.manifests[0].template."+field)) {
			t.Errorf("%s: got %v", template, err)
		}
	}
}

// TestMistakesAreInOrder checks that errors have a stable order: conditions contain the message, and another order would cause a write.
func TestMistakesAreInOrder(t *testing.T) {
	template := &infrastructurev1alpha1.Template{}
	template.Spec.BackendConfig = &runtime.RawExtension{Raw: []byte(`{"manifests":[{"id":"main","template":{"d":"${","c":"${","b":"${","a":"${"}}],` +
		`"outputs":{"d":"${","c":"${","b":"${","a":"${"},"connection":{"d":"${","c":"${","b":"${","a":"${"}}`)}
	_, err := parseConfig(template)
	if err == nil {
		t.Fatal("mistakes are accepted")
	}
	var got []string
	for _, match := range regexp.MustCompile(`spec\.backendConfig\.(\S+): `).FindAllStringSubmatch(err.Error(), -1) {
		got = append(got, strings.TrimPrefix(match[1], "manifests[0]."))
	}
	want := []string{"template.apiVersion", "template.kind", "template.metadata.name", "template.a", "template.b", "template.c", "template.d",
		"outputs[a]", "outputs[b]", "outputs[c]", "outputs[d]", "connection[a]", "connection[b]", "connection[c]", "connection[d]"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// TestExpressionsThatCannotBeEvaluated checks that instances wait for missing fields of expressions, and that other errors are reported to the
// platform team without values of connections.
func TestExpressionsThatCannotBeEvaluated(t *testing.T) {
	self := map[string]any{"spec": map[string]any{"size": "small"}}
	main := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"size": "small", "password": "confidential"}}}
	const failed, waits = infrastructurev1alpha1.PhaseFailed, infrastructurev1alpha1.PhaseProvisioning
	for name, test := range map[string]struct {
		outputs    map[string]any
		connection map[string]string
		readyWhen  string
		phase      infrastructurev1alpha1.InstancePhase
		mistake    []string
	}{
		"all can": {outputs: map[string]any{"size": "${other.main.data.size}"}, connection: map[string]string{"password": "${other.main.data.password}"}, phase: infrastructurev1alpha1.PhaseReady},
		"an output that waits for a field": {
			outputs: map[string]any{"host": map[string]any{"name": "${other.main.status.host}"}}, phase: waits,
			mistake: []string{`spec.backendConfig.outputs[host]: name: CEL expression "other.main.status.host": no such key: status`},
		},
		"an output of another type": {
			outputs: map[string]any{"a": "${other.main.status.host}", "size": "${other.main.data.size + 1}"}, phase: failed,
			mistake: []string{`spec.backendConfig.outputs[size]: CEL expression "other.main.data.size + 1": no such overload`},
		},
		"an output of a value that the instance does not have": {
			outputs: map[string]any{"tier": "${self.spec.tier}"}, phase: failed, mistake: []string{`spec.backendConfig.outputs[tier]: CEL expression "self.spec.tier": no such key: tier`},
		},
		"connections that wait": {
			connection: map[string]string{"d": "${other.main.data.d}", "c": "x${other.main.data.c}"}, phase: waits,
			mistake: []string{"spec.backendConfig.connection[c]: x${other.main.data.c} needs a field", "spec.backendConfig.connection[d]: ${other.main.data.d} needs a field"},
		},
		"a connection that cannot be made": {
			connection: map[string]string{"number": "${int(other.main.data.password)}"}, phase: failed,
			mistake: []string{"spec.backendConfig.connection[number]: ${int(other.main.data.password)} cannot be evaluated"},
		},
		"a condition of another type":    {readyWhen: "other.main.data.size + 1 > 2", phase: waits, mistake: []string{`readyWhen[0] of manifest main: CEL expression "other.main.data.size + 1 > 2": no such overload`}},
		"a condition that does not hold": {readyWhen: "other.main.data.size == 'large'", phase: waits},
	} {
		t.Run(name, func(t *testing.T) {
			c := &config{Outputs: test.outputs, Connection: test.connection, Manifests: []manifest{{ID: "main"}}}
			if test.readyWhen != "" {
				c.Manifests[0].ReadyWhen = []string{test.readyWhen}
			}
			state := c.state(self, c.Manifests, []*unstructured.Unstructured{main})
			lines := strings.Split(state.Mistake, "\n")
			if state.Mistake == "" {
				lines = nil
			}
			if state.Phase != test.phase || strings.Contains(state.Mistake, "confidential") ||
				!slices.EqualFunc(lines, test.mistake, strings.HasPrefix) {
				t.Errorf("got %+v", state)
			}
		})
	}
}

func TestIncludeWhen(t *testing.T) {
	self := map[string]any{"metadata": map[string]any{"name": "mine"}, "spec": map[string]any{"size": "large", "backup": false}}
	object := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "${self.metadata.name}"}}
	for _, test := range []struct {
		condition string
		included  bool
		fails     bool
	}{
		{condition: "", included: true},
		{condition: "self.spec.size == 'large'", included: true},
		{condition: "self.spec.backup"},
		{condition: "has(self.spec.tier) && self.spec.tier == 'gold'"},
		{condition: "self.spec.tier == 'gold'", fails: true},
		{condition: "self.spec.size", fails: true},
		{condition: "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))", fails: true},
	} {
		t.Run(test.condition, func(t *testing.T) {
			parsed := &config{Manifests: []manifest{{ID: "main", Template: object}, {ID: "extra", Template: object, IncludeWhen: test.condition}}}
			wanted, objects, err := parsed.expand(self)
			if (err != nil) != test.fails {
				t.Fatalf("the error is %v", err)
			}
			if test.fails {
				return
			}
			if got := slices.ContainsFunc(wanted, func(m manifest) bool { return m.ID == "extra" }); got != test.included || len(objects) != len(wanted) {
				t.Errorf("wanted %v, %d objects", wanted, len(objects))
			}
		})
	}
}
