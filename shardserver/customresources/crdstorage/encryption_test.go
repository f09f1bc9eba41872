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

// fixedTransformer encrypts every resource with one key.
type fixedTransformer struct{ storagevalue.Transformer }

func (f fixedTransformer) TransformerForResource(schema.GroupResource) storagevalue.Transformer {
	return f
}

func TestEncryptionAtRest(t *testing.T) {
	const group = "secret.example.io"
	block, err := aes.NewCipher(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	transformer, err := aestransformer.NewGCMTransformer(block)
	if err != nil {
		t.Fatal(err)
	}
	encryptedOptions := newOptions()
	encryptedOptions.Transformers = fixedTransformer{transformer}
	cleanupStorage(t, widgetsResource(group))
	storage, release, err := crdstorage.NewPool(encryptedOptions).Acquire(widgetsResource(group), "customresources")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	s := newServer(t)
	s.handle("ours", newContentHandler(t, storage, newDefinition(group)))
	path := "/ours/clusters/one/apis/" + group + "/v1/namespaces/default/widgets"
	s.mustDo(t, http.MethodPost, path, newWidgetJSON(group, "v1", "a", nil, `{"color":"hidden"}`))
	res, err := newEtcdClient(t).Get(t.Context(), "/registry/"+group+"/", clientv3.WithPrefix())
	if err != nil || len(res.Kvs) != 1 || bytes.Contains(res.Kvs[0].Value, []byte("hidden")) {
		t.Errorf("stored value is %v, %v", res, err)
	}
	for _, query := range []string{"", "?resourceVersion=" + s.mustDo(t, http.MethodGet, path+"/a", "").GetResourceVersion()} {
		if color, _, _ := unstructuredString(s.mustDo(t, http.MethodGet, path+"/a"+query, "").Object, "spec", "color"); color != "hidden" {
			t.Errorf("read value is %q", color)
		}
	}
}
