package garbage

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

func TestExpiredShards(t *testing.T) {
	present := sets.New("root", "alpha", "beta")
	heartbeats := func(alpha string) map[string]string {
		return map[string]string{"root": "1", "beta": "1", "alpha": alpha}
	}
	type look struct {
		after time.Duration
		state state
	}
	for name, tc := range map[string]struct {
		looks []look
		want  sets.Set[string]
	}{
		"a registered shard stays, however silent": {[]look{
			{0, state{present, sets.New("root", "alpha", "beta"), true, heartbeats("1")}},
			{time.Hour, state{present, sets.New("root", "alpha", "beta"), true, heartbeats("1")}},
		}, nil},
		"a shard that was deleted and is silent goes": {[]look{
			{0, state{present, sets.New("root", "beta"), true, heartbeats("1")}},
			{11 * time.Minute, state{present, sets.New("root", "beta"), true, heartbeats("1")}},
		}, sets.New("alpha")},
		"not before its time": {[]look{
			{0, state{present, sets.New("root", "beta"), true, heartbeats("1")}},
			{9 * time.Minute, state{present, sets.New("root", "beta"), true, heartbeats("1")}},
		}, nil},
		"a beat begins the time anew": {[]look{
			{0, state{present, sets.New("root", "beta"), true, heartbeats("1")}},
			{9 * time.Minute, state{present, sets.New("root", "beta"), true, heartbeats("2")}},
			{18 * time.Minute, state{present, sets.New("root", "beta"), true, heartbeats("2")}},
		}, nil},
		"one that came back in between begins anew": {[]look{
			{0, state{present, sets.New("root", "beta"), true, heartbeats("1")}},
			{5 * time.Minute, state{present, sets.New("root", "alpha", "beta"), true, heartbeats("1")}},
			{11 * time.Minute, state{present, sets.New("root", "beta"), true, heartbeats("1")}},
		}, nil},
		"while the root shard has not published everything, nobody goes": {[]look{
			{0, state{present, sets.New("root"), true, heartbeats("1")}},
			{11 * time.Minute, state{present, sets.New("root"), false, heartbeats("1")}},
		}, nil},
		"one without a report goes, too": {[]look{
			{0, state{present, sets.New("root", "beta"), true, nil}},
			{11 * time.Minute, state{present, sets.New("root", "beta"), true, nil}},
		}, sets.New("alpha")},
		"the root shard stays even if it says nothing of itself": {[]look{
			{0, state{present, sets.New("alpha", "beta"), true, heartbeats("1")}},
			{11 * time.Minute, state{present, sets.New("alpha", "beta"), true, heartbeats("1")}},
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			var now time.Time
			c := &Collector{shardTimeout: 10 * time.Minute, now: func() time.Time { return now }}
			var got sets.Set[string]
			for _, look := range tc.looks {
				now = start.Add(look.after)
				got = c.expired(look.state)
			}
			if !got.Equal(tc.want) {
				t.Errorf("gone are %v, want %v", sets.List(got), sets.List(tc.want))
			}
			if len(c.observations) > len(present) {
				t.Errorf("%d shards are remembered", len(c.observations))
			}
		})
	}
}
