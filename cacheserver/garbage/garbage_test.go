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
	type step struct {
		after time.Duration
		state state
	}
	for name, tc := range map[string]struct {
		looks []step
		want  sets.Set[string]
	}{
		"a registered shard is kept without reports": {[]step{
			{0, state{present, sets.New("root", "alpha", "beta"), true, heartbeats("1")}},
			{time.Hour, state{present, sets.New("root", "alpha", "beta"), true, heartbeats("1")}},
		}, nil},
		"a deleted shard without reports expires": {[]step{
			{0, state{present, sets.New("root", "beta"), true, heartbeats("1")}},
			{11 * time.Minute, state{present, sets.New("root", "beta"), true, heartbeats("1")}},
		}, sets.New("alpha")},
		"a deleted shard is kept until the timeout": {[]step{
			{0, state{present, sets.New("root", "beta"), true, heartbeats("1")}},
			{9 * time.Minute, state{present, sets.New("root", "beta"), true, heartbeats("1")}},
		}, nil},
		"a report restarts the timeout": {[]step{
			{0, state{present, sets.New("root", "beta"), true, heartbeats("1")}},
			{9 * time.Minute, state{present, sets.New("root", "beta"), true, heartbeats("2")}},
			{18 * time.Minute, state{present, sets.New("root", "beta"), true, heartbeats("2")}},
		}, nil},
		"a recreated Shard object restarts the timeout": {[]step{
			{0, state{present, sets.New("root", "beta"), true, heartbeats("1")}},
			{5 * time.Minute, state{present, sets.New("root", "alpha", "beta"), true, heartbeats("1")}},
			{11 * time.Minute, state{present, sets.New("root", "beta"), true, heartbeats("1")}},
		}, nil},
		"no shard expires while the root shard is incomplete": {[]step{
			{0, state{present, sets.New("root"), true, heartbeats("1")}},
			{11 * time.Minute, state{present, sets.New("root"), false, heartbeats("1")}},
		}, nil},
		"a deleted shard that never reported expires": {[]step{
			{0, state{present, sets.New("root", "beta"), true, nil}},
			{11 * time.Minute, state{present, sets.New("root", "beta"), true, nil}},
		}, sets.New("alpha")},
		"the root shard is kept without a Shard object": {[]step{
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
				t.Errorf("expired are %v, want %v", sets.List(got), sets.List(tc.want))
			}
			if len(c.observations) > len(present) {
				t.Errorf("%d observations are kept", len(c.observations))
			}
		})
	}
}
