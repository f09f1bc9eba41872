package storage

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// FuzzKeys checks the layout of keys: for every key of a registry, the key in a logical cluster is below that cluster's
// prefix of the resource, two logical clusters never share a key, and the watch cache computes the same key from the
// object.
func FuzzKeys(f *testing.F) {
	for _, seed := range [][3]string{
		{"root", "default", "x"}, {"system:admin", "", "x"}, {"2cynbfy2m0wtjqcs", "root", "root"}, {"a", "..", "b"}, {"a", "", ""}, {"*", "ns", "x"}, {"a", "b/c", "/"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	l := layout{prefix: "/core/configmaps"}
	other := logicalcluster.MustParseName("other")
	f.Fuzz(func(t *testing.T, cluster, namespace, name string) {
		parsed, err := logicalcluster.ParseName(cluster)
		if err != nil || parsed == other {
			return
		}
		requested := "/core/configmaps/" + namespace + "/" + name
		key, err := l.key(clusterContext(parsed), requested)
		if err != nil {
			t.Fatalf("key(%q) in %q: %v", requested, cluster, err)
		}
		prefix := "/core/configmaps/" + cluster + "/"
		if !strings.HasPrefix(key, prefix) || strings.TrimPrefix(key, prefix) != namespace+"/"+name {
			t.Fatalf("key(%q) in %q = %q", requested, cluster, key)
		}
		otherKey, err := l.key(clusterContext(other), requested)
		if err != nil || otherKey == key {
			t.Fatalf("%q and %q share %q (%v)", cluster, other, key, err)
		}
		ranged, _, err := l.rangeKey(clusterContext(parsed), requested)
		if err != nil || ranged != key {
			t.Fatalf("rangeKey(%q) = %q, %v; key is %q", requested, ranged, err, key)
		}
		object := &metav1.PartialObjectMetadata{}
		if err := setClusterAnnotation(clusterContext(parsed), object); err != nil {
			t.Fatal(err)
		}
		objectKey, err := l.objectKey(func(runtime.Object) (string, error) { return requested, nil })(object)
		if err != nil || objectKey != key {
			t.Fatalf("the watch cache has %q (%v), storage has %q", objectKey, err, key)
		}
	})
}

// FuzzRanges checks that no key yields a range outside of the resource, and that a range over all logical clusters is
// always the whole resource.
func FuzzRanges(f *testing.F) {
	for _, seed := range []string{"/core/configmaps", "/core/configmaps/", "/core/configmaps/ns/", "/core/configmapsx", "/core", "", "/", "../core/configmaps", "/core/configmaps//"} {
		f.Add(seed)
	}
	l := layout{prefix: "/core/configmaps"}
	f.Fuzz(func(t *testing.T, requested string) {
		if key, _, err := l.rangeKey(clusterContext(logicalcluster.Wildcard), requested); err == nil && strings.TrimRight(key, "/") != l.prefix {
			t.Fatalf("the wildcard returns %q for %q", key, requested)
		}
		key, _, err := l.rangeKey(clusterContext(logicalcluster.Root), requested)
		if err == nil && key != "/core/configmaps/root" && !strings.HasPrefix(key, "/core/configmaps/root/") {
			t.Fatalf("%q becomes %q, outside of the cluster", requested, key)
		}
	})
}

// FuzzContinueTokens checks that a continue token cannot select another logical cluster than that of the request.
// Tokens are not signed: their key is relative to the range of the request, and must stay below it.
func FuzzContinueTokens(f *testing.F) {
	const prefix = "/registry/core/configmaps/mine/"
	for _, seed := range []string{"default/x\x00", "../other/default/x", "/../../other", "", "/", "a//b", "./x", "x/..", "..", "\x00"} {
		f.Add(seed, int64(7))
	}
	f.Fuzz(func(t *testing.T, start string, revision int64) {
		forged, err := json.Marshal(map[string]any{"v": "meta.k8s.io/v1", "rv": revision, "start": start})
		if err != nil {
			t.Skip()
		}
		for _, token := range []string{base64.RawURLEncoding.EncodeToString(forged), start} {
			key, _, err := storage.DecodeContinue(token, prefix)
			if err == nil && (!strings.HasPrefix(key, prefix) || strings.Contains(key, "/../")) {
				t.Fatalf("token %s selects %q", forged, key)
			}
		}
	})
}
