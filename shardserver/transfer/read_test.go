package transfer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func testDigest(t *testing.T) {
	from, to := newShard(t, origin, gcm(t, "a")), newShard(t, destination, box("b"))
	from.put(t, moving, secrets, "default/a", "1")
	from.put(t, moving, secrets, "default/b", "2")
	from.put(t, moving, plain, "w", "3")
	copyAll(t, from, to)
	entries, _, err := from.Read(t.Context(), moving, []Key{{secrets, "default/a"}, {plain, "w"}}, 0)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	a, w, writer := entries[0], entries[1], to.NewWriter(in, nil)
	store := func(entry Entry) {
		t.Helper()
		succeed(t, writer.Store(t.Context(), []Entry{entry}))
	}
	remove := func(key Key) {
		t.Helper()
		succeed(t, writer.Delete(t.Context(), []Key{key}))
	}
	changed, leased, additional, renamed := a, a, w, w
	changed.Value, leased.Expires, additional.Name, renamed.Name = []byte("other"), time.Now().Add(time.Hour), "w-2", "x"
	want, follower := from.digest(t), to.follow(t)
	for _, tc := range []struct {
		name           string
		change, revert func()
		want           string
	}{
		{"equal", func() {}, func() {}, ""},
		{"a missing key", func() { remove(a.Key) }, func() { store(a) }, secrets + " has 2 keys at the origin and 1 at the destination"},
		{"an additional key", func() { store(additional) }, func() { remove(additional.Key) }, plain + " has 1 keys at the origin and 2 at the destination"},
		{"a missing storage", func() { remove(w.Key) }, func() { store(w) }, plain + " has 1 keys at the origin and 0 at the destination"},
		{"a changed value", func() { store(changed) }, func() { store(a) }, secrets + " has other content at the destination than at the origin"},
		{"an additional lease", func() { store(leased) }, func() { store(a) }, secrets + " has other content at the destination than at the origin"},
		{"another name", func() { store(renamed); remove(w.Key) }, func() { store(w); remove(renamed.Key) }, plain + " has other content at the destination than at the origin"},
	} {
		tc.change()
		if got := difference(t, from, to); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
		if got := want.Difference(changes(t, follower, 0).Digest); got != tc.want {
			t.Errorf("%s: who follows gets %q, want %q", tc.name, got, tc.want)
		}
		tc.revert()
	}
	wire, err := json.Marshal(want)
	var decoded Digest
	if err != nil || json.Unmarshal(wire, &decoded) != nil || want.Difference(decoded) != "" {
		t.Errorf("%s decodes as %v, %v", wire, decoded, err)
	}
	if err := json.Unmarshal([]byte(`{"/core/secrets":{"keys":1,"sum":"AAAA"}}`), &decoded); err == nil {
		t.Error("a short sum is decoded")
	}
}

func testReadAtRevision(t *testing.T) {
	s := newShard(t, origin, nil)
	s.put(t, moving, configMaps, "default/a", "old")
	s.put(t, moving, configMaps, "default/b", "old")
	versions, revision, err := s.Manifest(t.Context(), moving)
	if err != nil || len(versions) != 2 {
		t.Fatalf("%v, %v", versions, err)
	}
	keys, _ := Difference(listed(versions), nil)
	s.put(t, moving, configMaps, "default/a", "new")
	s.delete(t, moving, configMaps, "default/b")
	entries, rest, err := s.Read(t.Context(), moving, keys, revision)
	if err != nil || len(rest) != 0 || len(entries) != 2 || string(entries[0].Value) != "old" || entries[0].Version != versions[0] || entries[1].Version != versions[1] {
		t.Errorf("at the revision: %v, %v, %v", entries, rest, err)
	}
	entries, rest, err = s.Read(t.Context(), moving, keys, 0)
	if err != nil || len(rest) != 0 || len(entries) != 1 || string(entries[0].Value) != "new" || entries[0].ModRevision <= revision {
		t.Errorf("latest: %v, %v, %v", entries, rest, err)
	}
}

func testReadLimits(t *testing.T) {
	s := newShard(t, origin, nil)
	large := strings.Repeat("x", 900<<10)
	var keys []Key
	for i := range 5 {
		keys = append(keys, Key{configMaps, fmt.Sprintf("default/large-%d", i)})
		s.put(t, moving, configMaps, keys[i].Name, large)
	}
	entries, rest, err := s.Read(t.Context(), moving, keys, 0)
	if err != nil || len(entries) != 2 || len(rest) != 3 || rest[0] != keys[2] {
		t.Errorf("large values: %d entries, rest %v, %v", len(entries), rest, err)
	}
	missing := make([]Key, MaxReadKeys+1)
	for i := range missing {
		missing[i] = Key{configMaps, fmt.Sprintf("default/missing-%d", i)}
	}
	entries, rest, err = s.Read(t.Context(), moving, missing, 0)
	if err != nil || len(entries) != 0 || len(rest) != 1 {
		t.Errorf("missing keys: %d entries, rest %v, %v", len(entries), rest, err)
	}
}

// testLargeValue has a value that is larger than what etcd stores here: the move fails before the pause.
func testLargeValue(t *testing.T) {
	to := newShard(t, destination, nil)
	entry := Entry{Version: Version{Key{secrets, "default/a"}, 1}, Value: bytes.Repeat([]byte("x"), 1600<<10)}
	if err := to.NewWriter(in, nil).Store(t.Context(), []Entry{entry}); err == nil || len(to.raw(t, "/")) != 0 {
		t.Errorf("got %v", err)
	}
}

func testRefusals(t *testing.T) {
	s := newShard(t, destination, nil)
	for name, key := range map[string]Key{
		"a storage that is not there":     {"/core/unknown", "a"},
		"a variant of a built-in storage": {secrets + "/customresources", "a"},
		"a variant with an identity":      {secrets + "/" + strings.Repeat("c", 64), "a"},
		"a storage without its variant":   {"/example.com/widgets", "a"},
		"another third segment":           {"/example.com/widgets/moving", "a"},
		"the records":                     {"/~incoming/moving", "a"},
		"a parent segment":                {"/core/..", "a"},
		"no storage":                      {"", "a"},
		"no name":                         {secrets, ""},
		"an absolute name":                {secrets, "/a"},
		"an empty segment":                {secrets, "default//a"},
		"a segment of dots":               {secrets, "../other/default/a"},
	} {
		if err := s.NewWriter(in, nil).Store(t.Context(), []Entry{{Version: Version{Key: key}}}); err == nil {
			t.Errorf("%s: stored", name)
		}
		if err := s.NewWriter(in, nil).Delete(t.Context(), []Key{key}); err == nil && checkKey(key) != nil {
			t.Errorf("%s: deleted", name)
		}
		if _, _, err := s.Read(t.Context(), moving, []Key{key}, 0); err == nil && !strings.HasPrefix(key.Resource, "/example.com/widgets/") {
			t.Errorf("%s: read", name)
		}
	}
	s.put(t, moving, logical, "cluster", "arriving")
	succeed(t, s.NewWriter(in, nil).Delete(t.Context(), []Key{{logical, "cluster"}}))
	if got := s.raw(t, logical); len(got) != 1 {
		t.Error("a key that was not copied is deleted")
	}
	twice := Entry{Version: Version{Key: Key{secrets, "default/a"}}}
	if err := s.NewWriter(in, nil).Store(t.Context(), []Entry{twice, twice}); err == nil {
		t.Error("a key was stored twice")
	}
	// The storage of a bound API need not exist at the destination yet.
	succeed(t, s.NewWriter(in, nil).Store(t.Context(), []Entry{{Version: Version{Key: Key{"/example.com/gadgets/" + strings.Repeat("c", 64), "a"}}}}))
	for _, bad := range []types.UID{"", "a/b", "..", "~", types.UID(strings.Repeat("a", 64))} {
		if err := s.Forget(t.Context(), Incoming{moving, bad}); err == nil {
			t.Errorf("UID %q is accepted", bad)
		}
	}
	for _, cluster := range []logicalcluster.Name{{}, logicalcluster.Wildcard, logicalcluster.Admin, logicalcluster.MustParseName("customresources")} {
		_, _, manifest := s.Manifest(t.Context(), cluster)
		_, follow := s.Follow(t.Context(), cluster, Key{})
		_, purge := s.Purge(t.Context(), cluster, storages, nil, nil)
		_, _, read := s.Read(t.Context(), cluster, nil, 0)
		_, copied := s.Copied(t.Context(), Incoming{cluster, uid})
		for _, err := range []error{manifest, follow, purge, read, copied, s.NewWriter(Incoming{cluster, uid}, nil).Store(t.Context(), nil), s.Forget(t.Context(), Incoming{cluster, uid})} {
			if err == nil {
				t.Errorf("logical cluster %q is accepted", cluster)
			}
		}
	}
}

// testPages has more keys than fit into one page or one transaction.
func testPages(t *testing.T) {
	const keys = 10000
	from, to := newShard(t, origin, nil), newShard(t, destination, nil)
	fill(t, from, keys, "content")
	copyAll(t, from, to)
	if got := difference(t, from, to); got != "" {
		t.Error(got)
	}
	succeed(t, to.Forget(t.Context(), in))
	if left := to.raw(t, "/~incoming"); len(left) != 0 {
		t.Errorf("%d records are left", len(left))
	}
	if got := from.digest(t)[configMaps].Keys; got != keys {
		t.Errorf("%d keys", got)
	}
	if deleted, err := from.Purge(t.Context(), moving, storages, nil, nil); err != nil || deleted != keys {
		t.Errorf("deleted %d, %v", deleted, err)
	}
}

// fill stores config maps, a transaction of many at a time.
func fill(t testing.TB, s *shard, keys int, content string) {
	t.Helper()
	var ops []clientv3.Op
	for i := range keys {
		ops = append(ops, clientv3.OpPut(s.clusterKey(moving, Key{configMaps, fmt.Sprintf("default/c-%05d", i)}), content))
		if len(ops) == opsPerRequest || i == keys-1 {
			if _, err := s.client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
			ops = nil
		}
	}
}
