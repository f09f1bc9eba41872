package crdstorage_test

import (
	"bytes"
	"crypto/aes"
	"net/http"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	storagevalue "k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"

	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
)

// oneKey encrypts every resource with one key.
type oneKey struct{ storagevalue.Transformer }

func (k oneKey) TransformerForResource(schema.GroupResource) storagevalue.Transformer { return k }

func TestObjectsAreEncryptedAtRest(t *testing.T) {
	const group = "secret.example.io"
	block, err := aes.NewCipher(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	transformer, err := aestransformer.NewGCMTransformer(block)
	if err != nil {
		t.Fatal(err)
	}
	encrypting := options()
	encrypting.Transformers = oneKey{transformer}
	forget(t, widgets(group))
	storage, release, err := crdstorage.NewPool(encrypting).Acquire(widgets(group), "customresources")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	s := newServer(t)
	s.handle("ours", newContent(t, storage, definition(group)))
	path := "/ours/clusters/one/apis/" + group + "/v1/namespaces/default/widgets"
	s.must(t, http.MethodPost, path, widget(group, "v1", "a", nil, `{"color":"hidden"}`))
	res, err := etcdClient(t).Get(t.Context(), "/registry/"+group+"/", clientv3.WithPrefix())
	if err != nil || len(res.Kvs) != 1 || bytes.Contains(res.Kvs[0].Value, []byte("hidden")) {
		t.Errorf("stored is %v, %v", res, err)
	}
	for _, query := range []string{"", "?resourceVersion=" + s.must(t, http.MethodGet, path+"/a", "").GetResourceVersion()} {
		if color, _, _ := unstructuredString(s.must(t, http.MethodGet, path+"/a"+query, "").Object, "spec", "color"); color != "hidden" {
			t.Errorf("read is %q", color)
		}
	}
}
