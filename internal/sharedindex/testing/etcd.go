// Package testing runs the etcd of a shared index inside a test process.
package testing

import (
	"net"
	"net/url"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/internal/sharedindex"
)

// Etcd is an etcd that can be stopped, and restarted with or without its data.
type Etcd struct {
	t       testing.TB
	address string
	dir     string
	etcd    *embed.Etcd
}

// Start runs an etcd on a free port of the loopback interface until the test ends.
func Start(t testing.TB) *Etcd {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &Etcd{t: t, address: listener.Addr().String(), dir: t.TempDir()}
	_ = listener.Close()
	e.Restart()
	t.Cleanup(e.Stop)
	return e
}

// Options returns the options to connect to the etcd.
func (e *Etcd) Options() *sharedindex.Options {
	o := sharedindex.NewOptions()
	o.Servers, o.CheckInterval = []string{"http://" + e.address}, 200*time.Millisecond
	return o
}

// Client returns a client that is closed when the test ends.
func (e *Etcd) Client() *clientv3.Client {
	e.t.Helper()
	client, err := e.Options().Connect()
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Stop stops the etcd and keeps its data.
func (e *Etcd) Stop() {
	if e.etcd != nil {
		e.etcd.Close()
		e.etcd = nil
	}
}

// DeleteData makes Restart start without data.
func (e *Etcd) DeleteData() { e.dir = e.t.TempDir() }

// Restart starts the etcd at the same address.
func (e *Etcd) Restart() {
	e.t.Helper()
	if err := embeddedetcd.SetWALSize(5000); err != nil { // as in the shards of tests
		e.t.Fatal(err)
	}
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.UnsafeNoFsync = e.dir, "fatal", true
	client := url.URL{Scheme: "http", Host: e.address}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.Name + "=" + peer.String()
	etcd, err := embed.StartEtcd(c)
	if err != nil {
		e.t.Fatal(err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		e.t.Fatal("etcd did not become ready")
	}
	e.etcd = etcd
}
