package discovery

import (
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	shared "github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
)

// newCompiled returns discovery of resources that are given as "<group>/<version>/<resource>".
func newCompiled(resources ...string) *Compiled {
	compiled := &Compiled{}
	for _, resource := range resources {
		parts := strings.Split(resource, "/")
		added := group{name: parts[0], versions: []groupVersion{{
			name:         parts[1],
			aggregated:   []apidiscoveryv2.APIResourceDiscovery{{Resource: parts[2]}},
			unaggregated: []metav1.APIResource{{Name: parts[2]}, {Name: parts[2] + "/status"}},
		}}}
		if last := len(compiled.groups) - 1; last >= 0 && compiled.groups[last].name == parts[0] {
			compiled.groups[last].versions = append(compiled.groups[last].versions, added.versions...)
		} else {
			compiled.groups = append(compiled.groups, added)
		}
		compiled.addResources(added)
	}
	return compiled
}

// newDefinition returns an established definition of "<resource>.<group>".
func newDefinition(name string, versions ...string) *apiextensions.CustomResourceDefinition {
	plural, group, _ := strings.Cut(name, ".")
	object := &apiextensions.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strings.Join(versions, ",")}}
	object.Spec = apiextensions.CustomResourceDefinitionSpec{Group: group, Names: apiextensions.CustomResourceDefinitionNames{Plural: plural}}
	for i, version := range versions {
		served := !strings.HasSuffix(version, "-unserved")
		object.Spec.Versions = append(object.Spec.Versions, apiextensions.CustomResourceDefinitionVersion{Name: version, Served: served, Storage: i == 0})
	}
	object.Status.AcceptedNames = object.Spec.Names
	object.Status.Conditions = []apiextensions.CustomResourceDefinitionCondition{{Type: apiextensions.Established, Status: apiextensions.ConditionTrue}}
	return object
}

func TestMergeGroups(t *testing.T) {
	notEstablished := newDefinition("widgets.example.com", "v1")
	notEstablished.Status.Conditions = nil
	for name, tc := range map[string]struct {
		compiled    *Compiled
		hidden      []schema.GroupResource
		definitions []*apiextensions.CustomResourceDefinition
		want        []string
	}{
		"built-in groups keep their order, groups of definitions follow by name": {
			compiled:    newCompiled("/v1/secrets", "z.io/v1/zebras", "a.io/v1/apes"),
			definitions: []*apiextensions.CustomResourceDefinition{newDefinition("cows.m.io", "v1"), newDefinition("bees.b.io", "v1")},
			want:        []string{"/v1: secrets", "z.io/v1: zebras", "a.io/v1: apes", "b.io/v1: bees", "m.io/v1: cows"},
		},
		"served versions in the order of Kubernetes": {
			compiled:    newCompiled(),
			definitions: []*apiextensions.CustomResourceDefinition{newDefinition("cows.m.io", "v1alpha1", "v2", "v10", "v3-unserved", "v1beta1", "v1")},
			want:        []string{"m.io/v10: cows", "m.io/v2: cows", "m.io/v1: cows", "m.io/v1beta1: cows", "m.io/v1alpha1: cows"},
		},
		"definitions extend a built-in group, whose preferred version is kept": {
			compiled:    newCompiled("a.io/v1alpha1/apes"),
			definitions: []*apiextensions.CustomResourceDefinition{newDefinition("cows.a.io", "v1alpha1", "v1", "v2")},
			want:        []string{"a.io/v1alpha1: apes cows", "a.io/v2: cows", "a.io/v1: cows"},
		},
		"a definition of a visible built-in resource is ignored": {
			compiled:    newCompiled("a.io/v1/apes"),
			definitions: []*apiextensions.CustomResourceDefinition{newDefinition("apes.a.io", "v1", "v2")},
			want:        []string{"a.io/v1: apes"},
		},
		"a definition of a hidden built-in resource is served": {
			compiled:    newCompiled("a.io/v1/apes", "a.io/v1beta1/apes", "b.io/v1/bees"),
			hidden:      []schema.GroupResource{{Group: "a.io", Resource: "apes"}},
			definitions: []*apiextensions.CustomResourceDefinition{newDefinition("apes.a.io", "v2")},
			want:        []string{"a.io/v2: apes", "b.io/v1: bees"},
		},
		"a group without visible resources is omitted": {
			compiled: newCompiled("a.io/v1/apes", "b.io/v1/bees"),
			hidden:   []schema.GroupResource{{Group: "a.io", Resource: "apes"}},
			want:     []string{"b.io/v1: bees"},
		},
		"definitions that are not established, serve no version or are never served are ignored": {
			compiled:    newCompiled("b.io/v1/bees"),
			definitions: []*apiextensions.CustomResourceDefinition{notEstablished, newDefinition("cows.m.io", "v1-unserved"), newDefinition("pigs.barred.io", "v1")},
			want:        []string{"b.io/v1: bees"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := &APISet{Compiled: tc.compiled, Hidden: tc.hidden}
			if err := newHasher(shared.NewSpecInterner().HashOf).addDefinitions(t.Context(), set, filterOwnDefinitions(tc.definitions...)); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, group := range set.mergeGroups() {
				for _, version := range group.versions {
					line := group.name + "/" + version.name + ":"
					for _, resource := range version.aggregated {
						line += " " + resource.Resource
					}
					got = append(got, line)
					if !set.Serves(schema.GroupVersion{Group: group.name, Version: version.name}) {
						t.Errorf("%s/%s is listed but not served", group.name, version.name)
					}
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

// filterOwnDefinitions returns the logical cluster's own definitions, where those of barred.io are never served.
func filterOwnDefinitions(definitions ...*apiextensions.CustomResourceDefinition) []CandidateDefinition {
	resolver := &Resolver{overlapsBuiltIn: func(resource schema.GroupResource) bool { return resource.Group == "barred.io" }}
	return resolver.ownDefinitions(definitions)
}

func TestCacheKeys(t *testing.T) {
	set := func(change func(*apiextensions.CustomResourceDefinition)) *APISet {
		object := newDefinition("cows.m.io", "v1")
		change(object)
		built := &APISet{Compiled: newCompiled("/v1/secrets")}
		if err := newHasher(shared.NewSpecInterner().HashOf).addDefinitions(t.Context(), built, filterOwnDefinitions(object)); err != nil {
			t.Fatal(err)
		}
		return built
	}
	plain := set(func(*apiextensions.CustomResourceDefinition) {})
	for name, tc := range map[string]struct {
		change               func(*apiextensions.CustomResourceDefinition)
		sameKey, sameSchemas bool
	}{
		"equal definitions have the same documents": {func(object *apiextensions.CustomResourceDefinition) {
			object.UID, object.ResourceVersion, object.Labels = "other", "7", map[string]string{"a": "b"}
		}, true, true},
		"the conversion does not affect documents": {func(object *apiextensions.CustomResourceDefinition) {
			object.Spec.Conversion = &apiextensions.CustomResourceConversion{Strategy: apiextensions.WebhookConverter}
		}, true, true},
		"terminating affects discovery only": {func(object *apiextensions.CustomResourceDefinition) {
			apiextensions.SetCRDCondition(object, apiextensions.CustomResourceDefinitionCondition{Type: apiextensions.Terminating, Status: apiextensions.ConditionTrue})
		}, false, true},
		"accepted names affect both": {func(object *apiextensions.CustomResourceDefinition) {
			object.Status.AcceptedNames.ShortNames = []string{"c"}
		}, false, false},
		"a schema affects both": {func(object *apiextensions.CustomResourceDefinition) {
			object.Spec.Versions[0].Schema = &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{Type: "object"}}
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			changed := set(tc.change)
			if same := changed.Key() == plain.Key(); same != tc.sameKey {
				t.Errorf("the same documents of discovery: %t", same)
			}
			if same := changed.SchemaKey() == plain.SchemaKey(); same != tc.sameSchemas {
				t.Errorf("the same documents of schemas: %t", same)
			}
			core := schema.GroupVersion{Version: "v1"}
			if _, unchanged := changed.VersionKey(core); !unchanged {
				t.Error("a definition of another group changes the core group")
			}
		})
	}
}
