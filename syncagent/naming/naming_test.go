package naming

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/expression"
)

func object(namespace, name string) *unstructured.Unstructured {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	return &unstructured.Unstructured{Object: map[string]any{"metadata": metadata, "spec": map[string]any{"team": "blue"}}}
}

func TestKey(t *testing.T) {
	nameHash, namespaceHash := expression.ShortHash("objname"), expression.ShortHash("objnamespace")
	for name, tt := range map[string]struct {
		naming        *syncagentv1alpha1.ResourceNaming
		object        *unstructured.Unstructured
		clusterScoped bool
		want          string
	}{
		"the default":                      {nil, object("objnamespace", "objname"), false, "cluster1/2928c2aa0e510f017f07-73d08a1ba188f1340dae"},
		"empty patterns":                   {&syncagentv1alpha1.ResourceNaming{}, object("objnamespace", "objname"), false, "cluster1/2928c2aa0e510f017f07-73d08a1ba188f1340dae"},
		"the default without a namespace":  {nil, object("", "objname"), false, "cluster1/a7ffc6f8bf1ed76651c1-73d08a1ba188f1340dae"},
		"a copy without a namespace":       {&syncagentv1alpha1.ResourceNaming{Namespace: "{{ fail \"unused\" }}"}, object("objnamespace", "objname"), true, "/2928c2aa0e510f017f07-73d08a1ba188f1340dae"},
		"templates":                        {&syncagentv1alpha1.ResourceNaming{Name: "{{ .Object.metadata.name }}.{{ .Object.spec.team }}", Namespace: "{{ .ClusterPath | replace \":\" \"-\" }}"}, object("a", "b"), false, "root-org-team/b.blue"},
		"placeholders":                     {&syncagentv1alpha1.ResourceNaming{Name: "$remoteNamespace-$remoteName", Namespace: "kdp-$remoteClusterName"}, object("a", "b"), false, "kdp-cluster1/a-b"},
		"placeholders of hashes":           {&syncagentv1alpha1.ResourceNaming{Name: "$remoteNamespaceHash-$remoteNameHash"}, object("objnamespace", "objname"), false, "cluster1/" + namespaceHash + "-" + nameHash},
		"the same placeholder twice":       {&syncagentv1alpha1.ResourceNaming{Name: "$remoteName-$remoteName"}, object("a", "b"), false, "cluster1/b-b"},
		"a placeholder's value is no text": {&syncagentv1alpha1.ResourceNaming{Name: "x-{{ .Object.metadata.name }}"}, object("a", "remotename"), false, "cluster1/x-remotename"},
		"a long name":                      {nil, object("a", strings.Repeat("x", 250)), false, "cluster1/" + mustRender(t, `{{ sha3short "a" }}-{{ repeat 250 "x" | sha3short }}`)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Key(tt.naming, Input{Object: tt.object, ClusterName: "cluster1", ClusterPath: "root:org:team", ClusterScoped: tt.clusterScoped})
			if err != nil || got.String() != tt.want {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

func mustRender(t *testing.T, template string) string {
	out, err := expression.Render(template, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestKeyIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		naming syncagentv1alpha1.ResourceNaming
		want   string
	}{
		"a template with an error":  {syncagentv1alpha1.ResourceNaming{Name: "{{ .Object"}, "naming.name: template"},
		"a field that is missing":   {syncagentv1alpha1.ResourceNaming{Name: "x-{{ .Object.spec.nothing }}"}, "lacks a field"},
		"nothing":                   {syncagentv1alpha1.ResourceNaming{Namespace: "{{ if false }}x{{ end }}"}, "naming.namespace:"},
		"a name that is too long":   {syncagentv1alpha1.ResourceNaming{Name: "{{ repeat 300 .Object.metadata.name }}"}, "must be no more than 253"},
		"a namespace with dots":     {syncagentv1alpha1.ResourceNaming{Namespace: "a.b"}, "naming.namespace:"},
		"an unknown placeholder":    {syncagentv1alpha1.ResourceNaming{Name: "$localName"}, `gives "$localName"`},
		"a path as the namespace":   {syncagentv1alpha1.ResourceNaming{Namespace: "{{ .ClusterPath }}"}, `gives "root:org"`},
		"slashes that leave a path": {syncagentv1alpha1.ResourceNaming{Name: "../$remoteName"}, "naming.name:"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Key(&tt.naming, Input{Object: object("a", "b"), ClusterName: "cluster1", ClusterPath: "root:org"})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %s, error %v, want one with %q", got, err, tt.want)
			}
		})
	}
}

func TestDefaultKeysDiffer(t *testing.T) {
	seen := map[types.NamespacedName]string{}
	for _, cluster := range []string{"c1", "c2"} {
		for _, o := range []*unstructured.Unstructured{object("a", "b"), object("a-b", "c"), object("a", "b-c"), object("", "b"), object("b", "a")} {
			key, err := Key(nil, Input{Object: o, ClusterName: cluster})
			if err != nil {
				t.Fatal(err)
			}
			id := cluster + "|" + o.GetNamespace() + "/" + o.GetName()
			if other, found := seen[key]; found {
				t.Errorf("%s and %s are both %s", id, other, key)
			}
			seen[key] = id
		}
	}
}

func FuzzKey(f *testing.F) {
	f.Add("$remoteNamespaceHash-$remoteName", "{{ .ClusterName }}", "ns", "name")
	f.Add("$remoteNameHash$remoteNamespace", "$remoteClusterName", "", "$remoteName")
	f.Fuzz(func(t *testing.T, pattern, namespacePattern, namespace, name string) {
		key, err := Key(&syncagentv1alpha1.ResourceNaming{Name: pattern, Namespace: namespacePattern}, Input{Object: object(namespace, name), ClusterName: "c"})
		if err != nil {
			return
		}
		if len(validation.IsDNS1123Subdomain(key.Name)) > 0 || len(validation.IsDNS1123Label(key.Namespace)) > 0 {
			t.Errorf("invalid: %q", key)
		}
	})
}
