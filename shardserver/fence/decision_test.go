package fence

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		request                Request
		paused, moved, arrives Answer
	}{
		"get":                       {Request{Verb: "get", Resource: "configmaps"}, Serve, Unavailable, Unavailable},
		"list":                      {Request{Verb: "list", Resource: "configmaps"}, Serve, Unavailable, Unavailable},
		"list at 0":                 {Request{Verb: "list", Resource: "configmaps", ResourceVersion: "0"}, Serve, Unavailable, Unavailable},
		"list at a version":         {Request{Verb: "list", Resource: "configmaps", ResourceVersion: "7"}, Serve, Expired, Unavailable},
		"continued list":            {Request{Verb: "list", Resource: "configmaps", Continue: "x"}, Serve, Expired, Unavailable},
		"watch":                     {Request{Verb: "watch", Resource: "configmaps", LongRunning: true}, Serve, Unavailable, Unavailable},
		"watch from a version":      {Request{Verb: "watch", Resource: "configmaps", ResourceVersion: "7", LongRunning: true}, Serve, Expired, Unavailable},
		"get at a version":          {Request{Verb: "get", Resource: "configmaps", ResourceVersion: "7"}, Serve, Unavailable, Unavailable},
		"discovery":                 {Request{Verb: "get"}, Serve, Unavailable, Unavailable},
		"post elsewhere":            {Request{Verb: "post"}, Unavailable, Unavailable, Unavailable},
		"create":                    {Request{Verb: "create", Resource: "configmaps"}, Unavailable, Unavailable, Unavailable},
		"update":                    {Request{Verb: "update", Resource: "configmaps"}, Unavailable, Unavailable, Unavailable},
		"patch of scale":            {Request{Verb: "patch", Group: "apps", Resource: "deployments", Subresource: "scale"}, Unavailable, Unavailable, Unavailable},
		"deletecollection":          {Request{Verb: "deletecollection", Resource: "configmaps", ResourceVersion: "7"}, Unavailable, Unavailable, Unavailable},
		"eviction":                  {Request{Verb: "create", Resource: "pods", Subresource: "eviction"}, Unavailable, Unavailable, Unavailable},
		"exec by get":               {Request{Verb: "get", Resource: "pods", Subresource: "exec"}, Unavailable, Unavailable, Unavailable},
		"log":                       {Request{Verb: "get", Resource: "pods", Subresource: "log"}, Serve, Unavailable, Unavailable},
		"upgrade of a subresource":  {Request{Verb: "get", Group: "x", Resource: "machines", Subresource: "console", LongRunning: true}, Unavailable, Unavailable, Unavailable},
		"subject access review":     {Request{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}, Serve, Unavailable, Unavailable},
		"token review":              {Request{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"}, Serve, Unavailable, Unavailable},
		"token request":             {Request{Verb: "create", Resource: "serviceaccounts", Subresource: "token"}, Serve, Unavailable, Unavailable},
		"reviews of another group":  {Request{Verb: "create", Group: "example.org", Resource: "tokenreviews"}, Unavailable, Unavailable, Unavailable},
		"service account":           {Request{Verb: "create", Resource: "serviceaccounts"}, Unavailable, Unavailable, Unavailable},
		"an unknown verb, as proxy": {Request{Verb: "proxy", Resource: "services"}, Unavailable, Unavailable, Unavailable},
	} {
		for state, want := range map[movestate.State]Answer{movestate.Open: Serve, movestate.WritesPaused: tc.paused, movestate.MovedAway: tc.moved, movestate.Arriving: tc.arrives} {
			if got := Decide(state, tc.request); got != want {
				t.Errorf("%s in state %d: %d, want %d", name, state, got, want)
			}
		}
	}
}

// TestStatesAreBounded drives thousands of logical clusters through writes and moves: nothing may remain.
func TestStatesAreBounded(t *testing.T) {
	ended := 0
	s := newStates(func() { ended++ }, func() {})
	changes, unsubscribe := s.subscribe()
	start := time.Now()
	for i := range 5000 {
		cluster := logicalcluster.MustParseName("c" + strconv.Itoa(i))
		if !s.enter(cluster) {
			t.Fatal("refused")
		}
		s.set(cluster, moving{state: movestate.WritesPaused, epoch: 1, revision: 1})
		if s.enter(cluster) || len(s.paused()) != 0 {
			t.Fatal("a write passed, or the pause is acknowledged with a write in flight")
		}
		s.leave(cluster)
		if s.paused()[cluster] != 1 {
			t.Fatal("the pause is not acknowledged")
		}
		s.set(cluster, moving{state: movestate.MovedAway, epoch: 1, revision: 2})
		if !s.hides(cluster) || s.epoch(cluster) != 1 {
			t.Fatal("not hidden, or without its epoch")
		}
		if s.paused()[cluster] != 2 {
			t.Fatal("the hand-over is not acknowledged")
		}
		if change := <-changes; change.Cluster != cluster || change.Gone {
			t.Fatalf("%+v", change)
		}
		s.remove(cluster, start)
		if !s.hides(cluster) || len(s.paused()) != 0 {
			t.Fatal("the deleted objects become visible, or the acknowledgement stays")
		}
		s.sweep(start.Add(goneDelay))
		if change := <-changes; !change.Gone {
			t.Fatalf("%+v", change)
		}
	}
	unsubscribe()
	for i := range s.stripes {
		if len(s.stripes[i].writes)+len(s.stripes[i].moving) > 0 {
			t.Fatal("states remain")
		}
	}
	if s.hidden.Load() != 0 || s.moved.Load() != 0 || len(s.subscribers) != 0 {
		t.Errorf("%d hidden, %d moved, %d subscribers", s.hidden.Load(), s.moved.Load(), len(s.subscribers))
	}
}

// TestStatesOfMovedClusters: a logical cluster that has moved here is open, and known as long as it exists.
func TestStatesOfMovedClusters(t *testing.T) {
	s := newStates(func() {}, func() {})
	cluster := logicalcluster.MustParseName("abc")
	arrived := make(chan error)
	go func() { arrived <- s.awaitEpoch(t.Context(), cluster, 2) }()
	s.set(cluster, moving{state: movestate.Arriving, epoch: 1})
	s.set(cluster, moving{epoch: 2})
	if err := <-arrived; err != nil {
		t.Error(err)
	}
	if !s.enter(cluster) {
		t.Error("a write is refused")
	}
	s.leave(cluster)
	if s.hides(cluster) || s.epoch(cluster) != 2 || s.moved.Load() != 1 {
		t.Errorf("hidden: %v, epoch %d, %d moved", s.hides(cluster), s.epoch(cluster), s.moved.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.awaitEpoch(ctx, cluster, 3); err == nil {
		t.Error("an epoch that nobody has seen is known")
	}
	s.replace(map[logicalcluster.Name]moving{cluster: {epoch: 2}}, time.Now())
	if s.epoch(cluster) != 2 {
		t.Error("a list forgets the epoch")
	}
	s.replace(nil, time.Now())
	if s.epoch(cluster) != 0 || s.moved.Load() != 0 || len(s.stripe(cluster).moving) != 0 {
		t.Error("a deleted logical cluster is kept")
	}
}

func TestEpochOf(t *testing.T) {
	epoch := func(value string) map[string]string { return map[string]string{corev1alpha1.EpochAnnotationKey: value} }
	movedAway := epoch("3")
	movedAway[corev1alpha1.MovedToAnnotationKey] = "beta"
	for _, tc := range []struct {
		annotations map[string]string
		want        uint64
	}{{nil, 0}, {epoch("0"), 0}, {epoch("x"), 0}, {epoch("-1"), 0}, {epoch("3"), 3}, {movedAway, 2}, {epoch("9999999"), storage.MaxEpoch}} {
		if got := EpochOf(tc.annotations); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.annotations, got, tc.want)
		}
	}
}

func TestMoverIsNotRefused(t *testing.T) {
	f := &Fence{states: newStates(func() {}, func() {})}
	cluster := logicalcluster.MustParseName("abc")
	f.states.set(cluster, moving{state: movestate.MovedAway, revision: 1})
	if _, err := f.Enter(context.Background(), cluster); err == nil {
		t.Error("another writer is not refused")
	}
	if leave, err := f.Enter(WithMover(context.Background()), cluster); err != nil {
		t.Error(err)
	} else if err := leave(); err != nil {
		t.Error(err)
	}
}

// TestRestored: a restored shard accepts no writes but its own and those to logical clusters that never leave it, until it knows what others have.
func TestRestored(t *testing.T) {
	f := &Fence{states: newStates(func() {}, func() {})}
	f.unconfirmed.Store(true)
	cluster := logicalcluster.MustParseName("abc")
	if _, err := f.Enter(context.Background(), cluster); err == nil || !strings.Contains(err.Error(), "MovesKnown") {
		t.Errorf("a write: %v", err)
	}
	if _, err := f.Enter(WithMover(context.Background()), cluster); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]bool{"abc": false, "root": true, "system:admin": true} {
		if got := f.Answers(logicalcluster.MustParseName(name)); got != want {
			t.Errorf("%s is answered: %t", name, got)
		}
	}
	f.states.set(cluster, moving{state: movestate.MovedAway, epoch: 1, revision: 1, outdated: true})
	f.states.set(logicalcluster.MustParseName("moved"), moving{state: movestate.MovedAway, epoch: 1, revision: 1})
	f.Confirm()
	if !f.Answers(cluster) || f.Outdated() != 1 {
		t.Errorf("%d are outdated", f.Outdated())
	}
	f.states.remove(cluster, time.Now())
	if f.Outdated() != 0 {
		t.Error("a deleted logical cluster is outdated")
	}
}
