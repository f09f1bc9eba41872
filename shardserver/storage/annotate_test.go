package storage

import (
	"bytes"
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// TestLogicalClusterOfStoredValues: the key determines the logical cluster of a value, in both encodings.
func TestLogicalClusterOfStoredValues(t *testing.T) {
	scheme := legacyscheme.Scheme
	for encoding, serializer := range map[string]runtime.Serializer{
		"protobuf": protobuf.NewSerializer(scheme, scheme),
		"JSON":     json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{}),
	} {
		for name, tc := range map[string]struct {
			annotations, labels map[string]string
			changed             bool
		}{
			"with the annotation":                           {map[string]string{"kcp.io/cluster": "team", "own": "kept"}, nil, false},
			"without annotations":                           {nil, nil, true},
			"with other annotations":                        {map[string]string{"own": "kept"}, nil, true},
			"with the name of another logical cluster":      {map[string]string{"kcp.io/cluster": "victim", "own": "kept"}, nil, true},
			"with a label of that name, and no annotations": {nil, map[string]string{"kcp.io/cluster": "team"}, true},
		} {
			t.Run(encoding+" "+name, func(t *testing.T) {
				stored := &corev1.ConfigMap{
					TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
					ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "ns", UID: "u", Annotations: tc.annotations, Labels: tc.labels},
					Data:       map[string]string{"embedded": `{"metadata":{"annotations":{"kcp.io/cluster":"team"}}}`},
				}
				data, err := runtime.Encode(serializer, stored)
				if err != nil {
					t.Fatal(err)
				}
				transformer := annotateFromKeys(nil, "/registry", "core/configmaps")
				read, stale, err := transformer.TransformFromStorage(t.Context(), data, value.DefaultContext("/registry/core/configmaps/team/ns/x"))
				if err != nil || stale != tc.changed {
					t.Fatalf("stale is %v, want %v; error %v", stale, tc.changed, err)
				}
				obj, _, err := serializer.Decode(read, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				got := obj.(*corev1.ConfigMap)
				if logicalcluster.Of(got).String() != "team" || got.Annotations["own"] != tc.annotations["own"] {
					t.Errorf("annotations are %v", got.Annotations)
				}
				if got.Name != "x" || got.UID != "u" || got.Data["embedded"] != stored.Data["embedded"] || got.Labels["kcp.io/cluster"] != tc.labels["kcp.io/cluster"] {
					t.Errorf("other fields have changed: %+v", got)
				}
			})
		}
	}
}

// TestUnreadableStoredValues: a value that cannot be parsed reaches the decoder as it is.
func TestUnreadableStoredValues(t *testing.T) {
	for name, data := range map[string]string{
		"cut protobuf": "k8s\x00\x0a\xff", "cut JSON": `{"metadata":{`, "JSON without metadata": `{"kind":"X"}`, "nothing": "", "metadata that is no object": `{"metadata":3}`,
	} {
		read, stale, err := annotateFromKeys(nil, "/registry", "/a/b").TransformFromStorage(t.Context(), []byte(data), value.DefaultContext("/registry/a/b/team/x"))
		if err != nil || stale || string(read) != data {
			t.Errorf("%s: %q, %v, %v", name, read, stale, err)
		}
	}
	failing := failingTransformer{}
	if _, _, err := annotateFromKeys(failing, "/registry", "/a/b").TransformFromStorage(t.Context(), nil, value.DefaultContext("/registry/a/b/team/x")); !errors.Is(err, errTransform) {
		t.Errorf("the error of decryption is %v", err)
	}
	outside := []byte(`{"metadata":{}}`)
	read, stale, err := annotateFromKeys(nil, "registry/", "a/b").TransformFromStorage(t.Context(), outside, value.DefaultContext("/registry/a/bc/team/x"))
	if err != nil || stale || !bytes.Equal(read, outside) {
		t.Errorf("a key outside of the resource: %q, %v, %v", read, stale, err)
	}
}

var errTransform = errors.New("cannot decrypt")

type failingTransformer struct{ value.Transformer }

func (failingTransformer) TransformFromStorage(context.Context, []byte, value.Context) ([]byte, bool, error) {
	return nil, false, errTransform
}

// BenchmarkAnnotatedValue is the cost of every read of a value that has the annotation.
func BenchmarkAnnotatedValue(b *testing.B) {
	scheme := legacyscheme.Scheme
	for encoding, serializer := range map[string]runtime.Serializer{
		"protobuf": protobuf.NewSerializer(scheme, scheme),
		"JSON":     json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{}),
	} {
		b.Run(encoding, func(b *testing.B) {
			data, err := runtime.Encode(serializer, &corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "ns", UID: "u", Annotations: map[string]string{"kcp.io/cluster": "team"}},
				Data:       map[string]string{"data": string(bytes.Repeat([]byte("x"), 2000))},
			})
			if err != nil {
				b.Fatal(err)
			}
			transformer := annotateFromKeys(nil, "/registry", "core/configmaps")
			key := value.DefaultContext("/registry/core/configmaps/team/ns/x")
			b.ReportAllocs()
			for b.Loop() {
				if _, changed, err := transformer.TransformFromStorage(b.Context(), data, key); changed || err != nil {
					b.Fatal(changed, err)
				}
			}
		})
	}
}
