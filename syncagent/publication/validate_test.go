package publication_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

const source = "resource: {apiGroup: example.com, kind: Thing}\n"

func TestValidate(t *testing.T) {
	related := func(entry string) string {
		return source + "related: [{identifier: a, origin: kcp, kind: Secret, " + entry + "}]"
	}
	for _, tc := range []struct {
		name, spec string
		refused    []string // all refused paths, in order
	}{
		{"accepts a source alone", source, nil},
		{"accepts a selection of versions", "resource: {apiGroup: example.com, kind: Thing, versions: [v2, v1]}", nil},
		{"accepts one version in the older form", "resource: {apiGroup: example.com, kind: Thing, version: v1}\nprojection: {version: v2}", nil},
		{"names every mistake at once", "resource: {apiGroup: UPPER, kind: ''}\nprojection: {plural: 'a b', shortNames: [A, b]}",
			[]string{"spec.resource.apiGroup", "spec.resource.kind", "spec.projection.plural", "spec.projection.shortNames[0]"}},
		{"refuses version and versions", "resource: {apiGroup: example.com, kind: Thing, version: v1, versions: [v1]}", []string{"spec.resource.versions"}},
		{"refuses a version twice", "resource: {apiGroup: example.com, kind: Thing, versions: [v1, v2, v1]}", []string{"spec.resource.versions[2]"}},
		{"refuses a kind that is none", "resource: {apiGroup: example.com, kind: A.B}", []string{"spec.resource.kind"}},

		{"refuses a filter that does not parse", source + "filter: {resource: {matchExpressions: [{key: a, operator: Near}]}, namespace: {matchLabels: {a: 'not a value'}}}",
			[]string{"spec.filter.namespace.matchLabels", "spec.filter.resource.matchExpressions[0].operator"}},

		{"refuses the core group without a projection", "resource: {apiGroup: '', kind: ConfigMap}", []string{"spec.projection.group"}},
		{"accepts the core group in another one", "resource: {apiGroup: '', kind: ConfigMap}\nprojection: {group: example.com}", nil},
		{"refuses a group of Kubernetes", source + "projection: {group: things.k8s.io}", []string{"spec.projection.group"}},
		{"refuses an unknown scope", source + "projection: {scope: Global}", []string{"spec.projection.scope"}},
		{"accepts empty lists of names", source + "projection: {shortNames: [], categories: []}", nil},
		{"accepts versions that swap names", "resource: {apiGroup: example.com, kind: Thing, versions: [v1, v2]}\nprojection: {versions: {v1: v2, v2: v1}}", nil},
		{"refuses two versions of one name", source + "projection: {versions: {v1: v3, v2: v3}}", []string{"spec.projection.versions[v2]"}},
		{"refuses the name of a version that stays", "resource: {apiGroup: example.com, kind: Thing, versions: [v1, v2]}\nprojection: {versions: {v1: v2}}", []string{"spec.projection.versions[v1]"}},
		{"accepts the name of a version that is not published", "resource: {apiGroup: example.com, kind: Thing, versions: [v1]}\nprojection: {versions: {v1: v2}}", nil},
		{"refuses one new name for several versions", "resource: {apiGroup: example.com, kind: Thing, versions: [v1, v2]}\nprojection: {version: v3}", []string{"spec.projection.version"}},
		{"refuses both forms of new names", source + "projection: {version: v3, versions: {v1: v2}}", []string{"spec.projection.versions"}},
		{"refuses a version that is no name", source + "projection: {versions: {v1: V2}}", []string{"spec.projection.versions[v1]"}},

		{"accepts placeholders", source + "naming: {namespace: $remoteClusterName, name: 'cert-$remoteNamespaceHash-$remoteNameHash'}", nil},
		{"refuses an unknown placeholder", source + "naming: {namespace: $clusterName}", []string{"spec.naming.namespace"}},
		{"refuses capitals in names", source + "naming: {name: 'Cert-$remoteName'}", []string{"spec.naming.name"}},
		{"refuses a template that does not parse", source + "naming: {name: '{{ .Object.metadata.name'}", []string{"spec.naming.name"}},
		{"accepts templates with functions", source + "naming: {name: '{{ .Object.metadata.name | sha3short }}'}", nil},
		{"accepts a dot in a name", source + "naming: {name: 'a.$remoteName'}", nil},
		{"refuses a dot in a namespace", source + "naming: {namespace: 'a.$remoteClusterName'}", []string{"spec.naming.namespace"}},
		{"accepts a colon in the name of a role", "resource: {apiGroup: rbac.authorization.k8s.io, kind: Role}\nnaming: {name: 'a:$remoteName'}\nprojection: {group: example.com}", nil},

		{"accepts a step of each kind", source + "mutation: {spec: [{delete: {path: spec.a.1}}, {regex: {path: spec.b, pattern: 'a(.*)', replacement: $1}}], status: [{template: {path: status.a, template: ''}}, {cel: {path: status.b, expression: '1'}}]}", nil},
		{"refuses a step without content", source + "mutation: {status: [{}]}", []string{"spec.mutation.status[0]"}},
		{"refuses paths with a leading dot", source + "mutation: {spec: [{delete: {path: .spec.a}}]}", []string{"spec.mutation.spec[0].delete.path"}},
		{"refuses a pattern that does not compile", source + "mutation: {spec: [{regex: {path: a, pattern: '('}}]}", []string{"spec.mutation.spec[0].regex.pattern"}},
		{"refuses an expression that does not compile", source + "mutation: {spec: [{cel: {path: a, expression: 'self.spec +'}}]}", []string{"spec.mutation.spec[0].cel.expression"}},
		{"refuses an expression with unknown variables", source + "mutation: {spec: [{cel: {path: a, expression: nothing.spec}}]}", []string{"spec.mutation.spec[0].cel.expression"}},
		{"refuses a template with unknown functions", source + "mutation: {spec: [{template: {path: a, template: '{{ env \"HOME\" }}'}}]}", []string{"spec.mutation.spec[0].template.template"}},
		{"refuses to write at a path that only reads", source + "mutation: {spec: [{delete: {path: 'a.#.b'}}]}", []string{"spec.mutation.spec[0].delete.path"}},
		{"accepts such a path in a reference", related("object: {reference: {path: 'spec.items.#.name'}}"), nil},
		{"refuses a CEL step without expression", source + "mutation: {spec: [{cel: {path: a, expression: ''}}]}", []string{"spec.mutation.spec[0].cel.expression"}},

		{"refuses an identifier twice", source + "related: [{identifier: a, origin: kcp, kind: Secret, object: {template: {template: a}}}, {identifier: a, origin: kcp, kind: Secret, object: {template: {template: a}}}]",
			[]string{"spec.related[1].identifier"}},
		{"refuses an identifier that is no part of an annotation", source + "related: [{identifier: 'a/b', origin: kcp, kind: Secret, object: {template: {template: a}}}]", []string{"spec.related[0].identifier"}},
		{"refuses no locator", related("object: {}"), []string{"spec.related[0].object"}},
		{"refuses two locators", related("object: {template: {template: a}, reference: {path: a}}"), []string{"spec.related[0].object"}},
		{"refuses two locators of namespaces", related("object: {template: {template: a}, namespace: {template: {template: a}, reference: {path: a}}}"), []string{"spec.related[0].object.namespace"}},
		{"refuses an empty locator of namespaces", related("object: {template: {template: a}, namespace: {}}"), []string{"spec.related[0].object.namespace"}},
		{"refuses a reference without path", related("object: {reference: {path: ''}}"), []string{"spec.related[0].object.reference.path"}},
		{"accepts a constant in place of a reference", related("object: {reference: {path: metadata.uid, regex: {replacement: kube-system}}}"), nil},
		{"refuses a regex without content", related("object: {reference: {path: a, regex: {}}}"), []string{"spec.related[0].object.reference.regex.replacement"}},
		{"refuses a regex that does not compile", related("object: {reference: {path: a, regex: {pattern: '['}}}"), []string{"spec.related[0].object.reference.regex.pattern"}},
		{"refuses an empty template", related("object: {template: {template: ''}}"), []string{"spec.related[0].object.template.template"}},
		{"accepts a selector with templates", related("object: {selector: {matchLabels: {'{{ .ClusterName }}/a': '{{ .ClusterPath }}', b: c}, rewrite: {regex: {pattern: a, replacement: b}}}}"), nil},
		{"refuses a selector that does not parse", related("object: {selector: {matchLabels: {'a b': c}, rewrite: {template: {template: a}}}}"), []string{"spec.related[0].object.selector.matchLabels"}},
		{"refuses a selector without a rewrite", related("object: {selector: {rewrite: {}}}"), []string{"spec.related[0].object.selector.rewrite"}},
		{"refuses a selector with two rewrites", related("object: {selector: {rewrite: {regex: {pattern: a}, template: {template: a}}}}"), []string{"spec.related[0].object.selector.rewrite"}},
		{"refuses related objects of cluster-scoped ones without a namespace", related("object: {template: {template: a}}") + "\nprojection: {scope: Cluster}", []string{"spec.related[0].object.namespace"}},
		{"refuses a watch whose selector does not parse", related("object: {template: {template: a}}, watch: {bySelector: {matchExpressions: [{key: a, operator: In}]}}"), []string{"spec.related[0].watch.bySelector.matchExpressions[0].values"}},
		{"refuses an unknown clean-up policy", related("object: {template: {template: a}}, cleanupPolicy: Never"), []string{"spec.related[0].cleanupPolicy"}},
		{"refuses names in the projection that are none", related("object: {template: {template: a}}, projection: {group: A, version: V, resource: R}"),
			[]string{"spec.related[0].projection.group", "spec.related[0].projection.version", "spec.related[0].projection.resource"}},
		{"refuses mutation steps of related objects", related("object: {template: {template: a}}, mutation: {spec: [{}]}"), []string{"spec.related[0].mutation.spec[0]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var spec syncagentv1alpha1.PublishedResourceSpec
			if err := yaml.UnmarshalStrict([]byte(tc.spec), &spec); err != nil {
				t.Fatal(err)
			}
			errs := publication.Validate(&spec, field.NewPath("spec"))
			matches := len(errs) == len(tc.refused)
			for i := range tc.refused {
				matches = matches && errs[i].Field == tc.refused[i]
			}
			if !matches {
				t.Errorf("refused are %v, want errors at %v", errs, tc.refused)
			}
		})
	}
}

func TestFromPublishedResource(t *testing.T) {
	object := &syncagentv1alpha1.PublishedResource{
		Spec:   syncagentv1alpha1.PublishedResourceSpec{Resource: syncagentv1alpha1.SourceResource{Kind: "Thing", Versions: []string{"v1"}}},
		Status: syncagentv1alpha1.PublishedResourceStatus{ResourceSchemaName: "v1.things.example.com"},
	}
	p := publication.FromPublishedResource(object)
	object.Spec.Resource.Versions[0] = "v2"
	if p.Spec.Resource.Versions[0] != "v1" {
		t.Error("the spec is shared with the object")
	}
	if p.SchemaName != "v1.things.example.com" || p.Object != object {
		t.Errorf("got %+v", p)
	}
	if !p.Syncs() {
		t.Error("objects are synced by default")
	}
	p.Spec.Synchronization = &syncagentv1alpha1.SynchronizationSpec{}
	if p.Syncs() {
		t.Error("disabled, but objects are synced")
	}
}
