package apiextensions

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// newStoredDefinition returns the stored encoding of a definition with a large schema.
func newStoredDefinition(t *testing.T, cluster string, change ...func(*apiextensionsv1.CustomResourceDefinition)) []byte {
	t.Helper()
	properties := map[string]apiextensionsv1.JSONSchemaProps{}
	for i := range 200 {
		properties[fmt.Sprintf("field%d", i)] = apiextensionsv1.JSONSchemaProps{Type: "string", Description: strings.Repeat("A field. ", 20)}
	}
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name: "widgets.example.com", Labels: map[string]string{"of": cluster},
			Annotations: map[string]string{"kcp.io/cluster": cluster, "applied": strings.Repeat("applied ", 5000)},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}},
			}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			StoredVersions: []string{"v1"},
			Conditions:     []apiextensionsv1.CustomResourceDefinitionCondition{{Type: "Established", Status: "True"}},
		},
	}
	for _, f := range change {
		f(definition)
	}
	legacyscheme.Scheme.Default(definition)
	encoder := legacyscheme.Codecs.EncoderForVersion(protobuf.NewSerializer(legacyscheme.Scheme, legacyscheme.Scheme), apiextensionsv1.SchemeGroupVersion)
	var data bytes.Buffer
	if err := encoder.Encode(definition, &data); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

// newCodec returns upstream's storage codec.
func newCodec() kruntime.Codec {
	internal := schema.GroupVersion{Group: apiextensions.GroupName, Version: kruntime.APIVersionInternal}
	return legacyscheme.Codecs.CodecForVersions(protobuf.NewSerializer(legacyscheme.Scheme, legacyscheme.Scheme), legacyscheme.Codecs.UniversalDeserializer(), apiextensionsv1.SchemeGroupVersion, internal)
}

func decode(t testing.TB, c kruntime.Codec, data []byte) *apiextensions.CustomResourceDefinition {
	t.Helper()
	definition := &apiextensions.CustomResourceDefinition{}
	if _, _, err := c.Decode(data, nil, definition); err != nil {
		t.Fatal(err)
	}
	return definition
}

func TestInternedSpecsAreEqual(t *testing.T) {
	c := &codec{Codec: newCodec(), interner: NewSpecInterner()}
	otherSchema := func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Deprecated = true }
	noStatus := func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	}
	decoded := []*apiextensions.CustomResourceDefinition{}
	for name, data := range map[string][]byte{
		"the first":      newStoredDefinition(t, "a"),
		"an equal one":   newStoredDefinition(t, "b"),
		"another":        newStoredDefinition(t, "c", otherSchema),
		"without status": newStoredDefinition(t, "d", noStatus),
		"as JSON":        []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"x"},"spec":{"group":"g","scope":"Cluster","names":{"plural":"x","kind":"X"},"versions":[{"name":"v1","served":true,"storage":true}]}}`),
		"with an empty spec": newStoredDefinition(t, "e", func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec = apiextensionsv1.CustomResourceDefinitionSpec{}
		}),
	} {
		for range 2 {
			got, want := decode(t, c, data), decode(t, newCodec(), data)
			if !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("%s: got %+v, want %+v", name, got.ObjectMeta, want.ObjectMeta)
			}
			decoded = append(decoded, got)
		}
	}
	hashes := map[Hash]int{}
	for _, definition := range decoded {
		hash, err := c.interner.HashOf(definition)
		if err != nil {
			t.Fatal(err)
		}
		if recomputed, err := NewSpecInterner().HashOf(definition); err != nil || recomputed != hash {
			t.Errorf("the hash depends on the source of a definition: %s, then %s, %v", hash, recomputed, err)
		}
		hashes[hash]++
	}
	if len(hashes) != 4 { // an absent status does not count
		t.Errorf("hashes are %v", hashes)
	}
	runtime.KeepAlive(decoded)
}

func TestCorruptDefinitionsAreRejected(t *testing.T) {
	c := &codec{Codec: newCodec(), interner: NewSpecInterner()}
	good := newStoredDefinition(t, "a")
	keep := decode(t, c, good)
	for name, data := range map[string][]byte{
		"truncated in the spec": good[:len(good)/2],
		"only the prefix":       []byte("k8s\x00"),
		"other text":            []byte("hello"),
	} {
		if _, _, err := c.Decode(data, nil, &apiextensions.CustomResourceDefinition{}); err == nil {
			t.Errorf("%s was decoded", name)
		}
	}
	runtime.KeepAlive(keep)
}

// TestEqualDefinitionsShareMemory limits the memory of a definition that another logical cluster has, too.
func TestEqualDefinitionsShareMemory(t *testing.T) {
	const count = 500
	const maxBytes = 4 << 10 // bytes per definition; without sharing it is about 200 KB
	c := &codec{Codec: newCodec(), interner: NewSpecInterner()}
	data := make([][]byte, count)
	for i := range data {
		data[i] = newStoredDefinition(t, fmt.Sprintf("cluster%d", i))
	}
	first := decode(t, c, data[0])
	before := heapInUse()
	definitions := make([]*apiextensions.CustomResourceDefinition, count)
	started := time.Now()
	for i := range definitions {
		definitions[i] = decode(t, c, data[i])
	}
	elapsed := time.Since(started)
	bytesPerDefinition := (heapInUse() - before) / count
	started = time.Now()
	decode(t, newCodec(), data[0])
	t.Logf("one more costs %d bytes and %v to decode; without sharing %v", bytesPerDefinition, elapsed/count, time.Since(started))
	if bytesPerDefinition > maxBytes {
		t.Errorf("one more costs %d bytes, want at most %d", bytesPerDefinition, maxBytes)
	}
	runtime.KeepAlive(first)
	runtime.KeepAlive(definitions)
	runtime.KeepAlive(data)
}

func TestUnusedSpecsAreReleased(t *testing.T) {
	c := &codec{Codec: newCodec(), interner: NewSpecInterner()}
	a, b := decode(t, c, newStoredDefinition(t, "a")), decode(t, c, newStoredDefinition(t, "b"))
	sizes := func() [2]int {
		texts, _ := c.interner.metadata.Sizes()
		return [2]int{c.interner.countSpecs(), texts}
	}
	if got := sizes(); got != [2]int{1, 1} {
		t.Errorf("specifications and texts that are shared: %v", got)
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
	for deadline := time.Now().Add(10 * time.Second); sizes() != [2]int{}; time.Sleep(time.Millisecond) {
		runtime.GC()
		if time.Now().After(deadline) {
			t.Fatalf("remaining specifications and texts: %v", sizes())
		}
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
