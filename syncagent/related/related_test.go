package related

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
)

const (
	workspaceObject = `{metadata: {name: orig, namespace: team}, spec: {secret: creds, port: 8080, 'on': true, empty: "", none: null, tier: gold,
		list: [{name: a}, {name: b}], holes: [{name: ""}, {name: b}, {}], short: [a], nested: [{names: [a, b]}, {names: [c]}], other: elsewhere}}`
	serviceObject = `{metadata: {name: copied, namespace: cluster1}, spec: {secret: creds-x, port: 8080, 'on': true, empty: "", none: null, tier: gold,
		list: [{name: x}, {name: "y"}], holes: [{name: x}, {name: "y"}, {}], short: [a, b], nested: [{names: [x, "y"]}, {names: [z]}], other: internal},
		status: {onlyHere: s}}`
)

func parseObject(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func labelled(namespace, name string, set labels.Set) unstructured.Unstructured {
	object := unstructured.Unstructured{Object: map[string]any{}}
	object.SetNamespace(namespace)
	object.SetName(name)
	object.SetLabels(set)
	return object
}

// lister returns the selected objects of a namespace, in the given order.
func lister(objects []unstructured.Unstructured) func(context.Context, string, labels.Selector) ([]unstructured.Unstructured, error) {
	return func(_ context.Context, namespace string, selector labels.Selector) ([]unstructured.Unstructured, error) {
		var found []unstructured.Unstructured
		for _, object := range objects {
			if object.GetNamespace() == namespace && selector.Matches(labels.Set(object.GetLabels())) {
				found = append(found, object)
			}
		}
		return found, nil
	}
}

func input(t testing.TB) Input {
	secrets := lister([]unstructured.Unstructured{
		labelled("cluster1", "z", labels.Set{"app": "db", "tier": "gold", "copied": ""}),
		labelled("cluster1", "a", labels.Set{"app": "db"}),
		labelled("cluster1", "other", labels.Set{"app": "web"}),
		labelled("team", "mine", labels.Set{"app": "db"}),
		labelled("ns-b", "b1", labels.Set{"app": "db"}),
		labelled("ns-a", "a1", labels.Set{"app": "db"}),
		labelled("ns-a", "a2", nil),
		labelled("", "global", labels.Set{"app": "db"}),
	})
	namespaces := lister([]unstructured.Unstructured{
		labelled("", "ns-b", labels.Set{"shared": "yes"}), labelled("", "ns-a", labels.Set{"shared": "yes"}), labelled("", "ns-c", nil),
	})
	return Input{
		Workspace: parseObject(t, workspaceObject), Service: parseObject(t, serviceObject),
		ClusterName: "cluster1", ClusterPath: "root:org", List: secrets,
		ListNamespaces: func(ctx context.Context, selector labels.Selector) ([]unstructured.Unstructured, error) {
			return namespaces(ctx, "", selector)
		},
	}
}

func parseSpec(t testing.TB, origin, object string) syncagentv1alpha1.RelatedResourceSpec {
	t.Helper()
	spec := syncagentv1alpha1.RelatedResourceSpec{
		Identifier: "credentials", Origin: syncagentv1alpha1.RelatedResourceOrigin(origin), Kind: "Secret",
	}
	if err := yaml.UnmarshalStrict([]byte(object), &spec.Object); err != nil {
		t.Fatal(err)
	}
	return spec
}

func locateStrings(t testing.TB, spec syncagentv1alpha1.RelatedResourceSpec, in Input) ([]string, error) {
	pairs, err := Locate(t.Context(), spec, in)
	result := []string{}
	for _, pair := range pairs {
		result = append(result, fmt.Sprintf("%s -> %s", pair.Origin, pair.Copy))
	}
	return result, err
}

func TestLocate(t *testing.T) {
	for name, tt := range map[string]struct {
		origin, object string
		want           []string
	}{
		"reference from the workspace":            {"kcp", `{reference: {path: spec.secret}}`, []string{"team/creds -> cluster1/creds-x"}},
		"reference from the service":              {"service", `{reference: {path: spec.secret}}`, []string{"cluster1/creds-x -> team/creds"}},
		"a number is a name":                      {"kcp", `{reference: {path: spec.port}}`, []string{"team/8080 -> cluster1/8080"}},
		"a truth value is a name":                 {"kcp", `{reference: {path: spec.on}}`, []string{"team/true -> cluster1/true"}},
		"a list is paired by position":            {"kcp", `{reference: {path: 'spec.list.#.name'}}`, []string{"team/a -> cluster1/x", "team/b -> cluster1/y"}},
		"lists in lists":                          {"kcp", `{reference: {path: 'spec.nested.#.names'}}`, []string{"team/a -> cluster1/x", "team/b -> cluster1/y", "team/c -> cluster1/z"}},
		"empty names are skipped":                 {"kcp", `{reference: {path: 'spec.holes.#.name'}}`, []string{"team/b -> cluster1/y"}},
		"an empty name":                           {"kcp", `{reference: {path: spec.empty}}`, []string{}},
		"null":                                    {"kcp", `{reference: {path: spec.none}}`, []string{}},
		"a path that is missing":                  {"kcp", `{reference: {path: spec.missing.name}}`, []string{}},
		"a path that is missing on the copy side": {"service", `{reference: {path: status.onlyHere}}`, []string{}},
		"a path that is missing on the origin":    {"kcp", `{reference: {path: status.onlyHere}}`, []string{}},
		"regex":                                   {"kcp", `{reference: {path: spec.secret, regex: {pattern: '^creds', replacement: 'tls'}}}`, []string{"team/tls -> cluster1/tls-x"}},
		"regex with groups on a list":             {"kcp", `{reference: {path: 'spec.list.#.name', regex: {pattern: '(.+)', replacement: '$1-tls'}}}`, []string{"team/a-tls -> cluster1/x-tls", "team/b-tls -> cluster1/y-tls"}},
		"regex without a pattern is a constant":   {"kcp", `{reference: {path: metadata.name, regex: {replacement: 'fixed'}}}`, []string{"team/fixed -> cluster1/fixed"}},
		"regex makes nothing of an empty name":    {"kcp", `{reference: {path: spec.empty, regex: {pattern: '^', replacement: 'prefix-'}}}`, []string{}},
		"regex that empties a name":               {"kcp", `{reference: {path: spec.secret, regex: {pattern: '^creds$', replacement: ''}}}`, []string{}},
		"template":                                {"kcp", `{template: {template: '{{ .Side }}-{{ .Object.metadata.name }}-{{ .ClusterName }}-{{ .ClusterPath | replace ":" "-" }}'}}`, []string{"team/kcp-orig-cluster1-root-org -> cluster1/service-copied-cluster1-root-org"}},
		"template from the service":               {"service", `{template: {template: '{{ .Side }}'}}`, []string{"cluster1/service -> team/kcp"}},
		"template without output":                 {"kcp", `{template: {template: '{{ if eq .Side "kcp" }}x{{ end }}'}}`, []string{}},
		"template with a field that is missing":   {"kcp", `{template: {template: '{{ .Object.status.onlyHere }}-creds'}}`, []string{}},
		"selector is sorted":                      {"service", `{selector: {matchLabels: {app: db}, rewrite: {template: {template: '{{ .Value }}-copy'}}}}`, []string{"cluster1/a -> team/a-copy", "cluster1/z -> team/z-copy"}},
		"selector from the workspace":             {"kcp", `{selector: {matchLabels: {app: db}, rewrite: {regex: {pattern: '^', replacement: 'x-'}}}}`, []string{"team/mine -> cluster1/x-mine"}},
		"selector with expressions":               {"service", `{selector: {matchExpressions: [{key: tier, operator: Exists}], rewrite: {regex: {replacement: fixed}}}}`, []string{"cluster1/z -> team/fixed"}},
		"selector with templates":                 {"service", `{selector: {matchLabels: {'{{ "tier" }}': '{{ .RemoteObject.spec.tier }}'}, rewrite: {regex: {pattern: x, replacement: "y"}}}}`, []string{"cluster1/z -> team/z"}},
		"selector with cluster variables":         {"service", `{selector: {matchLabels: {app: '{{ if eq .ClusterName "cluster1" }}web{{ end }}'}, rewrite: {template: {template: '{{ .ClusterName }}-{{ .ClusterPath | len }}'}}}}`, []string{"cluster1/other -> team/cluster1-8"}},
		"keys that are empty are dropped":         {"service", `{selector: {matchLabels: {'{{ if false }}x{{ end }}': never, app: web}, rewrite: {regex: {pattern: x}}}}`, []string{"cluster1/other -> team/other"}},
		"values may be empty":                     {"service", `{selector: {matchLabels: {copied: '{{ .LocalObject.spec.empty }}'}, rewrite: {regex: {pattern: x}}}}`, []string{"cluster1/z -> team/z"}},
		"without keys that are left: nothing":     {"service", `{selector: {matchLabels: {'{{ .LocalObject.spec.missing }}': x}, rewrite: {regex: {pattern: x}}}}`, []string{}},
		"an empty selector selects all":           {"service", `{selector: {rewrite: {regex: {pattern: x}}}}`, []string{"cluster1/a -> team/a", "cluster1/other -> team/other", "cluster1/z -> team/z"}},
		"rewrite sees objects":                    {"service", `{selector: {matchLabels: {tier: gold}, rewrite: {template: {template: '{{ .LocalObject.metadata.name }}-{{ .RemoteObject.metadata.name }}-{{ .RelatedObject.metadata.labels.app }}'}}}}`, []string{"cluster1/z -> team/copied-orig-db"}},
		"rewrite without output":                  {"service", `{selector: {matchLabels: {app: db}, rewrite: {template: {template: '{{ if eq .Value "a" }}a{{ end }}'}}}}`, []string{"cluster1/a -> team/a"}},
		"namespaces by reference":                 {"kcp", `{reference: {path: spec.secret}, namespace: {reference: {path: spec.other}}}`, []string{"elsewhere/creds -> internal/creds-x"}},
		"a fixed namespace":                       {"kcp", `{reference: {path: spec.secret}, namespace: {reference: {path: metadata.name, regex: {replacement: fixed}}}}`, []string{"fixed/creds -> fixed/creds-x"}},
		"several namespaces by reference":         {"kcp", `{reference: {path: spec.secret}, namespace: {reference: {path: 'spec.list.#.name'}}}`, []string{"a/creds -> x/creds-x", "b/creds -> y/creds-x"}},
		"a namespace that is missing":             {"kcp", `{reference: {path: spec.secret}, namespace: {reference: {path: spec.missing}}}`, []string{}},
		"namespaces by template":                  {"service", `{reference: {path: spec.secret}, namespace: {template: {template: '{{ .Side }}-{{ .ClusterName }}'}}}`, []string{"service-cluster1/creds-x -> kcp-cluster1/creds"}},
		"namespaces by selector": {"service", `{selector: {matchLabels: {app: db}, rewrite: {template: {template: '{{ .Value }}'}}},
			namespace: {selector: {matchLabels: {shared: 'yes'}, rewrite: {template: {template: '{{ .Value }}{{ if .RelatedObject }}never{{ end }}-copy'}}}}}`,
			[]string{"ns-a/a1 -> ns-a-copy/a1", "ns-b/b1 -> ns-b-copy/b1"}},
		"several namespaces of one": {"service", `{selector: {matchLabels: {app: db}, rewrite: {template: {template: '{{ .Value }}'}}},
			namespace: {selector: {matchLabels: {shared: 'yes'}, rewrite: {regex: {replacement: one}}}}}`,
			[]string{"ns-a/a1 -> one/a1", "ns-b/b1 -> one/b1"}},
		"a list of namespaces without names": {"kcp", `{reference: {path: metadata.name}, namespace: {reference: {path: 'spec.list.#.missing'}}}`, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := locateStrings(t, parseSpec(t, tt.origin, tt.object), input(t))
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}

func TestLocateIsRefused(t *testing.T) {
	for name, tt := range map[string]struct{ origin, object, want string }{
		"no locator":                       {"kcp", `{}`, `related resource "credentials": object: exactly one of reference`},
		"two locators":                     {"kcp", `{reference: {path: a}, template: {template: a}}`, "object: exactly one of"},
		"no locator of namespaces":         {"kcp", `{reference: {path: a}, namespace: {}}`, "object.namespace: exactly one of"},
		"counts that differ":               {"kcp", `{reference: {path: spec.short}}`, "object.reference spec.short: 1 names on the kcp side, 2 on the service side"},
		"an object as a name":              {"kcp", `{reference: {path: spec.list}}`, "object.reference spec.list: on the kcp side: is an object"},
		"a path with an error":             {"kcp", `{reference: {path: '.spec'}}`, "object.reference .spec: path"},
		"a pattern with an error":          {"kcp", `{reference: {path: spec.secret, regex: {pattern: '('}}}`, "object.reference spec.secret: pattern"},
		"a name that is invalid":           {"kcp", `{template: {template: '{{ .Side | upper }}'}}`, `object.template: name "KCP" on the kcp side`},
		"a name that is invalid on a copy": {"kcp", `{template: {template: '{{ if eq .Side "service" }}../x{{ else }}x{{ end }}'}}`, `object.template: name "../x" on the service side`},
		"a namespace that is invalid":      {"kcp", `{template: {template: x}, namespace: {template: {template: a.b}}}`, `object.namespace.template: name "a.b" on the kcp side`},
		"a template with an error":         {"service", `{template: {template: '{{ fail .Side }}'}}`, "object.template: on the service side"},
		"no rewrite":                       {"kcp", `{selector: {matchLabels: {a: b}, rewrite: {}}}`, "object.selector: exactly one of rewrite.regex"},
		"a rewrite that is invalid":        {"service", `{selector: {matchLabels: {app: db}, rewrite: {template: {template: '{{ .RelatedObject.spec.x }}'}}}}`, `name "<no value>" on the kcp side`},
		"a rewrite with an error":          {"service", `{selector: {matchLabels: {app: web}, rewrite: {template: {template: '{{ fail "x" }}'}}}}`, "rewrite of other"},
		"a rewrite to one name":            {"service", `{selector: {matchLabels: {app: db}, rewrite: {regex: {replacement: one}}}}`, "team/one would be the copy of both cluster1/a and cluster1/z"},
		"an origin with two copies":        {"kcp", `{reference: {path: 'spec.list.#.name', regex: {pattern: '[ab]', replacement: same}}}`, "team/same would have two copies, cluster1/x and cluster1/y"},
		"a label that is invalid":          {"service", `{selector: {matchLabels: {app: '{{ "not a label" }}'}, rewrite: {regex: {pattern: x}}}}`, "object.selector:"},
		"a label with an error":            {"service", `{selector: {matchLabels: {app: '{{ fail "x" }}'}, rewrite: {regex: {pattern: x}}}}`, `value of "app" in matchLabels`},
		"keys that become one":             {"service", `{selector: {matchLabels: {app: db, '{{ "app" }}': web}, rewrite: {regex: {pattern: x}}}}`, "two keys of matchLabels"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := locateStrings(t, parseSpec(t, tt.origin, tt.object), input(t))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, error %v, want one with %q", got, err, tt.want)
			}
		})
	}
}

func TestScopes(t *testing.T) {
	const byName, bySelector = `{reference: {path: spec.secret}}`, `{selector: {matchLabels: {app: db}, rewrite: {regex: {pattern: x}}}}`
	const inFixed = `{reference: {path: spec.secret}, namespace: {template: {template: 'ns-{{ .Side }}'}}}`
	for name, tt := range map[string]struct {
		origin, object                   string
		originScoped, copyScoped         bool
		workspacePrimary, servicePrimary bool // cluster-scoped primaries
		want                             []string
		err                              string
	}{
		"a primary without a namespace in the workspace": {"kcp", byName, false, false, true, false, []string{}, "object.namespace must be set: the primary object has no namespace on the kcp side"},
		"a primary without a namespace on the service":   {"kcp", byName, false, false, false, true, []string{}, "on the service side"},
		"primaries without namespaces":                   {"kcp", inFixed, false, false, true, true, []string{"ns-kcp/creds -> ns-service/creds-x"}, ""},
		"related objects without namespaces":             {"kcp", byName, true, true, true, true, []string{"/creds -> /creds-x"}, ""},
		"namespaces of them are ignored":                 {"kcp", inFixed, true, true, false, false, []string{"/creds -> /creds-x"}, ""},
		"origins without a namespace":                    {"kcp", byName, true, false, true, false, []string{"/creds -> cluster1/creds-x"}, ""},
		"copies without a namespace":                     {"kcp", inFixed, false, true, true, true, []string{"ns-kcp/creds -> /creds-x"}, ""},
		"copies without a namespace need the other":      {"kcp", byName, false, true, true, false, []string{}, "on the kcp side"},
		"selected without a namespace":                   {"service", bySelector, true, false, false, false, []string{"/global -> team/global"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(t)
			in.OriginClusterScoped, in.CopyClusterScoped = tt.originScoped, tt.copyScoped
			if tt.workspacePrimary {
				in.Workspace.SetNamespace("")
			}
			if tt.servicePrimary {
				in.Service.SetNamespace("")
			}
			got, err := locateStrings(t, parseSpec(t, tt.origin, tt.object), in)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestDuplicatesAreOnePair(t *testing.T) {
	in := input(t)
	for _, primary := range []*unstructured.Unstructured{in.Workspace, in.Service} {
		primary.Object["spec"].(map[string]any)["twice"] = []any{"a", "b", "a"}
	}
	got, err := locateStrings(t, parseSpec(t, "kcp", `{reference: {path: spec.twice}}`), in)
	if diff := cmp.Diff([]string{"team/a -> cluster1/a", "team/b -> cluster1/b"}, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

func TestListsOfConsumersAreBounded(t *testing.T) {
	in := input(t)
	for _, primary := range []*unstructured.Unstructured{in.Workspace, in.Service} {
		list := make([]any, maxPairs+1)
		for i := range list {
			list[i] = fmt.Sprintf("n%d", i)
		}
		primary.Object["spec"].(map[string]any)["many"] = list
	}
	if _, err := locateStrings(t, parseSpec(t, "kcp", `{reference: {path: spec.many}}`), in); err == nil || !strings.Contains(err.Error(), "more than 1000") {
		t.Error(err)
	}
}

func TestErrorsOfListsAreReturned(t *testing.T) {
	in := input(t)
	away := errors.New("the server is away")
	in.List = func(context.Context, string, labels.Selector) ([]unstructured.Unstructured, error) { return nil, away }
	_, err := Locate(t.Context(), parseSpec(t, "service", `{selector: {rewrite: {regex: {pattern: x}}}}`), in)
	if !errors.Is(err, away) {
		t.Error(err)
	}
	in.Service = nil
	if _, err := Locate(t.Context(), parseSpec(t, "service", `{reference: {path: a}}`), in); err == nil {
		t.Error("one side is enough")
	}
}

func TestNamesOfRolesNeedNotBeDNS(t *testing.T) {
	spec := parseSpec(t, "kcp", `{template: {template: 'system:{{ .Side }}'}}`)
	spec.Kind, spec.Group, spec.Version, spec.Resource = "", "rbac.authorization.k8s.io", "v1", "roles"
	got, err := locateStrings(t, spec, input(t))
	if diff := cmp.Diff([]string{"team/system:kcp -> cluster1/system:service"}, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	spec.Projection = &syncagentv1alpha1.RelatedResourceProjection{Group: "example.com"}
	if _, err := locateStrings(t, spec, input(t)); err == nil || !strings.Contains(err.Error(), "on the service side") {
		t.Error(err)
	}
}

func TestResources(t *testing.T) {
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	issuers := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "issuers"}
	type spec = syncagentv1alpha1.RelatedResourceSpec
	type projection = syncagentv1alpha1.RelatedResourceProjection
	for name, tt := range map[string]struct {
		spec         spec
		origin, copy schema.GroupVersionResource
	}{
		"Secret":                     {spec{Kind: "Secret"}, secrets, secrets},
		"ConfigMap":                  {spec{Kind: "ConfigMap"}, configMaps, configMaps},
		"ConfigMap copied as Secret": {spec{Kind: "ConfigMap", Projection: &projection{Resource: "secrets"}}, configMaps, secrets},
		"any resource":               {spec{Group: "example.com", Version: "v1", Resource: "issuers"}, issuers, issuers},
		"of the core group":          {spec{Version: "v1", Resource: "secrets"}, secrets, secrets},
		"copied as something else":   {spec{Version: "v1", Resource: "secrets", Projection: &projection{Group: "example.com", Version: "v1", Resource: "issuers"}}, secrets, issuers},
		"an empty projection":        {spec{Version: "v1", Resource: "secrets", Projection: &projection{}}, secrets, secrets},
		"copied in another version":  {spec{Group: "example.com", Version: "v1", Resource: "issuers", Projection: &projection{Version: "v2"}}, issuers, schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "issuers"}},
	} {
		t.Run(name, func(t *testing.T) {
			if origin := OriginResource(tt.spec); origin != tt.origin {
				t.Errorf("origin %s", origin)
			}
			if copied := CopyResource(tt.spec); copied != tt.copy {
				t.Errorf("copy %s", copied)
			}
		})
	}
}

// FuzzLocate uses arbitrary input of consumers, and expects that the located names are valid and unambiguous.
func FuzzLocate(f *testing.F) {
	f.Add("spec.a.#.b", "^(.*)$", "x-$1", `{"a":[{"b":"c"}]}`, "{{ .Object.spec.a }}")
	f.Add("spec", "", "x", `["a","",null,[1,true]]`, "{{ .Side }}")
	f.Fuzz(func(t *testing.T, path, pattern, replacement, value, template string) {
		in := input(t)
		var decoded any
		if json.Unmarshal([]byte(value), &decoded) != nil {
			return
		}
		in.Workspace.Object["spec"] = decoded
		for _, object := range []syncagentv1alpha1.RelatedResourceObjectSpec{
			{Reference: &syncagentv1alpha1.RelatedResourceObjectReference{Path: path, Regex: &syncagentv1alpha1.RegularExpression{Pattern: pattern, Replacement: replacement}}},
			{Template: &syncagentv1alpha1.TemplateExpression{Template: template}},
		} {
			spec := parseSpec(t, "kcp", `{}`)
			spec.Object.RelatedResourceObjectSpec = object
			pairs, err := Locate(t.Context(), spec, in)
			if err != nil {
				continue
			}
			for i, pair := range pairs {
				for _, name := range []string{pair.Origin.Name, pair.Copy.Name} {
					if strings.ContainsAny(name, "/ \n") || name == "" || name == ".." {
						t.Errorf("located %q", name)
					}
				}
				if i > 0 && compare(pairs[i-1].Origin, pair.Origin) >= 0 {
					t.Errorf("%v is not behind %v", pair, pairs[i-1])
				}
			}
		}
	})
}
