package cacheserver_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/cacheserver/client"
	"github.com/atoll-dev/atoll/cacheserver/options"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestReplicasAreOneCache(t *testing.T) {
	t.Parallel()
	store, err := embeddedetcd.Start(t.Context(), embeddedetcd.Config{Directory: t.TempDir(), WALSizeBytes: 5000, UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	top := cachetesting.Start(t)
	intoRegion := below(t, top, "region")
	outside := func(o *options.Options) {
		intoRegion(o)
		transport := &o.Etcd.StorageConfig.Transport
		transport.ServerList = []string{store.Endpoint}
		transport.TrustedCAFile, transport.CertFile, transport.KeyFile = store.CAFile, store.CertFile, store.KeyFile
	}
	first := cachetesting.Start(t, outside)
	second := first.Replica(t, outside)

	through1, through2 := publisherIn(t, first, "alpha"), publisherIn(t, second, "alpha")
	seen := watchFor(t, through2.Client, exports)
	through1.put(exports, someLC, object(exports, "one", global))
	through1.beat(true)
	seen.eventually(t, "a change through the other replica", func() bool {
		return seen.objects[client.Key{Shard: "alpha", Cluster: someLC, Name: "one"}]
	})
	above := top.Client(t, "reader")
	stands(t, above, exports, "alpha|abc|one")

	// One of the two goes, the one that carries to the parent or the other; positions mean the same to the one that stays.
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	through2.put(exports, someLC, object(exports, "two", global))
	stands(t, above, exports, "alpha|abc|one", "alpha|abc|two")
	if seen.lists != 1 {
		t.Errorf("there were %d lists", seen.lists)
	}
}

func TestWhatAShardPublishedGoesAfterIt(t *testing.T) {
	t.Parallel()
	own := cachetesting.Start(t, func(o *options.Options) { o.Silence = 2 * time.Second })
	root, alpha := publisherIn(t, own, "root"), publisherIn(t, own, "alpha")
	ofUser := schema.GroupVersionResource{Group: "example.io", Version: "v1", Resource: "widgets:0123"}
	for _, shard := range []string{"root", "alpha"} {
		root.put(shards, logicalcluster.Root, object(shards, shard))
	}
	root.put(exports, someLC, object(exports, "root"))
	root.beat(true)
	alpha.put(exports, someLC, object(exports, "alpha"))
	alpha.beat(true)
	widget := object(exports, "x")
	widget.SetAPIVersion("example.io/v1")
	widget.SetKind("Widget")
	if _, err := alpha.Create(t.Context(), ofUser, someLC, widget); err != nil {
		t.Fatal(err)
	}

	seen := watchFor(t, root.Client, exports)
	root.remove(shards, logicalcluster.Root, "alpha")
	for range 6 { // longer than a silent shard would be left alone
		alpha.beat(true)
		time.Sleep(500 * time.Millisecond)
	}
	stands(t, root.Client, exports, "alpha|abc|alpha", "root|abc|root") // it is alive
	stands(t, root.Client, exports, "root|abc|root")
	stands(t, root.Client, client.Reports, "root|root|root")
	stands(t, root.Client, ofUser)
	seen.eventually(t, "the deletion as an event", func() bool { return slices.Contains(seen.events, "DELETED alpha|abc|alpha") })
}
