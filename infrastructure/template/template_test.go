package template

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/template/versions"
)

const redisSchema = `{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"size":{"type":"string","enum":["small","medium","large"],"default":"small"},"version":{"type":"string","enum":["6","7"],"default":"7"}}}`

func redis(changes ...func(*infrastructurev1alpha1.Template)) *infrastructurev1alpha1.Template {
	t := &infrastructurev1alpha1.Template{
		ObjectMeta: metav1.ObjectMeta{Name: "redis", UID: "1", CreationTimestamp: metav1.Unix(1000, 0)},
		Spec: infrastructurev1alpha1.TemplateSpec{
			DisplayName: "Redis cache", Category: "Databases", Version: "0.1.0", Backend: "kro",
			InstanceCRD: infrastructurev1alpha1.InstanceCRD{Group: infrastructurev1alpha1.GroupName, Version: "v1alpha1", Kind: "Redis", Resource: "redis"},
			Schema:      runtime.RawExtension{Raw: []byte(redisSchema)},
		},
	}
	for _, change := range changes {
		change(t)
	}
	return t
}

func withSchema(schema string) func(*infrastructurev1alpha1.Template) {
	return func(t *infrastructurev1alpha1.Template) { t.Spec.Schema.Raw = []byte(schema) }
}

func withNames(kind, resource string) func(*infrastructurev1alpha1.Template) {
	return func(t *infrastructurev1alpha1.Template) {
		t.Spec.InstanceCRD.Kind, t.Spec.InstanceCRD.Resource = kind, resource
	}
}

func TestValidate(t *testing.T) {
	older := redis(func(t *infrastructurev1alpha1.Template) {
		t.Name, t.UID, t.CreationTimestamp = "older", "0", metav1.Unix(10, 0)
	})
	plural, list := older.DeepCopy(), older.DeepCopy()
	withNames("Redis", "redises")(plural)
	withNames("OtherList", "otherlists")(list)
	younger := redis(func(t *infrastructurev1alpha1.Template) {
		t.Name, t.UID, t.CreationTimestamp = "younger", "2", metav1.NewTime(time.Unix(2000, 0))
	})
	for _, test := range []struct {
		name     string
		template *infrastructurev1alpha1.Template
		others   []infrastructurev1alpha1.Template
		want     []string // beginnings of messages, in order
	}{
		{"a good one", redis(), nil, nil},
		{"beside itself", redis(), []infrastructurev1alpha1.Template{*redis()}, nil},
		{"who wanted the kind first has it", redis(), []infrastructurev1alpha1.Template{*younger}, nil},
		{"who wanted it later does not", redis(), []infrastructurev1alpha1.Template{*older}, []string{`spec.instanceCRD.resource: Duplicate value: "redis, of Template older"`, `spec.instanceCRD.kind: Duplicate value: "Redis, of Template older"`}},
		{"of another group", redis(func(t *infrastructurev1alpha1.Template) { t.Spec.InstanceCRD.Group = "example.org" }), nil, []string{"spec.instanceCRD.group: Invalid value"}},
		{"that defines templates", redis(func(t *infrastructurev1alpha1.Template) { t.Spec.InstanceCRD.Resource = "templates" }), nil, []string{"spec.instanceCRD.resource: Forbidden"}},
		{"whose kind has a short name of the catalogue", redis(withNames("Tmpl", "others")), nil, []string{"spec.instanceCRD.kind: Forbidden"}},
		{"whose resource is a singular name", redis(withNames("Other", "redis")), []infrastructurev1alpha1.Template{*plural}, []string{`spec.instanceCRD.resource: Duplicate value: "redis, of Template older"`}},
		{"whose singular name is a resource", redis(withNames("REDIS", "others")), []infrastructurev1alpha1.Template{*older}, []string{`spec.instanceCRD.kind: Duplicate value: "redis (its singular name), of Template older"`}},
		{"whose kind is a list kind", redis(withNames("RedisList", "others")), []infrastructurev1alpha1.Template{*older}, []string{`spec.instanceCRD.kind: Duplicate value: "RedisList, of Template older"`}},
		{"whose list kind is a kind", redis(withNames("Other", "others")), []infrastructurev1alpha1.Template{*list}, []string{`spec.instanceCRD.kind: Duplicate value: "OtherList (its list kind), of Template older"`}},
		{"that retires its version", redis(func(t *infrastructurev1alpha1.Template) { t.Spec.RetiredVersions = []string{"v1alpha1"} }), nil, []string{"spec.instanceCRD.version: Invalid value"}},
		{"without JSON", redis(withSchema(`{`)), nil, []string{"spec.schema: Invalid value: reading the schema"}},
		{"with an unknown keyword", redis(withSchema(`{"type":"object","propertys":{}}`)), nil, []string{"spec.schema: Invalid value: reading the schema"}},
		{"of a string", redis(withSchema(`{"type":"string"}`)), nil, []string{`spec.schema.type: Invalid value: "string": must be object`}},
		{"with a reserved field", redis(withSchema(`{"type":"object","properties":{"status":{"type":"object"}}}`)), nil, []string{"spec.schema.properties[status]: Forbidden"}},
		{"that is not structural", redis(withSchema(`{"type":"object","properties":{"a":{}}}`)), nil, []string{"spec.schema.properties[a].type: Required value"}},
		{"with a rule that does not compile", redis(withSchema(`{"type":"object","properties":{"a":{"type":"string"}},"x-kubernetes-validations":[{"rule":"self.b == 1"}]}`)), nil, []string{"spec.schema.x-kubernetes-validations[0].rule: Invalid value"}},
		{"with a default that is not valid", redis(withSchema(`{"type":"object","properties":{"a":{"type":"string","default":3}}}`)), nil, []string{"spec.schema.properties[a].default: Invalid value"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Validate(test.template, infrastructurev1alpha1.GroupName, "", test.others)
			if !slices.EqualFunc([]*field.Error(got), test.want, func(err *field.Error, want string) bool { return strings.HasPrefix(err.Error(), want) }) {
				t.Errorf("got %v, want %q", got, test.want)
			}
		})
	}
}

func TestValidateLeavesNamesToWhoHasTheDefinition(t *testing.T) {
	first, second := redis(), redis(func(t *infrastructurev1alpha1.Template) { t.Name, t.UID = "alder", "2" })
	for owner, want := range map[string][2]int{"": {2, 0}, "redis": {0, 2}, "alder": {2, 0}, "gone": {2, 0}} {
		got := [2]int{
			len(Validate(first, infrastructurev1alpha1.GroupName, owner, []infrastructurev1alpha1.Template{*second})),
			len(Validate(second, infrastructurev1alpha1.GroupName, owner, []infrastructurev1alpha1.Template{*first})),
		}
		if got != want {
			t.Errorf("of the same second, with a definition of %q: %v mistakes, want %v", owner, got, want)
		}
	}
}

func TestBreakingEditIsRefusedWithoutDefinition(t *testing.T) {
	served, err := Schema(mustDefine(t, redis(), nil))
	if err != nil {
		t.Fatal(err)
	}
	base, err := withServed(nil, served)
	if err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Group: infrastructurev1alpha1.GroupName}
	err = r.validate(t.Context(), &scope{template: redis(withSchema(`{"type":"object"}`)), served: served, base: base})
	var refused *problem
	if !errors.As(err, &refused) || refused.condition != infrastructurev1alpha1.ConditionSchemaCompatible {
		t.Errorf("got %v", err)
	}
	if err := r.validate(t.Context(), &scope{template: redis(), served: served, base: base}); err != nil {
		t.Errorf("without an edit: %v", err)
	}
}

func TestSchemaThatIsUsedAgainIsNotNotedAsUnused(t *testing.T) {
	definition := mustDefine(t, redis(), nil)
	noted, err := Schema(definition)
	if err != nil {
		t.Fatal(err)
	}
	noted.Annotations = map[string]string{AnnotationUnusedSince(infrastructurev1alpha1.GroupName): "2020-01-01T00:00:00Z", "example.org/other": "kept"}
	scheme := runtime.NewScheme()
	if err := apisv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(noted).Build(), Group: infrastructurev1alpha1.GroupName}
	if _, err := r.createSchema(t.Context(), &scope{template: redis()}, definition); err != nil {
		t.Fatal(err)
	}
	got := &apisv1alpha1.APIResourceSchema{}
	if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(noted), got); err != nil || !maps.Equal(got.Annotations, map[string]string{"example.org/other": "kept"}) {
		t.Errorf("the annotations are %v, %v", got.Annotations, err)
	}
}

// TestSchemaThatIsBeingDeletedIsWaitedFor checks that a terminating schema that no export lists is retried until it is gone, and that one that
// an export lists, whose finalizer blocks the deletion, stays in use.
func TestSchemaThatIsBeingDeletedIsWaitedFor(t *testing.T) {
	definition := mustDefine(t, redis(), nil)
	deleted, err := Schema(definition)
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	deleted.DeletionTimestamp, deleted.Finalizers = &now, []string{InUseFinalizer(infrastructurev1alpha1.GroupName)}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apisv1alpha1.AddToScheme, apisv1alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for listed, want := range map[string]string{"another": deleted.Name + " is being deleted", deleted.Name: ""} {
		export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
		export.Spec.Resources = []apisv1alpha2.ResourceSchema{{Schema: listed}}
		r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(deleted.DeepCopy(), export).Build(), Group: infrastructurev1alpha1.GroupName}
		_, err := r.createSchema(t.Context(), &scope{template: redis()}, definition)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("where an export lists %s: %v", listed, err)
		}
	}
}

func mustDefine(t *testing.T, template *infrastructurev1alpha1.Template, current *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definition, err := Definition(template, current)
	if err != nil {
		t.Fatal(err)
	}
	return definition
}

func TestDefinitionKeepsPluralAndSchema(t *testing.T) {
	definition := mustDefine(t, redis(), nil)
	if definition.Name != "redis."+infrastructurev1alpha1.GroupName || definition.Spec.Scope != apiextensionsv1.ClusterScoped {
		t.Errorf("got %s, %s", definition.Name, definition.Spec.Scope)
	}
	spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	want, err := parseSchema([]byte(redisSchema))
	if err != nil {
		t.Fatal(err)
	}
	if changes := append(versions.Compare(want, &spec), versions.Compare(&spec, want)...); len(changes) > 0 {
		t.Errorf("the schema changes: %v", changes)
	}
}

func TestDefinitionOfSeveralVersions(t *testing.T) {
	first := mustDefine(t, redis(), nil)
	next := redis(func(t *infrastructurev1alpha1.Template) { t.Spec.InstanceCRD.Version = "v1" })
	type version struct {
		name                        string
		served, storage, deprecated bool
	}
	for _, test := range []struct {
		name    string
		stored  []string
		retired []string
		want    []version
	}{
		{"a new version is served beside the stored one", []string{"v1alpha1"}, nil, []version{{"v1alpha1", true, true, true}, {"v1", true, false, false}}},
		{"a retired version stays of a definition that was created again", nil, []string{"v1alpha1"}, []version{{"v1alpha1", true, true, true}, {"v1", true, false, false}}},
		{"a retired version with objects stays", []string{"v1alpha1"}, []string{"v1alpha1"}, []version{{"v1alpha1", true, true, true}, {"v1", true, false, false}}},
		{"a retired version without objects goes", []string{"v1"}, []string{"v1alpha1"}, []version{{"v1", true, true, false}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			current := first.DeepCopy()
			if len(test.stored) == 1 {
				current.Annotations = map[string]string{AnnotationStored(infrastructurev1alpha1.GroupName): test.stored[0]}
			}
			template := next.DeepCopy()
			template.Spec.RetiredVersions = test.retired
			var got []version
			for _, v := range mustDefine(t, template, current).Spec.Versions {
				got = append(got, version{v.Name, v.Served, v.Storage, v.Deprecated})
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestRetiredVersionsAreNotServed(t *testing.T) {
	next := redis(func(t *infrastructurev1alpha1.Template) {
		t.Spec.InstanceCRD.Version, t.Spec.RetiredVersions = "v1", []string{"v1alpha1"}
	})
	definition := mustDefine(t, next, mustDefine(t, redis(), nil))
	if !RetireVersions(definition, "v1", next.Spec.RetiredVersions) || RetireVersions(definition, "v1", next.Spec.RetiredVersions) {
		t.Error("the first call does not change the definition, or the second one does")
	}
	again := mustDefine(t, next, definition)
	if got := servedVersions(again); !slices.Equal(got, []string{"v1"}) || !equality.Semantic.DeepEqual(again.Spec, definition.Spec) {
		t.Errorf("the next reconciliation serves %v", got)
	}
	next.Spec.RetiredVersions = nil
	if got := servedVersions(mustDefine(t, next, definition)); !slices.Equal(got, []string{"v1alpha1", "v1"}) {
		t.Errorf("a version that is not retired after all: %v are served", got)
	}
}

func TestDefinitionKeepsFieldsOfOtherVersions(t *testing.T) {
	first := mustDefine(t, redis(withSchema(`{"type":"object","properties":{"old":{"type":"string"},"nested":{"type":"object","properties":{"old":{"type":"string"}}}}}`)), nil)
	next := redis(withSchema(`{"type":"object","properties":{"nested":{"type":"object","properties":{"new":{"type":"string"}}}}}`), func(t *infrastructurev1alpha1.Template) {
		t.Spec.InstanceCRD.Version = "v1"
	})
	keeps := func(definition *apiextensionsv1.CustomResourceDefinition) (kept []bool) {
		for _, version := range definition.Spec.Versions {
			spec := specOf(version.Schema.OpenAPIV3Schema)
			nested := spec.Properties["nested"]
			kept = append(kept, spec.XPreserveUnknownFields != nil, nested.XPreserveUnknownFields != nil)
		}
		return kept
	}
	both := mustDefine(t, next, first)
	if got, want := keeps(both), []bool{false, true, true, true}; !slices.Equal(got, want) {
		t.Errorf("spec and nested of both versions keep unknown fields: %v, want %v", got, want)
	}
	if again := mustDefine(t, next, both); !equality.Semantic.DeepEqual(again.Spec, both.Spec) {
		t.Error("the next reconciliation changes the definition")
	}
	next.Spec.RetiredVersions = []string{"v1alpha1"}
	both.Annotations = map[string]string{AnnotationStored(infrastructurev1alpha1.GroupName): "v1"}
	if got := keeps(mustDefine(t, next, both)); !slices.Equal(got, []bool{false, false}) {
		t.Errorf("without the other version, unknown fields are kept: %v", got)
	}
}

func TestDrainingDefinitionRefusesCreationInAllVersions(t *testing.T) {
	first := mustDefine(t, redis(), nil)
	now := metav1.Now()
	next := redis(func(t *infrastructurev1alpha1.Template) { t.Spec.InstanceCRD.Version, t.DeletionTimestamp = "v1", &now })
	for _, version := range mustDefine(t, next, first).Spec.Versions {
		if rules := version.Schema.OpenAPIV3Schema.XValidations; len(rules) != 1 || rules[0].Message != closedMessage {
			t.Errorf("%s has the rules %v", version.Name, rules)
		}
	}
}

func TestSchemaIsNamedByContent(t *testing.T) {
	name := func(template *infrastructurev1alpha1.Template) string {
		schema, err := Schema(mustDefine(t, template, nil))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Name
	}
	first := name(redis())
	if !strings.HasPrefix(first, "tmpl") || !strings.HasSuffix(first, ".redis."+infrastructurev1alpha1.GroupName) {
		t.Errorf("got %s", first)
	}
	if again := name(redis(func(t *infrastructurev1alpha1.Template) {
		t.Name, t.UID, t.Spec.Version = "other", types.UID("9"), "0.2.0"
	})); again != first {
		t.Errorf("the same content is named %s and %s", first, again)
	}
	if changed := name(redis(withSchema(`{"type":"object"}`))); changed == first {
		t.Errorf("another schema is named %s, too", first)
	}
	deleted := redis(func(t *infrastructurev1alpha1.Template) { now := metav1.Now(); t.DeletionTimestamp = &now })
	if draining := name(deleted); draining == first {
		t.Errorf("the schema that refuses new instances is named %s, too", first)
	}
}
