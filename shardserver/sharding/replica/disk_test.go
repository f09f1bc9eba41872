package replica

import (
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func newDisk(t *testing.T) *Disk {
	t.Helper()
	server, err := embeddedetcd.Start(t.Context(), embeddedetcd.Config{Directory: t.TempDir(), UnsafeNoFsync: true, WALSizeBytes: 5000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	tls, err := transport.TLSInfo{CertFile: server.CertFile, KeyFile: server.KeyFile, TrustedCAFile: server.CAFile}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint}, TLS: tls})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	return &Disk{Etcd: etcd, Prefix: "/registry"}
}

// TestLargeObjectsAreCopied: etcd takes 1.5 MiB at once. Few large schemas of one tenant must not keep a shard from having
// a copy of what all others share.
func TestLargeObjectsAreCopied(t *testing.T) {
	disk := newDisk(t)
	m := New(Config{Shard: "alpha", Root: "root", Resources: resources(t), Disk: disk})
	m.dirty = map[diskKey]struct{}{}
	table := m.tables[workspaceTypes]
	put := func(name string, bytes int) {
		object := workspaceType(name)
		object.Annotations = map[string]string{logicalcluster.AnnotationKey: "tenant", "text": strings.Repeat("x", bytes)}
		table.put("root", "1", object)
	}
	const large, small = 20, 300
	for i := range large {
		put(fmt.Sprintf("large%d", i), 600_000)
	}
	for i := range small {
		put(fmt.Sprintf("small%d", i), 100)
	}
	put("huge", 13<<17)
	if err := m.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(m.dirty) > 0 {
		t.Errorf("%d copies are still to be written", len(m.dirty))
	}
	found := map[client.Key]bool{}
	if err := disk.read(t.Context(), func(key diskKey, _ copied) { found[key.Key] = true }); err != nil {
		t.Fatal(err)
	}
	if len(found) != large+small {
		t.Errorf("%d copies are there, want %d: all but the one that etcd never takes", len(found), large+small)
	}
}
