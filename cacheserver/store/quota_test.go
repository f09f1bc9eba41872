package store

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestQuotaCheck(t *testing.T) {
	quota := Quota{Objects: 10, Bytes: 800}
	for name, tc := range map[string]struct {
		quota Quota
		has   Usage
		what  writeKind
		want  string // part of the reason; empty if permitted
	}{
		"create without limits":                        {Quota{}, Usage{1 << 40, 1 << 40, 1 << 40}, writeCreate, ""},
		"create below the limits":                      {quota, Usage{9, 799, 0}, writeCreate, ""},
		"create at the object limit":                   {quota, Usage{10, 0, 0}, writeCreate, "has 10 objects in this cache, where 10 are allowed (--max-objects-per-shard)"},
		"grow at the object limit":                     {quota, Usage{10, 0, 0}, writeGrow, ""},
		"create at the byte limit":                     {quota, Usage{1, 800, 0}, writeCreate, "take 800 bytes of this cache, where 800 are allowed (--max-bytes-per-shard)"},
		"grow at the byte limit":                       {quota, Usage{1, 800, 0}, writeGrow, "--max-bytes-per-shard"},
		"replace at the byte limit":                    {quota, Usage{1, 800, 799}, writeReplace, ""},
		"replace at the limit of replaced bytes":       {quota, Usage{1, 100, 1500}, writeReplace, "takes 1600 bytes of this cache, 1500 of them by what was replaced within 10m0s, where twice 800 are allowed"},
		"report at all limits":                         {quota, Usage{10, 800, 800}, writeReport, ""},
		"report at the higher limit of replaced bytes": {quota, Usage{1, 0, 1700}, writeReport, "--max-bytes-per-shard"},
		"create without an object limit":               {Quota{Bytes: 800}, Usage{1 << 40, 799, 0}, writeCreate, ""},
		"create without a byte limit":                  {Quota{Objects: 10}, Usage{9, 1 << 40, 1 << 40}, writeCreate, ""},
	} {
		got := tc.quota.check(UsageKey{Shard: "alpha"}, tc.has, tc.what)
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
		if got != "" && !strings.Contains(got, `shard "alpha"`) {
			t.Errorf("%s: no shard is named in %q", name, got)
		}
	}
}

func TestUsageTracker(t *testing.T) {
	const root = "/cache/"
	now := time.Now()
	u := newUsageTracker()
	u.now = func() time.Time { return now }
	kv := func(key, value string, created bool) *mvccpb.KeyValue {
		made := &mvccpb.KeyValue{Key: []byte(root + key), Value: []byte(value), ModRevision: 5, CreateRevision: 4}
		if created {
			made.CreateRevision = made.ModRevision
		}
		return made
	}
	handleEvent := func(event *clientv3.Event) {
		t.Helper()
		if err := u.handleEvent(root, event); err != nil {
			t.Fatal(err)
		}
	}
	const key = "apis.kcp.io/apiexports/customresources/alpha/abc/widgets"
	size := int64(len(root + key))
	alpha, cachedUsage := UsageKey{Shard: "alpha"}, UsageKey{Shard: "alpha", Cached: true}

	handleEvent(&clientv3.Event{Type: mvccpb.PUT, Kv: kv(key, "12345", true)})
	handleEvent(&clientv3.Event{Type: mvccpb.PUT, Kv: kv("core/configmaps/1234/alpha/abc/default/x", "1", true)})
	handleEvent(&clientv3.Event{Type: mvccpb.PUT, Kv: kv("incarnation", "x", true)})
	handleEvent(&clientv3.Event{Type: mvccpb.PUT, Kv: kv("election/hierarchy/1", "x", true)})
	if got := u.get(alpha); got != (Usage{Objects: 1, Bytes: size + 5}) {
		t.Errorf("usage of the shard after a create: %+v", got)
	}
	if got := u.get(cachedUsage); got.Objects != 1 {
		t.Errorf("usage of its users: %+v", got)
	}
	if len(u.list()) != 2 {
		t.Errorf("keys other than objects are counted: %v", u.list())
	}
	handleEvent(&clientv3.Event{Type: mvccpb.PUT, Kv: kv(key, "123", false), PrevKv: kv(key, "12345", true)})
	if got := u.get(alpha); got != (Usage{Objects: 1, Bytes: size + 3, Replaced: size + 5}) {
		t.Errorf("usage of the shard after an update: %+v", got)
	}
	now = now.Add(replacedRetention - time.Second)
	handleEvent(&clientv3.Event{Type: mvccpb.DELETE, Kv: kv(key, "", false), PrevKv: kv(key, "123", false)})
	if got := u.get(alpha); got != (Usage{Replaced: 2*size + 8}) {
		t.Errorf("usage of the shard after a deletion: %+v", got)
	}
	now = now.Add(2 * replacedInterval)
	if got := u.get(alpha); got != (Usage{Replaced: size + 3}) {
		t.Errorf("old replaced revisions are counted: %+v", got)
	}
	now = now.Add(24 * time.Hour)
	if all := u.list(); len(all) != 1 || len(u.records) != 1 {
		t.Errorf("a record without usage is kept: %v", all)
	}
	if err := u.handleEvent(root, &clientv3.Event{Type: mvccpb.DELETE, Kv: kv(key, "", false)}); err == nil {
		t.Error("an event without the previous value is accepted")
	}

	if !u.recordRejection(alpha) || u.recordRejection(alpha) {
		t.Error("a repeated rejection is logged")
	}
	now = now.Add(rejectionLogInterval + time.Second)
	if !u.recordRejection(alpha) {
		t.Error("a rejection after a long time is not logged")
	}
	u.replace(map[UsageKey]Usage{alpha: {Objects: 7, Bytes: 70}})
	if u.get(alpha).Objects != 7 || u.get(cachedUsage).Objects != 0 {
		t.Errorf("the listed usage is not applied: %v", u.list())
	}
}
