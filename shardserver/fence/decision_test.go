package fence

import (
	"context"
	"strconv"
	"testing"
	"time"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
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
		for state, want := range map[State]Answer{Open: Serve, WritesPaused: tc.paused, MovedAway: tc.moved, Arriving: tc.arrives} {
			if got := Decide(state, tc.request); got != want {
				t.Errorf("%s in state %d: %d, want %d", name, state, got, want)
			}
		}
	}
}

func TestStateOf(t *testing.T) {
	const paused, moved, arriving = corev1alpha1.WritesPausedAnnotationKey, corev1alpha1.MovedToAnnotationKey, corev1alpha1.ArrivingAnnotationKey
	for _, tc := range []struct {
		annotations map[string]string
		want        State
	}{
		{nil, Open}, {map[string]string{corev1alpha1.MigratingAnnotationKey: "a:b", corev1alpha1.EpochAnnotationKey: "1"}, Open},
		{map[string]string{paused: "x"}, WritesPaused}, {map[string]string{paused: ""}, WritesPaused},
		{map[string]string{paused: "x", moved: "d"}, MovedAway}, {map[string]string{arriving: "x", paused: "x"}, Arriving},
		{map[string]string{arriving: "x", moved: "d"}, MovedAway},
	} {
		if got := StateOf(tc.annotations); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.annotations, got, tc.want)
		}
	}
}

// TestStatesAreBounded drives thousands of logical clusters through writes and moves: nothing may remain.
func TestStatesAreBounded(t *testing.T) {
	ended := 0
	s := newStates(func() { ended++ })
	changes, unsubscribe := s.subscribe()
	start := time.Now()
	for i := range 5000 {
		cluster := logicalcluster.MustParseName("c" + strconv.Itoa(i))
		if !s.enter(cluster) {
			t.Fatal("refused")
		}
		s.set(cluster, WritesPaused, 1)
		if s.enter(cluster) || len(s.paused()) != 0 {
			t.Fatal("a write passed, or the pause is acknowledged with a write in flight")
		}
		s.leave(cluster)
		if s.paused()[cluster] != 1 {
			t.Fatal("the pause is not acknowledged")
		}
		s.set(cluster, MovedAway, 2)
		if !s.hides(cluster) {
			t.Fatal("not hidden")
		}
		if change := <-changes; change.Cluster != cluster || change.Gone {
			t.Fatalf("%+v", change)
		}
		s.remove(cluster, start)
		if !s.hides(cluster) {
			t.Fatal("the deleted objects become visible")
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
	if s.hidden.Load() != 0 || len(s.subscribers) != 0 {
		t.Errorf("%d hidden, %d subscribers", s.hidden.Load(), len(s.subscribers))
	}
}

func TestMoverIsNotRefused(t *testing.T) {
	f := &Fence{states: newStates(func() {})}
	cluster := logicalcluster.MustParseName("abc")
	f.states.set(cluster, MovedAway, 1)
	if _, err := f.Enter(context.Background(), cluster); err == nil {
		t.Error("another writer is not refused")
	}
	if leave, err := f.Enter(WithMover(context.Background()), cluster); err != nil {
		t.Error(err)
	} else if err := leave(); err != nil {
		t.Error(err)
	}
}
