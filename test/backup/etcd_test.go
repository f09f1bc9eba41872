package backup

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/etcdtest"
)

// startProxy runs a server before the S3 server that sees each request first.
func startProxy(t *testing.T, s *s3, see func(*http.Request)) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: s.address})
		r.Out.Host = r.In.Host // signed
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		see(r)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestCompaction compacts etcd to the newest revision when the first snapshot is uploaded: the inventories of all shards have been read
// then.
func TestCompaction(t *testing.T) {
	s, etcd := startS3(t), etcdtest.Start(t)
	i := newInstallation(t, s, etcd)
	i.fill(t, 1)
	compact := sync.OnceValue(func() error {
		put, err := i.etcdClient.Put(t.Context(), "/registry/later", "")
		if err != nil {
			return err
		}
		_, err = i.etcdClient.Compact(t.Context(), put.Header.Revision, clientv3.WithCompactPhysical())
		return err
	})
	var withoutDigest atomic.Pointer[string]
	i.config.Store.EndpointURL = startProxy(t, s, func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/etcd.snapshot.zst.age") {
			if err := compact(); err != nil {
				t.Error(err)
			}
		}
		if r.Method == http.MethodPut && r.Header.Get("Content-MD5") == "" {
			withoutDigest.Store(&r.URL.Path)
		}
	})
	shard := i.config.Shards[0]
	for _, name := range []string{"alpha", "beta"} {
		shard.Name = name
		i.config.Shards = append(i.config.Shards, shard)
	}
	if result := i.mustCreate(t); result.Shards != 3 || result.LogicalClusters != 6 {
		t.Errorf("the result is %+v", result)
	}
	// S3 demands a digest in a bucket with object lock.
	if found := withoutDigest.Load(); found != nil {
		t.Errorf("a request for %s has no digest", *found)
	}
}

// TestOneConnection reads an etcd through an address that could be that of several members: all that is read of a shard has to be from one.
func TestOneConnection(t *testing.T) {
	s, etcd := startS3(t), etcdtest.Start(t)
	i := newInstallation(t, s, etcd)
	i.fill(t, 1)
	endpoint, err := url.Parse(etcd.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	members := newCounter(t, endpoint.Host, 0)
	i.config.Shards = []config.Shard{i.config.Shards[0]}
	i.config.Shards[0].Endpoints = []string{"https://" + members.address}
	i.mustCreate(t)
	if connections := members.connections.Load(); connections != 1 {
		t.Errorf("%d connections, want 1", connections)
	}
	if saved := i.manifest(t).Shards[0]; !strings.HasPrefix(saved.EtcdVersion, "3.") || saved.EtcdClusterID == "" || saved.RevisionFrom == 0 || saved.RevisionFrom != saved.RevisionTo {
		t.Errorf("the manifest has %+v", saved)
	}
}
