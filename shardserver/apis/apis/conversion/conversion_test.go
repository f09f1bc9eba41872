package conversion

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

func mustParse[T any](t *testing.T, text string) *T {
	t.Helper()
	var obj T
	if err := yaml.UnmarshalStrict([]byte(text), &obj); err != nil {
		t.Fatal(err)
	}
	return &obj
}

func expectEqual(t *testing.T, got, want any) {
	t.Helper()
	if equality.Semantic.DeepEqual(got, want) {
		return
	}
	gotText, _ := yaml.Marshal(got)
	wantText, _ := yaml.Marshal(want)
	t.Errorf("got\n%s\nwant\n%s", gotText, wantText)
}

func TestExportsToV1alpha2(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"resources are derived from the names of schemas": {
			in: `{spec: {latestResourceSchemas: [v1.widgets.example.com, v1.pods.core]}}`,
			want: `{spec: {resources: [{name: widgets, group: example.com, schema: v1.widgets.example.com, storage: {crd: {}}},
				{name: pods, group: "", schema: v1.pods.core, storage: {crd: {}}}]}}`,
		},
		"fields that v1alpha1 lacks are restored from annotations": {
			in: `{metadata: {annotations: {own: kept,
				apis.v1alpha2.kcp.io/resource-schemas: '[{"name":"b","group":"example.com","schema":"v1.b.example.com","storage":{"virtual":{"identityHash":"i","reference":{"kind":"K","name":"a"}}}}]',
				apis.v1alpha2.kcp.io/permission-claims: '[{"group":"","resource":"pods","verbs":["get"],"identityHash":""}]'}},
				spec: {latestResourceSchemas: [v1.a.example.com], permissionClaims: [{resource: pods, all: true}, {resource: secrets, all: true}]}}`,
			want: `{metadata: {annotations: {own: kept, apis.v1alpha2.kcp.io/v1alpha1-permission-claims: '[{"resource":"pods","all":true},{"resource":"secrets","all":true}]'}},
				spec: {resources: [{name: a, group: example.com, schema: v1.a.example.com, storage: {crd: {}}},
					{name: b, group: example.com, schema: v1.b.example.com, storage: {virtual: {identityHash: i, reference: {kind: K, name: a}}}}],
					permissionClaims: [{group: "", resource: pods, verbs: [get], identityHash: ""}, {group: "", resource: secrets, verbs: ["*"], identityHash: ""}]}}`,
		},
		"unusable annotations are kept, for admission": {
			in:   `{metadata: {annotations: {apis.v1alpha2.kcp.io/permission-claims: '[{"resource":"pods","verbs":["get"]}]', apis.v1alpha2.kcp.io/resource-schemas: nonsense}}, spec: {}}`,
			want: `{metadata: {annotations: {apis.v1alpha2.kcp.io/permission-claims: '[{"resource":"pods","verbs":["get"]}]', apis.v1alpha2.kcp.io/resource-schemas: nonsense}}, spec: {}}`,
		},
		"identity, policy and status are equal in both versions": {
			in:   `{spec: {identity: {secretRef: {name: a, namespace: b}}, maximalPermissionPolicy: {local: {}}}, status: {identityHash: h, virtualWorkspaces: [{url: u}], conditions: [{type: A, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`,
			want: `{spec: {identity: {secretRef: {name: a, namespace: b}}, maximalPermissionPolicy: {local: {}}}, status: {identityHash: h, virtualWorkspaces: [{url: u}], conditions: [{type: A, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := mustParse[apisv1alpha1.APIExport](t, tc.in)
			before, got := in.DeepCopy(), &apisv1alpha2.APIExport{}
			if err := ExportToV1alpha2(in, got); err != nil {
				t.Fatal(err)
			}
			expectEqual(t, got, mustParse[apisv1alpha2.APIExport](t, tc.want))
			expectEqual(t, in, before)
		})
	}

	if err := ExportToV1alpha2(mustParse[apisv1alpha1.APIExport](t, `{spec: {latestResourceSchemas: [v1.widgets]}}`), &apisv1alpha2.APIExport{}); err == nil {
		t.Error("a name of a schema without a group converts")
	}
}

func TestExportsToV1alpha1(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"fields that v1alpha1 lacks are preserved in annotations": {
			in: `{spec: {resources: [{name: a, group: example.com, schema: v1.a.example.com, storage: {crd: {}}},
					{name: b, group: example.com, schema: v1.b.example.com, storage: {virtual: {identityHash: i, reference: {kind: K, name: a}}}}],
					permissionClaims: [{group: "", resource: pods, verbs: [get], identityHash: ""}, {group: "", resource: secrets, verbs: ["*"], identityHash: ""}]}}`,
			want: `{metadata: {annotations: {
				apis.v1alpha2.kcp.io/resource-schemas: '[{"name":"b","group":"example.com","schema":"v1.b.example.com","storage":{"virtual":{"reference":{"apiGroup":null,"kind":"K","name":"a"},"identityHash":"i"}}}]',
				apis.v1alpha2.kcp.io/permission-claims: '[{"group":"","resource":"pods","verbs":["get"],"identityHash":""},{"group":"","resource":"secrets","verbs":["*"],"identityHash":""}]'}},
				spec: {latestResourceSchemas: [v1.a.example.com], permissionClaims: [{resource: pods, all: true}, {resource: secrets, all: true}]}}`,
		},
		"claims on all objects need no annotation": {
			in:   `{spec: {permissionClaims: [{group: "", resource: secrets, verbs: ["*"], identityHash: ""}]}}`,
			want: `{spec: {permissionClaims: [{resource: secrets, all: true}]}}`,
		},
		"a schema with another name pattern is not in latestResourceSchemas": {
			in:   `{spec: {resources: [{name: widgets, group: example.com, schema: a.b.widgets.example.com, storage: {crd: {}}}]}}`,
			want: `{metadata: {annotations: {apis.v1alpha2.kcp.io/resource-schemas: '[{"name":"widgets","group":"example.com","schema":"a.b.widgets.example.com","storage":{"crd":{}}}]'}}, spec: {}}`,
		},
		"selectors are restored from the annotation": {
			in: `{metadata: {annotations: {apis.v1alpha2.kcp.io/v1alpha1-permission-claims: '[{"resource":"pods","resourceSelector":[{"name":"a"}]},{"resource":"gone","all":true}]'}},
				spec: {permissionClaims: [{group: "", resource: pods, verbs: ["*"], identityHash: ""}]}}`,
			want: `{spec: {permissionClaims: [{resource: pods, resourceSelector: [{name: a}]}]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := mustParse[apisv1alpha2.APIExport](t, tc.in)
			before, got := in.DeepCopy(), &apisv1alpha1.APIExport{}
			if err := ExportToV1alpha1(in, got); err != nil {
				t.Fatal(err)
			}
			expectEqual(t, got, mustParse[apisv1alpha1.APIExport](t, tc.want))
			expectEqual(t, in, before)
		})
	}
}

func TestBindingsToV1alpha2(t *testing.T) {
	in := mustParse[apisv1alpha1.APIBinding](t, `{metadata: {annotations: {
			apis.v1alpha2.kcp.io/acceptable-permission-claims: '[{"group":"","resource":"pods","verbs":["get"],"identityHash":"","selector":{"matchLabels":{"a":"b"}},"state":"Rejected"}]'}},
		spec: {reference: {export: {path: root, name: e}}, permissionClaims: [{resource: pods, all: true, state: Accepted}, {resource: secrets, resourceSelector: [{name: a}], state: Rejected}]},
		status: {phase: Bound, apiExportClusterName: c, exportPermissionClaims: [{resource: pods, all: true}], appliedPermissionClaims: [{resource: pods, all: true}],
			boundResources: [{group: g, resource: r, schema: {name: s, UID: u, identityHash: i}, storageVersions: [v1]}]}}`)
	want := mustParse[apisv1alpha2.APIBinding](t, `{metadata: {annotations: {
			apis.v1alpha2.kcp.io/v1alpha1-permission-claims: '[{"resource":"secrets","resourceSelector":[{"name":"a"}]}]',
			apis.v1alpha2.kcp.io/v1alpha1-status-export-permission-claims: '[{"resource":"pods","all":true}]',
			apis.v1alpha2.kcp.io/v1alpha1-status-applied-permission-claims: '[{"resource":"pods","all":true}]'}},
		spec: {reference: {export: {path: root, name: e}}, permissionClaims: [
			{group: "", resource: pods, verbs: [get], identityHash: "", selector: {matchLabels: {a: b}}, state: Accepted},
			{group: "", resource: secrets, verbs: ["*"], identityHash: "", selector: {matchAll: true}, state: Rejected}]},
		status: {phase: Bound, apiExportClusterName: c, exportPermissionClaims: [{group: "", resource: pods, verbs: ["*"], identityHash: ""}],
			appliedPermissionClaims: [{group: "", resource: pods, verbs: ["*"], identityHash: "", selector: {matchAll: true}}],
			boundResources: [{group: g, resource: r, schema: {name: s, UID: u, identityHash: i}, storageVersions: [v1]}]}}`)
	got := &apisv1alpha2.APIBinding{}
	if err := BindingToV1alpha2(in, got); err != nil {
		t.Fatal(err)
	}
	expectEqual(t, got, want)
}

func TestDeletionPolicyInV1alpha1(t *testing.T) {
	const annotated, plain = `{metadata: {annotations: {own: kept, apis.kcp.io/deletion-policy: WaitForSuccessor}}}`, `{metadata: {annotations: {own: kept}}}`
	for name, tc := range map[string]struct{ in, want string }{
		"another policy than the default": {`{metadata: {annotations: {own: kept}}, spec: {deletionPolicy: WaitForSuccessor}}`, annotated},
		"the default":                     {`{metadata: {annotations: {own: kept}}, spec: {deletionPolicy: Delete}}`, plain},
		"a client's own annotation":       {annotated, plain},
	} {
		t.Run(name, func(t *testing.T) {
			got := &apisv1alpha1.APIBinding{}
			if err := BindingToV1alpha1(mustParse[apisv1alpha2.APIBinding](t, tc.in), got); err != nil {
				t.Fatal(err)
			}
			expectEqual(t, got, mustParse[apisv1alpha1.APIBinding](t, tc.want))
		})
	}
	got := &apisv1alpha2.APIBinding{}
	if err := BindingToV1alpha2(mustParse[apisv1alpha1.APIBinding](t, annotated), got); err != nil {
		t.Fatal(err)
	}
	expectEqual(t, got, mustParse[apisv1alpha2.APIBinding](t, `{metadata: {annotations: {own: kept}}, spec: {deletionPolicy: WaitForSuccessor}}`))
}

func TestBindingsToV1alpha1(t *testing.T) {
	in := mustParse[apisv1alpha2.APIBinding](t, `{spec: {reference: {export: {path: root, name: e}}, permissionClaims: [
			{group: "", resource: pods, verbs: [get], identityHash: "", selector: {matchAll: true}, state: Accepted},
			{group: "", resource: secrets, verbs: ["*"], identityHash: "", selector: {matchAll: true}, state: Rejected}]}}`)
	want := mustParse[apisv1alpha1.APIBinding](t, `{metadata: {annotations: {
			apis.v1alpha2.kcp.io/acceptable-permission-claims: '[{"group":"","resource":"pods","verbs":["get"],"identityHash":"","selector":{"matchAll":true},"state":"Accepted"}]'}},
		spec: {reference: {export: {path: root, name: e}}, permissionClaims: [{resource: pods, all: true, state: Accepted}, {resource: secrets, all: true, state: Rejected}]}}`)
	got := &apisv1alpha1.APIBinding{}
	if err := BindingToV1alpha1(in, got); err != nil {
		t.Fatal(err)
	}
	expectEqual(t, got, want)
}

func TestListConversionsPreserveNil(t *testing.T) {
	if mapItems[int, int](nil, func(i int) int { return i }) != nil {
		t.Error("nothing became an empty list")
	}
	meta := metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}
	tracked := &annotationEditor{annotations: meta.Annotations}
	tracked.remove("other")
	if tracked.copied {
		t.Error("annotations are copied though nothing changes")
	}
}
