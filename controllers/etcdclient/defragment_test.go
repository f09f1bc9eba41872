package etcdclient_test

import (
	"os"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/etcdclient"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
)

// TestDefragment fills an etcd until it rejects writes, and defragments it after most of the data is deleted.
func TestDefragment(t *testing.T) {
	const quota = 8 << 20
	server, err := embeddedetcd.Start(t.Context(), embeddedetcd.Config{Directory: t.TempDir(), WALSizeBytes: 5000, UnsafeNoFsync: true, QuotaBackendBytes: quota})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	data := map[string][]byte{}
	for key, file := range map[string]string{"tls.crt": server.CertFile, "tls.key": server.KeyFile, "ca.crt": server.CAFile} {
		if data[key], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	credentials, err := etcdclient.Client{}.Credentials(data)
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint}, TLS: credentials, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if _, err := client.Put(t.Context(), "marked", "x"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a key that does not exist is no error
		if err := (etcdclient.Client{}).DeleteKey(t.Context(), []string{server.Endpoint}, credentials, "marked"); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := client.Get(t.Context(), "marked"); err != nil || found.Count > 0 {
		t.Errorf("a deleted key is found %d times, %v", found.Count, err)
	}
	value := strings.Repeat("x", 256<<10)
	for i := 0; err == nil; i++ {
		if i > 100 {
			t.Fatal("the quota has no effect")
		}
		_, err = client.Put(t.Context(), "fill/"+string(rune('a'+i)), value)
	}
	endpoints := []etcd.Endpoint{{Name: "root-etcd-0", ClientURL: server.Endpoint, MetricsURL: "http://127.0.0.1:1"}}
	observe := func() etcd.Facts {
		var facts etcd.Facts
		etcdclient.Client{}.Observe(t.Context(), endpoints, credentials, &facts)
		return facts
	}
	full := observe()
	if !full.Members[0].NoSpace || full.Members[0].Quota != quota {
		t.Fatalf("got %+v", full.Members[0])
	}
	if _, err := client.Delete(t.Context(), "fill/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if err := (etcdclient.Client{}).Defragment(t.Context(), endpoints, credentials, observe()); err != nil {
		t.Fatal(err)
	}
	after := observe().Members[0]
	if after.NoSpace || after.Size*4 > full.Members[0].Size {
		t.Errorf("%d bytes before and %d afterwards, alarm %t", full.Members[0].Size, after.Size, after.NoSpace)
	}
	if _, err := client.Put(t.Context(), "again", "x"); err != nil {
		t.Error(err)
	}
}
