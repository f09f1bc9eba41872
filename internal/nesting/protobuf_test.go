package nesting

import (
	"encoding/json"
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// unlimited is a limit that no object of the tests reaches.
const unlimited = 100

// newScheme returns all kinds of Kubernetes that have protobuf, and those of definitions.
func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme, apiextensionsv1beta1.AddToScheme, internalversion.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(all); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// levelsWith returns the smallest limit that a check accepts.
func levelsWith(check func(limit int) error) int {
	for limit := range unlimited {
		if check(limit) == nil {
			return limit
		}
	}
	return unlimited
}

func levelsOfMessage(types *messages, t reflect.Type, data []byte) int {
	return levelsWith(func(limit int) error { return checkMessage(types.of(t), data, 1, limit) })
}

func levelsOfJSON(text []byte) int {
	return levelsWith(func(limit int) error { return CheckJSON(text, limit) })
}

type protobufObject interface{ Marshal() ([]byte, error) }

func TestProtobufHasTheLevelsOfJSON(t *testing.T) {
	all := newScheme(t)
	types := &messages{}
	filler := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(1), serializer.NewCodecFactory(all))
	compared := 0
	kinds := slices.SortedFunc(maps.Keys(all.AllKnownTypes()), func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	for _, kind := range kinds {
		goType := all.AllKnownTypes()[kind]
		// Definitions contain themselves, so that random ones are too large. See TestDefinitions.
		if kind.Version == runtime.APIVersionInternal || kind.Group == apiextensionsv1.GroupName || types.of(goType) == nil || goType == reflect.TypeFor[runtime.Unknown]() {
			continue
		}
		for range 3 {
			obj := reflect.New(goType).Interface()
			filler.Fill(obj)
			data, err := obj.(protobufObject).Marshal()
			if err != nil {
				continue
			}
			decoded := reflect.New(goType).Interface() // without fields that protobuf does not have
			if err := decoded.(interface{ Unmarshal([]byte) error }).Unmarshal(data); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			text, err := json.Marshal(decoded)
			if err != nil {
				continue // random bytes as raw JSON
			}
			s := scan{data: data, limit: unlimited}
			if err := s.run(types.of(goType), 1); err != nil || s.pos != len(data) {
				t.Errorf("%s: the scan ends at byte %d of %d with error %v", kind, s.pos, len(data), err)
			}
			if s.visited > 2*len(data) {
				t.Errorf("%s: the scan reads %d bytes of %d", kind, s.visited, len(data))
			}
			if got, want := levelsOfMessage(types, goType, data), levelsOfJSON(text); got != want {
				t.Errorf("%s: protobuf has %d levels, JSON %d: %s", kind, got, want, text)
			}
			compared++
		}
	}
	if compared < 500 {
		t.Errorf("only %d objects were compared", compared)
	}
}

// nestedSchema returns a schema with levels of properties, at the end of which is a default.
func nestedSchema(levels int, wrap func(apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	schema := apiextensionsv1.JSONSchemaProps{Type: "object", Default: &apiextensionsv1.JSON{Raw: []byte(`{"a":[1]}`)}}
	for range levels {
		schema = wrap(schema)
	}
	return schema
}

func TestDefinitions(t *testing.T) {
	type schema = apiextensionsv1.JSONSchemaProps
	for name, tc := range map[string]struct {
		wrap func(schema) schema
		// levels is how many levels wrap adds.
		levels int
	}{
		"properties":         {func(s schema) schema { return schema{Properties: map[string]schema{"a": s}} }, 2},
		"pattern properties": {func(s schema) schema { return schema{PatternProperties: map[string]schema{"a": s}} }, 2},
		"definitions":        {func(s schema) schema { return schema{Definitions: map[string]schema{"a": s}} }, 2},
		"dependencies": {func(s schema) schema {
			return schema{Dependencies: apiextensionsv1.JSONSchemaDependencies{"a": {Schema: &s}}}
		}, 2},
		"items": {func(s schema) schema { return schema{Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &s}} }, 1},
		"lists of items": {func(s schema) schema {
			return schema{Items: &apiextensionsv1.JSONSchemaPropsOrArray{JSONSchemas: []schema{s}}}
		}, 2},
		"additional properties": {func(s schema) schema {
			return schema{AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &s, Allows: true}}
		}, 1},
		"additional items": {func(s schema) schema {
			return schema{AdditionalItems: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &s, Allows: true}}
		}, 1},
		"alternatives": {func(s schema) schema { return schema{AnyOf: []schema{s}} }, 2},
		"negation":     {func(s schema) schema { return schema{Not: &s} }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			const depth = 10
			obj := nestedSchema(depth, tc.wrap)
			data, err := obj.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(&obj)
			if err != nil {
				t.Fatal(err)
			}
			want := 3 + depth*tc.levels // the innermost schema, and its default
			if got := levelsOfMessage(&messages{}, reflect.TypeFor[schema](), data); got != want {
				t.Errorf("protobuf has %d levels, want %d", got, want)
			}
			if got := levelsOfJSON(text); got != want {
				t.Errorf("JSON has %d levels, want %d", got, want)
			}
		})
	}
}

func TestTextIsNoLevel(t *testing.T) {
	types, configMap := &messages{}, reflect.TypeFor[corev1.ConfigMap]()
	for _, text := range []string{"[", "{", "#", "3", "k", "\n\n", "\"", "bb", "\x0a\x02", "z{"} {
		obj := &corev1.ConfigMap{Data: map[string]string{"text": strings.Repeat(text, 5000)}, BinaryData: map[string][]byte{"bytes": []byte(strings.Repeat(text, 5000))}}
		data, err := obj.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if got := levelsOfMessage(types, configMap, data); got != 2 {
			t.Errorf("a config map with the text %q has %d levels", text, got)
		}
	}
}

func TestMapEntriesContainTheirKeysAndValues(t *testing.T) {
	types, configMap := &messages{}, reflect.TypeFor[corev1.ConfigMap]()
	for name, tc := range map[string]struct {
		entry   string
		refused bool
	}{
		"a key and a value":                   {"\x0a\x01a\x12\x01b", false},
		"no value":                            {"\x0a\x01a", false},
		"an unknown field":                    {"\x0a\x01a\x1a\x01c\x12\x01b", false},
		"a value that ends behind the entry":  {"\x0a\x01a\x12\x02b", true},
		"a key that ends behind the entry":    {"\x0a\x02a", true},
		"a length that ends behind the entry": {"\x0a\x01a\x12", true},
		"an unknown field that ends behind":   {"\x0a\x01a\x1a\x02c", true},
	} {
		t.Run(name, func(t *testing.T) {
			data := append([]byte{0x12, byte(len(tc.entry))}, tc.entry+"\x22\x00"...)
			if err := checkMessage(types.of(configMap), data, 1, unlimited); (err != nil) != tc.refused {
				t.Errorf("got error %v", err)
			}
		})
	}
}

// TestSelfRecursiveMessages finds the messages whose depth the types do not bound. Each is in the record of the decision.
func TestSelfRecursiveMessages(t *testing.T) {
	all := newScheme(t)
	types := &messages{}
	for _, goType := range all.AllKnownTypes() {
		types.of(goType)
	}
	names := map[*message]string{}
	for goType, described := range types.known {
		names[described] = goType.String()
	}
	var recursive []string
	for described, name := range names {
		if reaches(described, described, map[*message]bool{}) {
			recursive = append(recursive, name)
		}
	}
	slices.Sort(recursive)
	want := []string{
		"v1.JSONSchemaProps", "v1.JSONSchemaPropsOrArray", "v1.JSONSchemaPropsOrBool", "v1.JSONSchemaPropsOrStringArray",
		"v1alpha3.CompositePodGroupTemplate", "v1beta1.CompositePodGroupTemplate",
		"v1beta1.JSONSchemaProps", "v1beta1.JSONSchemaPropsOrArray", "v1beta1.JSONSchemaPropsOrBool", "v1beta1.JSONSchemaPropsOrStringArray",
	}
	if !slices.Equal(recursive, want) {
		t.Errorf("self-recursive messages are %v, want %v", recursive, want)
	}
}

func reaches(from, to *message, seen map[*message]bool) bool {
	for _, f := range from.fields {
		if f.message == nil || seen[f.message] {
			continue
		}
		seen[f.message] = true
		if f.message == to || reaches(f.message, to, seen) {
			return true
		}
	}
	return false
}

// FuzzScan checks that accepted messages are decoded to objects within the limit, that the scan refuses every message that a recursive
// scan refuses, and that it reads a number of bytes proportional to its input. It does not decode refused messages.
func FuzzScan(f *testing.F) {
	schema := nestedSchema(3, func(s apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": s}, Not: &s, Required: []string{"a"}}
	})
	data, err := schema.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, uint8(20))
	f.Add(data, uint8(6))
	f.Add([]byte("\x5b[[[\x5c\x0a\x01a"), uint8(4))
	types := &messages{}
	described := types.of(reflect.TypeFor[apiextensionsv1.JSONSchemaProps]())
	f.Fuzz(func(t *testing.T, data []byte, limit uint8) {
		if len(data) > 1<<12 {
			return
		}
		s := scan{data: data, limit: int(limit)}
		err := s.run(described, 1)
		if s.visited > 2*len(data) {
			t.Fatalf("the scan reads %d bytes of %d", s.visited, len(data))
		}
		if reference := newReference(data, int(limit)).message(described, 0, len(data), 1); isTooDeep(err) != isTooDeep(reference) || (err == nil) != (reference == nil || reference == errMalformed) {
			t.Fatalf("the scan returns %v, the recursive one %v", err, reference)
		}
		var decoded apiextensionsv1.JSONSchemaProps
		if err != nil || decoded.Unmarshal(data) != nil {
			return
		}
		text, err := json.Marshal(&decoded)
		if err == nil && levelsOfJSON(text) > int(limit) {
			t.Fatalf("the scan accepts %d levels with a limit of %d", levelsOfJSON(text), limit)
		}
	})
}
