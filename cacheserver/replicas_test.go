package cacheserver_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/cacheserver"
	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/options"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/internal/etcdowner"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestReplicasShareState(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	top := cachetesting.Start(t)
	configureRegion := withParent(t, top, "region")
	configure := func(o *options.Options) {
		configureRegion(o)
		store.Connect(&o.Etcd.StorageConfig.Transport)
	}
	first := cachetesting.Start(t, configure)
	second := first.Replica(t, configure)

	publisher1, publisher2 := newPublisher(t, first, "alpha"), newPublisher(t, second, "alpha")
	seen := runRecorder(t, publisher2.Client, exports)
	publisher1.put(exports, testCluster, newObject(exports, "one", setGlobalReach))
	publisher1.publishReport(true)
	seen.eventually(t, "a change through the other replica", func() bool {
		return seen.objects[client.Key{Shard: "alpha", Cluster: testCluster, Name: "one"}]
	})
	parentReader := top.Client(t, "reader")
	expectObjects(t, parentReader, exports, "alpha|abc|one")

	// One of the two replicas stops; positions are valid at the other.
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	publisher2.put(exports, testCluster, newObject(exports, "two", setGlobalReach))
	expectObjects(t, parentReader, exports, "alpha|abc|one", "alpha|abc|two")
	if seen.lists != 1 {
		t.Errorf("got %d lists", seen.lists)
	}
}

// TestCacheOfAnotherOwner: a cache server on the keys of another one only answers health checks, and names the owner.
func TestCacheOfAnotherOwner(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	configure := func(owner string) func(*options.Options) {
		return func(o *options.Options) {
			o.EtcdOwner.Owner = owner
			store.Connect(&o.Etcd.StorageConfig.Transport)
		}
	}
	first := cachetesting.Start(t, configure("first"))
	config, address := first.Beside(t, configure("second"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		server, err := cacheserver.New(ctx, config)
		if err == nil {
			err = server.Run(ctx)
		}
		ended <- err
	}()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	var code int
	var body []byte
	for deadline := time.Now().Add(time.Minute); ; {
		response, err := (&http.Client{Transport: transport}).Get(address + "/readyz")
		if err == nil {
			code = response.StatusCode
			body, _ = io.ReadAll(response.Body)
			_ = response.Body.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if code != http.StatusInternalServerError || !strings.Contains(string(body), `belong to "first"`) {
		t.Errorf("/readyz: %d %s", code, body)
	}
	cancel()
	var owned *etcdowner.OwnedError
	if err := <-ended; !errors.As(err, &owned) {
		t.Errorf("it ended with %v", err)
	}
}

func TestRemovedShardIsGarbageCollected(t *testing.T) {
	t.Parallel()
	own := cachetesting.Start(t, func(o *options.Options) { o.ShardTimeout = 2 * time.Second })
	root, alpha := newPublisher(t, own, "root"), newPublisher(t, own, "alpha")
	cachedGVR := schema.GroupVersionResource{Group: "example.io", Version: "v1", Resource: "widgets:0123"}
	for _, shard := range []string{"root", "alpha"} {
		root.put(shards, logicalcluster.Root, newObject(shards, shard))
	}
	root.put(exports, testCluster, newObject(exports, "root"))
	root.publishReport(true)
	alpha.put(exports, testCluster, newObject(exports, "alpha"))
	alpha.publishReport(true)
	widget := newObject(exports, "x")
	widget.SetAPIVersion("example.io/v1")
	widget.SetKind("Widget")
	if _, err := alpha.Create(t.Context(), cachedGVR, testCluster, widget); err != nil {
		t.Fatal(err)
	}

	seen := runRecorder(t, root.Client, exports)
	root.remove(shards, logicalcluster.Root, "alpha")
	for range 6 { // longer than the shard timeout
		alpha.publishReport(true)
		time.Sleep(500 * time.Millisecond)
	}
	expectObjects(t, root.Client, exports, "alpha|abc|alpha", "root|abc|root") // it still reports
	expectObjects(t, root.Client, exports, "root|abc|root")
	expectObjects(t, root.Client, client.Reports, "root|root|root")
	expectObjects(t, root.Client, cachedGVR)
	seen.eventually(t, "the deletion event", func() bool { return slices.Contains(seen.events, "DELETED alpha|abc|alpha") })
}
