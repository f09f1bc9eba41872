package crdstorage

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	clusterstorage "github.com/atoll-dev/atoll/shardserver/storage"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// testObjects are objects as they may be stored in etcd, by Kubernetes or other writers.
var testObjects = map[string]string{
	"as stored by Kubernetes": `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"annotations":{"kcp.io/cluster":"root","note":"a\"b"},` +
		`"creationTimestamp":"2026-01-02T03:04:05Z","deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-02T03:05:05Z","finalizers":["example.io/f"],` +
		`"generateName":"w-","generation":3,"labels":{"color":"blue","size":""},"managedFields":[{"apiVersion":"example.io/v1","fieldsType":"FieldsV1",` +
		`"fieldsV1":{"f:spec":{}},"manager":"kubectl","operation":"Apply","time":"2026-01-02T03:04:05Z"}],"name":"w-1","namespace":"default",` +
		`"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"u-0"}],"uid":"u-1"},"spec":{"n":1,"f":1.5,"s":"\u003c\u00e9"}}` + "\n",
	"with a kind only":                     `{"apiVersion":"example.io/v1","kind":"Widget"}`,
	"with empty metadata":                  `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{}}`,
	"with metadata that is null":           `{"apiVersion":"example.io/v1","kind":"Widget","metadata":null,"spec":{}}`,
	"with white space":                     "\n{ \"kind\" : \"Widget\" ,\t\"apiVersion\":\"example.io/v1\", \"metadata\" : { } , \"spec\": [ 1 , -0.5e+3 , true , null ] }\n ",
	"with the metadata last":               `{"spec":{"metadata":{"name":"not me"}},"kind":"Widget","apiVersion":"example.io/v1","metadata":{"uid":"u","name":"me"}}`,
	"with escaped keys":                    `{"apiVersion":"example.io/v1","kind":"Widget","\u006detadata":{"\u006eame":"me"}}`,
	"with escaped values":                  `{"apiVersion":"example.io/v1","kind":"Widg\u0065t","metadata":{"name":"m\u0065","labels":{"a\/b":"\ud83d\ude00"}}}`,
	"with a resource version inside":       `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":"me","resourceVersion":"5","selfLink":"/x"}}`,
	"with duplicate members":               `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":"no","name":"me"},"kind":"Widget"}`,
	"with duplicate metadata":              `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":"no","uid":"u"},"metadata":{"name":"me"}}`,
	"with empty lists and null":            `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"finalizers":[],"ownerReferences":null,"deletionTimestamp":null,"labels":{}}}`,
	"with text that is not UTF-8":          "{\"apiVersion\":\"example.io/v1\",\"kind\":\"Widget\",\"metadata\":{\"name\":\"me\"},\"spec\":\"\xff\"}",
	"with large numbers":                   `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":"me","generation":9007199254740993},"spec":9007199254740993}`,
	"with escaped characters in keys":      "{\"<\":1,\"a\x84\":2,\"metadata\":{\"\\\"\":3,\"name\":\"me\",\"name\":\"you\"}}",
	"with another object in an annotation": `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"annotations":{"last":"{\"metadata\":{\"name\":\"no\"}}"},"name":"me"}}`,
}

// checkRoundTrip compares an object with the result of upstream's libraries for the same bytes.
func checkRoundTrip(t *testing.T, data string) {
	t.Helper()
	want := map[string]any{}
	if utiljson.Unmarshal([]byte(data), &want) != nil || want == nil || strings.TrimSpace(data) == "null" {
		if obj, err := NewObject([]byte(data), 7); err == nil && (!json.Valid([]byte(data)) || want == nil) {
			t.Fatalf("%q is not a JSON object, but was parsed as %q", data, obj.JSON())
		}
		return
	}
	obj, err := NewObject([]byte(data), 7)
	if err != nil {
		t.Fatalf("reading %q: %v", data, err)
	}
	u := &unstructured.Unstructured{Object: want}
	if _, isObject := want["metadata"].(map[string]any); !isObject {
		delete(want, "metadata")
	}
	u.SetSelfLink("")
	u.SetResourceVersion("7")
	out, err := obj.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	if err := utiljson.Unmarshal(out, &got); err != nil {
		t.Fatalf("writing %q returned %q: %v", data, out, err)
	}
	if have, want := normalizeNumbers(got), normalizeNumbers(want); have != want {
		t.Fatalf("writing %q returned\n%v, want\n%v", data, have, want)
	}
	checkMetadata(t, obj, want)

	reparsed, err := NewObject([]byte(obj.JSON()), 7)
	if err != nil || reparsed.JSON() != obj.JSON() {
		t.Fatalf("%q is written as %q, which is read as %v, %v", data, obj.JSON(), reparsed, err)
	}
	reparsed.sharePayload(clusterstorage.NewInterner(), 1)
	checkSharedPayload(t, reparsed, obj)
}

// checkMetadata compares getters with a typed decoding of the same metadata, if that is well-formed.
func checkMetadata(t *testing.T, obj *Object, content map[string]any) {
	t.Helper()
	metadata, _ := content["metadata"].(map[string]any)
	for _, number := range []string{"generation", "deletionGracePeriodSeconds"} {
		if _, tooLarge := metadata[number].(float64); tooLarge {
			return // upstream's decoders differ for such numbers
		}
	}
	typed := &metav1.PartialObjectMetadata{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"metadata": content["metadata"]}, typed) != nil {
		return
	}
	typed.ManagedFields = nil // compared below: the typed form keeps raw bytes, written in another order
	got := meta.AsPartialObjectMetadata(obj)
	fields := got.ManagedFields
	got.ManagedFields = nil
	for _, list := range []*metav1.ObjectMeta{&typed.ObjectMeta, &got.ObjectMeta} { // nil and empty are the same
		if len(list.Labels) == 0 {
			list.Labels = nil
		}
		if len(list.Annotations) == 0 {
			list.Annotations = nil
		}
		if len(list.Finalizers) == 0 {
			list.Finalizers = nil
		}
		if len(list.OwnerReferences) == 0 {
			list.OwnerReferences = nil
		}
	}
	if want, have := mustJSON(typed.ObjectMeta), mustJSON(got.ObjectMeta); want != have {
		t.Fatalf("the metadata reads as\n%s, want\n%s", have, want)
	}
	u := &unstructured.Unstructured{Object: content}
	if len(fields) != len(u.GetManagedFields()) {
		t.Fatalf("managed fields are %v, want %v", fields, u.GetManagedFields())
	}
	if kind := u.GroupVersionKind(); obj.GroupVersionKind() != kind {
		t.Fatalf("the kind reads as %s, want %s", obj.GroupVersionKind(), kind)
	}
	if want := u.GetAnnotations()[logicalcluster.AnnotationKey]; obj.LogicalCluster() != want {
		t.Fatalf("the logical cluster reads as %q, want %q", obj.LogicalCluster(), want)
	}
}

// normalizeNumbers returns JSON with 0e0 and -0 as 0, as upstream writes them when it encodes an object again.
func normalizeNumbers(value map[string]any) string {
	decoded := map[string]any{}
	if err := utiljson.Unmarshal([]byte(mustJSON(value)), &decoded); err != nil {
		panic(err)
	}
	return mustJSON(decoded)
}

func mustJSON(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func TestObjectRoundTrip(t *testing.T) {
	for name, data := range testObjects {
		t.Run(name, func(t *testing.T) { checkRoundTrip(t, data) })
	}
}

func TestInvalidObjectsAreRejected(t *testing.T) {
	for _, data := range []string{
		``, ` `, `null`, `[]`, `"x"`, `1`, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":01}`, `{"a":1.}`, `{"a":"\x"}`, `{"a":"\u12"}`,
		"{\"a\":\"\n\"}", `{"a":tru}`, `{"a":1}x`, `{a:1}`, `{"a":[1,]}`, `{"a":-}`, `{"a":1e}`, `{"metadata":{"name":"x"}`, `{"a":"`,
		`{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`,
	} {
		if obj, err := NewObject([]byte(data), 1); err == nil {
			t.Errorf("%.40q was parsed as %.40q", data, obj.JSON())
		}
	}
}

func FuzzObjectRoundTrip(f *testing.F) {
	for _, data := range testObjects {
		f.Add(data)
	}
	f.Fuzz(checkRoundTrip)
}

func TestDeepCopySharesStoredObject(t *testing.T) {
	obj, err := NewObject([]byte(testObjects["as stored by Kubernetes"]), 7)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10, func() { _ = obj.DeepCopyObject() }); n > 1 {
		t.Errorf("a copy needs %v allocations", n)
	}
	c, _ := obj.DeepCopyObject().(*Object)
	c.SetResourceVersion("8")
	c.SetLabels(map[string]string{"color": "red"})
	c.SetManagedFields(nil)
	if obj.GetResourceVersion() != "7" || obj.GetLabels()["color"] != "blue" || len(obj.GetManagedFields()) != 1 {
		t.Error("changing a copy changed the original")
	}
	if c.GetResourceVersion() != "8" || c.GetLabels()["color"] != "red" || len(c.GetManagedFields()) != 0 || c.GetName() != "w-1" {
		t.Errorf("the changed copy is %s", c.JSON())
	}
}

func TestBookmarkObject(t *testing.T) {
	obj := &Object{}
	if obj.GetName() != "" || obj.GetAnnotations() != nil || !obj.GroupVersionKind().Empty() || obj.GetDeletionTimestamp() != nil {
		t.Error("an empty object is not empty")
	}
	obj.SetResourceVersion("12")
	obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	if got := mustJSON(obj); got != `{"metadata":{"resourceVersion":"12","annotations":{"k8s.io/initial-events-end":"true"}}}` {
		t.Errorf("the bookmark is %s", got)
	}
	if got := mustJSON(&Object{resourceVersion: 3}); got != `{"metadata":{"resourceVersion":"3"}}` {
		t.Errorf("the bookmark is %s", got)
	}
}

func TestMissingMetadataDoesNotAllocate(t *testing.T) {
	obj, err := NewObject([]byte(testObjects["with another object in an annotation"]), 7)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10, func() {
		if obj.GetOwnerReferences() != nil || obj.GetFinalizers() != nil || obj.GetDeletionTimestamp() != nil {
			t.Error("the getters return values")
		}
	}); n != 0 {
		t.Errorf("the getters need %v allocations", n)
	}
}
