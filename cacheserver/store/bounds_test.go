package store

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestWhatAShardMayWrite(t *testing.T) {
	bounds := Bounds{Objects: 10, Bytes: 800}
	for name, tc := range map[string]struct {
		bounds Bounds
		has    Amount
		what   written
		want   string // part of the refusal; empty for what may be written
	}{
		"anything without bounds":                        {Bounds{}, Amount{1 << 40, 1 << 40, 1 << 40}, added, ""},
		"a new object below the bounds":                  {bounds, Amount{9, 799, 0}, added, ""},
		"no object beyond their number":                  {bounds, Amount{10, 0, 0}, added, "has 10 objects in this cache, where 10 are allowed (--max-objects-per-shard)"},
		"larger objects at their number":                 {bounds, Amount{10, 0, 0}, grown, ""},
		"no new object beyond the bytes":                 {bounds, Amount{1, 800, 0}, added, "take 800 bytes of this cache, where 800 are allowed (--max-bytes-per-shard)"},
		"no larger object beyond the bytes":              {bounds, Amount{1, 800, 0}, grown, "--max-bytes-per-shard"},
		"others in their place beyond the bytes":         {bounds, Amount{1, 800, 799}, replaced, ""},
		"no more who rewrites all the time":              {bounds, Amount{1, 100, 1500}, replaced, "takes 1600 bytes of this cache, 1500 of them by what was replaced within 10m0s, where twice 800 are allowed"},
		"a report, who can write nothing else":           {bounds, Amount{10, 800, 800}, reported, ""},
		"no report either who writes nothing but it":     {bounds, Amount{1, 0, 1700}, reported, "--max-bytes-per-shard"},
		"as many objects as there are bytes for":         {Bounds{Bytes: 800}, Amount{1 << 40, 799, 0}, added, ""},
		"as many bytes as the number of objects has for": {Bounds{Objects: 10}, Amount{9, 1 << 40, 1 << 40}, added, ""},
	} {
		got := tc.bounds.exceeded(Holder{Shard: "alpha"}, tc.has, tc.what)
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("a shard may write %s: got %q, want %q", name, got, tc.want)
		}
		if got != "" && !strings.Contains(got, `shard "alpha"`) {
			t.Errorf("%s: nobody is named in %q", name, got)
		}
	}
}

func TestWhoHasWhat(t *testing.T) {
	const root = "/cache/"
	now := time.Now()
	u := newUsage()
	u.now = func() time.Time { return now }
	kv := func(key, value string, created bool) *mvccpb.KeyValue {
		made := &mvccpb.KeyValue{Key: []byte(root + key), Value: []byte(value), ModRevision: 5, CreateRevision: 4}
		if created {
			made.CreateRevision = made.ModRevision
		}
		return made
	}
	change := func(event *clientv3.Event) {
		t.Helper()
		if err := u.change(root, event); err != nil {
			t.Fatal(err)
		}
	}
	const key = "apis.kcp.io/apiexports/customresources/alpha/abc/widgets"
	size := int64(len(root + key))
	alpha, users := Holder{Shard: "alpha"}, Holder{Shard: "alpha", Users: true}

	change(&clientv3.Event{Type: mvccpb.PUT, Kv: kv(key, "12345", true)})
	change(&clientv3.Event{Type: mvccpb.PUT, Kv: kv("core/configmaps/1234/alpha/abc/default/x", "1", true)})
	change(&clientv3.Event{Type: mvccpb.PUT, Kv: kv("incarnation", "x", true)})
	change(&clientv3.Event{Type: mvccpb.PUT, Kv: kv("election/hierarchy/1", "x", true)})
	if got := u.of(alpha); got != (Amount{Objects: 1, Bytes: size + 5}) {
		t.Errorf("after a creation, the shard has %+v", got)
	}
	if got := u.of(users); got.Objects != 1 {
		t.Errorf("its users have %+v", got)
	}
	if len(u.all()) != 2 {
		t.Errorf("what is no object counts: %v", u.all())
	}
	change(&clientv3.Event{Type: mvccpb.PUT, Kv: kv(key, "123", false), PrevKv: kv(key, "12345", true)})
	if got := u.of(alpha); got != (Amount{Objects: 1, Bytes: size + 3, Replaced: size + 5}) {
		t.Errorf("after an update, the shard has %+v", got)
	}
	now = now.Add(replacedFor - time.Second)
	change(&clientv3.Event{Type: mvccpb.DELETE, Kv: kv(key, "", false), PrevKv: kv(key, "123", false)})
	if got := u.of(alpha); got != (Amount{Replaced: 2*size + 8}) {
		t.Errorf("after a deletion, what was replaced is still there: %+v", got)
	}
	now = now.Add(2 * replacedStep)
	if got := u.of(alpha); got != (Amount{Replaced: size + 3}) {
		t.Errorf("what was replaced long ago counts: %+v", got)
	}
	now = now.Add(24 * time.Hour)
	if all := u.all(); len(all) != 1 || len(u.holders) != 1 {
		t.Errorf("who has nothing any more is remembered: %v", all)
	}
	if err := u.change(root, &clientv3.Event{Type: mvccpb.DELETE, Kv: kv(key, "", false)}); err == nil {
		t.Error("a change of which it is not known what it replaced is taken over")
	}

	if !u.refuse(alpha) || u.refuse(alpha) {
		t.Error("a refusal is told again and again")
	}
	now = now.Add(quiet + time.Second)
	if !u.refuse(alpha) {
		t.Error("a refusal after a long time is not told")
	}
	u.replace(map[Holder]Amount{alpha: {Objects: 7, Bytes: 70}})
	if u.of(alpha).Objects != 7 || u.of(users).Objects != 0 {
		t.Errorf("what was counted is not taken over: %v", u.all())
	}
}
