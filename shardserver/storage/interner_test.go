package storage

import (
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // registers the kinds that the test decodes
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
)

// encodeConfigMap returns the stored encoding of a config map with a certificate of 1.5 KB.
func encodeConfigMap(t *testing.T, cluster, certificate string) []byte {
	t.Helper()
	data, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), &core.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kube-root-ca.crt", Namespace: "default", Annotations: map[string]string{"kcp.io/cluster": cluster, "long": strings.Repeat("x", 500)},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kcp", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{".":{},"f:ca.crt":{}}}`)},
				{Manager: "without"},
			},
		},
		Data: map[string]string{"ca.crt": strings.Repeat(certificate, 500), "short": cluster},
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func newInterningCodec(interner *Interner) runtime.Codec {
	return interner.Codec(legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), func(obj runtime.Object) map[string]string {
		if configMap, ok := obj.(*core.ConfigMap); ok {
			return configMap.Data
		}
		return nil
	})
}

func decodeConfigMap(t *testing.T, codec runtime.Codec, data []byte) *core.ConfigMap {
	t.Helper()
	configMap := &core.ConfigMap{}
	if _, _, err := codec.Decode(data, nil, configMap); err != nil {
		t.Fatal(err)
	}
	return configMap
}

func TestInternerSharesEqualContent(t *testing.T) {
	codec := newInterningCodec(NewInterner())
	a, b, other := decodeConfigMap(t, codec, encodeConfigMap(t, "a", "abc")), decodeConfigMap(t, codec, encodeConfigMap(t, "b", "abc")), decodeConfigMap(t, codec, encodeConfigMap(t, "c", "xyz"))
	same := func(x, y string) bool { return unsafe.StringData(x) == unsafe.StringData(y) }
	if !same(a.Data["ca.crt"], b.Data["ca.crt"]) || same(a.Data["ca.crt"], other.Data["ca.crt"]) {
		t.Error("equal certificates should be one, others should not")
	}
	if !same(a.Annotations["long"], other.Annotations["long"]) {
		t.Error("equal annotations should be one")
	}
	if a.ManagedFields[0].FieldsV1 != other.ManagedFields[0].FieldsV1 {
		t.Error("equal managed fields should be one")
	}
	for cluster, shared := range map[string]*core.ConfigMap{"a": a, "b": b} {
		plain := decodeConfigMap(t, legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), encodeConfigMap(t, cluster, "abc"))
		if !equality.Semantic.DeepEqual(plain, shared) {
			t.Errorf("sharing changed the object of %s: %v instead of %v", cluster, shared, plain)
		}
	}
}

func TestInternerHashCollision(t *testing.T) {
	interner := NewInterner()
	first, second := strings.Repeat("a", MinInternedSize), strings.Repeat("b", MinInternedSize)
	equal := func(text string) func(*byte) bool {
		return func(known *byte) bool { return unsafe.String(known, len(text)) == text }
	}
	interner.stringTable.intern(contentHash{hash: 1, size: MinInternedSize}, unsafe.StringData(first), equal(first))
	if got := interner.stringTable.intern(contentHash{hash: 1, size: MinInternedSize}, unsafe.StringData(second), equal(second)); *got != 'b' {
		t.Error("a text of another content was returned")
	}
	goruntime.KeepAlive(first)
}

func TestInternerReleasesUnusedContent(t *testing.T) {
	interner := NewInterner()
	codec := newInterningCodec(interner)
	objects := make([]*core.ConfigMap, 0, 10)
	for i := range 10 {
		objects = append(objects, decodeConfigMap(t, codec, encodeConfigMap(t, fmt.Sprint(i), fmt.Sprint(i))))
	}
	if texts, sets := interner.Sizes(); texts != 11 || sets != 1 {
		t.Errorf("%d texts and %d sets of fields are shared, want ten certificates, one annotation, one set", texts, sets)
	}
	goruntime.KeepAlive(objects)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		goruntime.GC()
		texts, sets := interner.Sizes()
		if texts == 0 && sets == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d texts and %d sets of fields remain", texts, sets)
		}
	}
}
