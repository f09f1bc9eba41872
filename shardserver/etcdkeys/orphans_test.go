package etcdkeys

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// TestOwnKeysAreNoOrphans has the keys of a shard that are not those of objects.
func TestOwnKeysAreNoOrphans(t *testing.T) {
	for _, key := range []string{"~owner", "~replicas/0123456789abcdef0123456789abcdef", "~paused/abc/0123456789abcdef0123456789abcdef"} {
		if prefix, _, custom := storagePrefixOf(key, map[string]bool{}); custom {
			t.Errorf("%s is taken for a key of the storage %s", key, prefix)
		}
	}
}

func TestGapsBetween(t *testing.T) {
	known := map[string]bool{"/core/pods": true, "/core/pods/customresources": true, "/core/pods-more": true, "/apps/sets/customresources": true}
	got := fmt.Sprint(gapsBetween("/r/", known))
	want := "[{/r/ /r/apps/sets/customresources/} {/r/apps/sets/customresources0 /r/core/pods-more/} {/r/core/pods-more0 /r/core/pods/} {/r/core/pods0 /r/~}]"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestScanStoragePrefixes has keys that another replica has stored since the replica of the Scanner has looked.
func TestScanStoragePrefixes(t *testing.T) {
	server := etcdtest.Start(t)
	identity := strings.Repeat("a", identityLength)
	registry := storage.NewRegistry(storage.Locality{})
	registry.Add(&storage.Resource{GVR: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Prefix: "/core/configmaps"})
	registry.AddCustom(&storage.Resource{Prefix: "/example.com/widgets/customresources"})
	s := New(Config{Prefix: "/registry", Registry: registry, Transport: storagebackend.TransportConfig{
		ServerList: []string{server.Endpoint}, TrustedCAFile: server.CAFile, CertFile: server.CertFile, KeyFile: server.KeyFile,
	}})
	defer s.Close()
	client := etcdtest.NewClient(t, server)
	put := func(keys ...string) {
		t.Helper()
		for _, key := range keys {
			if _, err := client.Put(t.Context(), "/registry/"+key, "value"); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(name string, got []string, err error, want ...string) {
		t.Helper()
		want = append(want, "/core/configmaps", "/example.com/widgets/customresources")
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, want)
		}
	}
	put("core/configmaps/moving/default/a", "core/configmaps/"+identity+"/default/a", "example.com/widgets/customresources/moving/a", "old.example.com/things/customresources/moving/a", "~owner", "stray")
	got, err := s.StoragePrefixes(t.Context())
	check("at first", got, err, "/old.example.com/things/customresources")

	put("example.com/widgets/"+identity+"/moving/a", "a.example.com/first/customresources/moving/a", "a.example.com/second/customresources/moving/a",
		"z.example.com/last/customresources/other/a", "new.k8s.io/kinds/moving/a", "new.k8s.io/kinds/other/a", "stray-group/things/customresources/moving/a")
	fresh := []string{
		"/old.example.com/things/customresources", "/example.com/widgets/" + identity, "/a.example.com/first/customresources", "/a.example.com/second/customresources",
		"/z.example.com/last/customresources", "/stray-group/things/customresources",
	}
	got, err = s.ScanStoragePrefixes(t.Context())
	check("when another replica has stored objects", got, err, append(slices.Clone(fresh), "/new.k8s.io/kinds")...)
	got, err = s.StoragePrefixes(t.Context())
	check("afterwards", got, err, fresh...)
}
