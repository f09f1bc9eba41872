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
		want  string // part of the refusal; empty for what may be written
	}{
		"anything without bounds":                        {Quota{}, Usage{1 << 40, 1 << 40, 1 << 40}, writeCreate, ""},
		"a new object below the bounds":                  {quota, Usage{9, 799, 0}, writeCreate, ""},
		"no object beyond their number":                  {quota, Usage{10, 0, 0}, writeCreate, "has 10 objects in this cache, where 10 are allowed (--max-objects-per-shard)"},
		"larger objects at their number":                 {quota, Usage{10, 0, 0}, writeGrow, ""},
		"no new object beyond the bytes":                 {quota, Usage{1, 800, 0}, writeCreate, "take 800 bytes of this cache, where 800 are allowed (--max-bytes-per-shard)"},
		"no larger object beyond the bytes":              {quota, Usage{1, 800, 0}, writeGrow, "--max-bytes-per-shard"},
		"others in their place beyond the bytes":         {quota, Usage{1, 800, 799}, writeReplace, ""},
		"no more who rewrites all the time":              {quota, Usage{1, 100, 1500}, writeReplace, "takes 1600 bytes of this cache, 1500 of them by what was replaced within 10m0s, where twice 800 are allowed"},
		"a report, who can write nothing else":           {quota, Usage{10, 800, 800}, writeReport, ""},
		"no report either who writes nothing but it":     {quota, Usage{1, 0, 1700}, writeReport, "--max-bytes-per-shard"},
		"as many objects as there are bytes for":         {Quota{Bytes: 800}, Usage{1 << 40, 799, 0}, writeCreate, ""},
		"as many bytes as the number of objects has for": {Quota{Objects: 10}, Usage{9, 1 << 40, 1 << 40}, writeCreate, ""},
	} {
		got := tc.quota.check(UsageKey{Shard: "alpha"}, tc.has, tc.what)
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("a shard may write %s: got %q, want %q", name, got, tc.want)
		}
		if got != "" && !strings.Contains(got, `shard "alpha"`) {
			t.Errorf("%s: nobody is named in %q", name, got)
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
		t.Errorf("after a creation, the shard has %+v", got)
	}
	if got := u.get(cachedUsage); got.Objects != 1 {
		t.Errorf("its users have %+v", got)
	}
	if len(u.list()) != 2 {
		t.Errorf("what is no object counts: %v", u.list())
	}
	handleEvent(&clientv3.Event{Type: mvccpb.PUT, Kv: kv(key, "123", false), PrevKv: kv(key, "12345", true)})
	if got := u.get(alpha); got != (Usage{Objects: 1, Bytes: size + 3, Replaced: size + 5}) {
		t.Errorf("after an update, the shard has %+v", got)
	}
	now = now.Add(replacedRetention - time.Second)
	handleEvent(&clientv3.Event{Type: mvccpb.DELETE, Kv: kv(key, "", false), PrevKv: kv(key, "123", false)})
	if got := u.get(alpha); got != (Usage{Replaced: 2*size + 8}) {
		t.Errorf("after a deletion, what was replaced is still there: %+v", got)
	}
	now = now.Add(2 * replacedInterval)
	if got := u.get(alpha); got != (Usage{Replaced: size + 3}) {
		t.Errorf("what was replaced long ago counts: %+v", got)
	}
	now = now.Add(24 * time.Hour)
	if all := u.list(); len(all) != 1 || len(u.records) != 1 {
		t.Errorf("who has nothing any more is remembered: %v", all)
	}
	if err := u.handleEvent(root, &clientv3.Event{Type: mvccpb.DELETE, Kv: kv(key, "", false)}); err == nil {
		t.Error("a change of which it is not known what it replaced is taken over")
	}

	if !u.recordRejection(alpha) || u.recordRejection(alpha) {
		t.Error("a refusal is told again and again")
	}
	now = now.Add(rejectionLogInterval + time.Second)
	if !u.recordRejection(alpha) {
		t.Error("a refusal after a long time is not told")
	}
	u.replace(map[UsageKey]Usage{alpha: {Objects: 7, Bytes: 70}})
	if u.get(alpha).Objects != 7 || u.get(cachedUsage).Objects != 0 {
		t.Errorf("what was counted is not taken over: %v", u.list())
	}
}
