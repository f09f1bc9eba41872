package publishedresource_test

import (
	"strings"
	"testing"
)

// TestWarnings: consumers must not be able to name any Secret of the service cluster without the owner's knowledge.
func TestWarnings(t *testing.T) {
	for name, tc := range map[string]struct {
		related, mutation string
		want              []string // the fields that warnings are about
	}{
		"a field of the spec":                        {`{origin: service, object: {reference: {path: spec.secretName}}}`, "", []string{"spec.related[0].object: consumers write spec.secretName"}},
		"a namespace":                                {`{origin: service, object: {reference: {path: status.secret}, namespace: {reference: {path: spec.space}}}}`, "", []string{"spec.related[0].object.namespace: consumers write spec.space"}},
		"a label in a template":                      {`{origin: service, object: {template: {template: '{{ .Object.metadata.labels.secret }}'}}}`, "", []string{"spec.related[0].object: consumers write metadata.labels.secret"}},
		"the spec in a selector":                     {`{origin: service, object: {selector: {matchLabels: {owner: '{{ .Object.spec.owner }}'}, rewrite: {template: {template: '{{ .Value }}'}}}}}`, "", []string{"spec.related[0].object: consumers write spec.owner"}},
		"a name and a namespace":                     {`{origin: service, object: {reference: {path: spec.a}, namespace: {template: {template: 'x-{{ .Object.spec.b }}'}}}}`, "", []string{"consumers write spec.a", "consumers write spec.b"}},
		"a regex":                                    {`{origin: service, object: {reference: {path: spec.secretName, regex: {pattern: '^', replacement: 'mine-'}}}}`, "", nil},
		"the name of the copy":                       {`{origin: service, object: {template: {template: '{{ .Object.metadata.name }}-credentials'}}}`, "", nil},
		"the status":                                 {`{origin: service, object: {reference: {path: status.secret.name}}}`, "", nil},
		"an object of the consumer":                  {`{origin: kcp, object: {reference: {path: spec.secretName}}}`, "", nil},
		"a field that the owner sets":                {`{origin: service, object: {reference: {path: spec.secret.name}}}`, `{spec: [{cel: {path: spec.secret, expression: "{'name': 'x'}"}}]}`, nil},
		"another field is set":                       {`{origin: service, object: {reference: {path: spec.secretName}}}`, `{spec: [{delete: {path: spec.secret}}]}`, []string{"consumers write spec.secretName"}},
		"the status that consumers see is set, only": {`{origin: service, object: {reference: {path: spec.secretName}}}`, `{status: [{delete: {path: spec.secretName}}]}`, []string{"consumers write spec.secretName"}},
	} {
		t.Run(name, func(t *testing.T) {
			input := newer + "spec:\n  resource: {apiGroup: example.com, kind: Thing}\n  related:\n  - " + strings.Replace(tc.related, "{", "{identifier: x, kind: Secret, ", 1) + "\n"
			if tc.mutation != "" {
				input += "  mutation: " + tc.mutation + "\n"
			}
			out, failed := run(t, input, "validate", "--offline", "-")
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if failed != "" || lines[len(lines)-1] != `PublishedResource "a" is valid` || len(lines) != len(tc.want)+1 {
				t.Fatalf("got %q, %s, want %d warnings", out, failed, len(tc.want))
			}
			for i, want := range tc.want {
				if !strings.HasPrefix(lines[i], `Warning: PublishedResource "a": `) || !strings.Contains(lines[i], want) {
					t.Errorf("got %q, want %s", lines[i], want)
				}
			}
		})
	}
}

// TestWarningsOfWrites: owners know before they apply it which writes the agent refuses, and which it does not.
func TestWarningsOfWrites(t *testing.T) {
	kcp := func(namespace string) string {
		return "related: [{identifier: x, kind: Secret, origin: kcp, object: {reference: {path: spec.secretName}, namespace: " + namespace + "}}]"
	}
	const refused = "spec.related[0].object.namespace: it depends on the object of a consumer"
	for name, tc := range map[string]struct{ annotations, spec, want string }{
		"a namespace of the object":               {"", kcp("{reference: {path: spec.namespace}}"), refused},
		"a namespace by a pattern":                {"", kcp("{reference: {path: spec.namespace, regex: {pattern: '^', replacement: 'a-'}}}"), refused},
		"a namespace by a template":               {"", kcp("{template: {template: 'a-{{ .Object.spec.namespace }}'}}"), refused},
		"a namespace by the name of the original": {"", kcp("{selector: {matchLabels: {a: b}, rewrite: {template: {template: 'a-{{ .Value }}'}}}}"), refused},
		"a namespace that is allowed":             {"{syncagent.kcp.io/allowed-namespaces: 'a-*'}", kcp("{template: {template: 'a-{{ .Object.spec.namespace }}'}}"), ""},
		"a constant":                              {"", kcp("{template: {template: shared}}"), ""},
		"the logical cluster":                     {"", kcp("{template: {template: '{{ .ClusterName }}-data'}}"), ""},
		"copies in a namespace of the object":     {"", "naming: {namespace: '{{ .Object.metadata.namespace }}'}", "spec.naming.namespace: consumers choose the namespace of copies"},
		"copies in one by a placeholder":          {"", "naming: {namespace: $remoteNamespace}", "spec.naming.namespace: consumers choose the namespace of copies"},
		"copies in one of the logical cluster":    {"", "naming: {namespace: '{{ .ClusterName }}-{{ .Object.metadata.namespace }}'}", ""},
		"copies in one namespace":                 {"", "naming: {namespace: databases}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			input := newer + "spec:\n  resource: {apiGroup: example.com, kind: Thing}\n  " + tc.spec + "\n"
			if tc.annotations != "" {
				input = strings.Replace(input, "metadata: {name: a}", "metadata: {name: a, annotations: "+tc.annotations+"}", 1)
			}
			out, failed := run(t, input, "validate", "--offline", "-")
			warning, found := strings.CutPrefix(out, `Warning: PublishedResource "a": `)
			if failed != "" || found != (tc.want != "") || !strings.HasPrefix(warning, tc.want) && found {
				t.Errorf("got %q, %s, want a warning %q", out, failed, tc.want)
			}
		})
	}
}
