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

// encoded returns the stored encoding of a config map with a certificate of 1.5 KB.
func encoded(t *testing.T, cluster, certificate string) []byte {
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

func sharing(shared *Shared) runtime.Codec {
	return shared.Codec(legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), func(obj runtime.Object) map[string]string {
		if configMap, ok := obj.(*core.ConfigMap); ok {
			return configMap.Data
		}
		return nil
	})
}

func decoded(t *testing.T, codec runtime.Codec, data []byte) *core.ConfigMap {
	t.Helper()
	configMap := &core.ConfigMap{}
	if _, _, err := codec.Decode(data, nil, configMap); err != nil {
		t.Fatal(err)
	}
	return configMap
}

func TestEqualContentsAreOneInMemory(t *testing.T) {
	codec := sharing(NewShared())
	a, b, other := decoded(t, codec, encoded(t, "a", "abc")), decoded(t, codec, encoded(t, "b", "abc")), decoded(t, codec, encoded(t, "c", "xyz"))
	one := func(x, y string) bool { return unsafe.StringData(x) == unsafe.StringData(y) }
	if !one(a.Data["ca.crt"], b.Data["ca.crt"]) || one(a.Data["ca.crt"], other.Data["ca.crt"]) {
		t.Error("equal certificates should be one, others should not")
	}
	if !one(a.Annotations["long"], other.Annotations["long"]) {
		t.Error("equal annotations should be one")
	}
	if a.ManagedFields[0].FieldsV1 != other.ManagedFields[0].FieldsV1 {
		t.Error("equal managed fields should be one")
	}
	for cluster, shared := range map[string]*core.ConfigMap{"a": a, "b": b} {
		plain := decoded(t, legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), encoded(t, cluster, "abc"))
		if !equality.Semantic.DeepEqual(plain, shared) {
			t.Errorf("sharing changed the object of %s: %v instead of %v", cluster, shared, plain)
		}
	}
}

func TestEqualHashesAreNotEqualContents(t *testing.T) {
	texts := NewShared()
	first, second := strings.Repeat("a", SharedTextSize), strings.Repeat("b", SharedTextSize)
	equal := func(text string) func(*byte) bool {
		return func(known *byte) bool { return unsafe.String(known, len(text)) == text }
	}
	texts.texts.share(content{hash: 1, size: SharedTextSize}, unsafe.StringData(first), equal(first))
	if got := texts.texts.share(content{hash: 1, size: SharedTextSize}, unsafe.StringData(second), equal(second)); *got != 'b' {
		t.Error("a text of another content was returned")
	}
	goruntime.KeepAlive(first)
}

func TestWhatNobodyHoldsIsForgotten(t *testing.T) {
	shared := NewShared()
	codec := sharing(shared)
	held := make([]*core.ConfigMap, 0, 10)
	for i := range 10 {
		held = append(held, decoded(t, codec, encoded(t, fmt.Sprint(i), fmt.Sprint(i))))
	}
	if texts, sets := shared.Sizes(); texts != 11 || sets != 1 {
		t.Errorf("%d texts and %d sets of fields are shared, want ten certificates, one annotation, one set", texts, sets)
	}
	goruntime.KeepAlive(held)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		goruntime.GC()
		texts, sets := shared.Sizes()
		if texts == 0 && sets == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d texts and %d sets of fields are left", texts, sets)
		}
	}
}
