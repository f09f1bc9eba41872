package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime/schema"
	endpointsrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/internal/etcdtest"
)

func TestTransactionsOf(t *testing.T) {
	for name, tc := range map[string]struct {
		puts []string // of each member "<resource>:<bytes>"
		want string
	}{
		"none":                              {nil, ""},
		"objects of different resources":    {[]string{"a:1", "b:1", "c:1"}, "0 1 2"},
		"two objects of one resource":       {[]string{"a:1", "a:1"}, "0; 1"},
		"a mixture":                         {[]string{"a:1", "b:1", "b:1", "c:1", "a:1", "a:1"}, "0 1 3; 2 4; 5"},
		"objects that are large together":   {[]string{"a:1", fmt.Sprint("b:", maxTransactionBytes), "c:1"}, "0 2; 1"},
		"an object that is large by itself": {[]string{"a:1", fmt.Sprint("b:", maxTransactionBytes+1)}, "0; 1"},
	} {
		t.Run(name, func(t *testing.T) {
			clients := map[string]*transactionClient{}
			var puts []*put
			for i, described := range tc.puts {
				resource, text, _ := strings.Cut(described, ":")
				var size int
				if _, err := fmt.Sscan(text, &size); err != nil {
					t.Fatal(err)
				}
				if clients[resource] == nil {
					clients[resource] = &transactionClient{resource: schema.GroupResource{Resource: resource}}
				}
				puts = append(puts, &put{member: &member{index: i}, client: clients[resource], value: make([]byte, size)})
			}
			slices.Reverse(puts) // they arrive in any order
			var got []string
			for _, transaction := range transactionsOf(puts) {
				var members []string
				for _, p := range transaction {
					members = append(members, fmt.Sprint(p.member.index))
				}
				got = append(got, strings.Join(members, " "))
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, "; ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// togetherEnv stores keys in an etcd by the clients of several resources.
type togetherEnv struct {
	etcd    *clientv3.Client
	clients map[string]*transactionClient
}

func newTogetherEnv(t *testing.T) *togetherEnv {
	e := &togetherEnv{etcdtest.NewClient(t, etcdtest.Start(t)), map[string]*transactionClient{}}
	for _, resource := range []string{"a", "b", "c"} {
		e.clients[resource] = &transactionClient{
			Interface: &kubernetes.Client{Client: e.etcd}, etcd: e.etcd, resource: schema.GroupResource{Resource: resource},
		}
	}
	return e
}

// create stores a key "<resource>/<name>". Its value is its name.
func (e *togetherEnv) create(ctx context.Context, key string) (kubernetes.PutResponse, error) {
	return e.clients[key[:1]].OptimisticPut(ctx, key, []byte(key[2:]), 0, kubernetes.PutOptions{})
}

// creations returns creations of keys, whose responses are collected.
func (e *togetherEnv) creations(keys ...string) (creations []func(context.Context) error, responses map[string]kubernetes.PutResponse) {
	var mu sync.Mutex
	responses = map[string]kubernetes.PutResponse{}
	for _, key := range keys {
		creations = append(creations, func(ctx context.Context) error {
			response, err := e.create(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			responses[key] = response
			return err
		})
	}
	return creations, responses
}

// assertStored fails unless a key has its value, and the revision of the response.
func (e *togetherEnv) assertStored(t *testing.T, key string, response kubernetes.PutResponse) {
	t.Helper()
	stored, err := e.etcd.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if !response.Succeeded || len(stored.Kvs) != 1 || stored.Kvs[0].ModRevision != response.Revision || string(stored.Kvs[0].Value) != key[2:] {
		t.Errorf("%s: stored %v, response %+v", key, stored.Kvs, response)
	}
}

func (e *togetherEnv) revision(t *testing.T) int64 {
	t.Helper()
	response, err := e.etcd.Get(t.Context(), "revision")
	if err != nil {
		t.Fatal(err)
	}
	return response.Header.Revision
}

func TestTogether(t *testing.T) {
	e := newTogetherEnv(t)

	t.Run("one write for each resource, in two transactions", func(t *testing.T) {
		before := e.revision(t)
		creations, responses := e.creations("a/one", "a/two", "b/one", "b/two", "c/one")
		if err := errors.Join(Together(t.Context(), creations...)...); err != nil {
			t.Fatal(err)
		}
		for key, response := range responses {
			e.assertStored(t, key, response)
		}
		if got := e.revision(t) - before; got != 2 {
			t.Errorf("%d writes, want 2", got)
		}
		if responses["a/one"].Revision != responses["c/one"].Revision || responses["a/two"].Revision != responses["b/two"].Revision ||
			responses["a/one"].Revision == responses["a/two"].Revision {
			t.Errorf("responses %+v", responses)
		}
	})

	t.Run("an object that exists does not affect the others", func(t *testing.T) {
		if _, err := e.create(t.Context(), "a/existing"); err != nil {
			t.Fatal(err)
		}
		creations, responses := e.creations("a/existing", "b/new")
		if err := errors.Join(Together(t.Context(), creations...)...); err != nil {
			t.Fatal(err)
		}
		if responses["a/existing"].Succeeded {
			t.Error("the existing object is created")
		}
		e.assertStored(t, "b/new", responses["b/new"])
	})

	t.Run("a creation that is refused does not affect the others", func(t *testing.T) {
		creations, responses := e.creations("a/beside-refused")
		refused := errors.New("refused")
		errs := Together(t.Context(), append(creations, func(context.Context) error { return refused })...)
		if errs[0] != nil || !errors.Is(errs[1], refused) {
			t.Errorf("got %v", errs)
		}
		e.assertStored(t, "a/beside-refused", responses["a/beside-refused"])
	})

	t.Run("a creation that panics does not affect the others", func(t *testing.T) {
		creations, responses := e.creations("a/beside-panic")
		errs := Together(t.Context(), append(creations, func(context.Context) error { panic("of a test") })...)
		if errs[0] != nil || errs[1] == nil || errs[1].Error() != "panic: of a test [recovered]" {
			t.Errorf("got %v", errs)
		}
		e.assertStored(t, "a/beside-panic", responses["a/beside-panic"])
	})

	t.Run("the latency of a request includes its transaction", func(t *testing.T) {
		ctx := endpointsrequest.WithLatencyTrackers(t.Context())
		creations, _ := e.creations("a/tracked")
		if err := errors.Join(Together(ctx, creations...)...); err != nil {
			t.Fatal(err)
		}
		if trackers, _ := endpointsrequest.LatencyTrackersFrom(ctx); trackers.StorageTracker.GetLatency() <= 0 {
			t.Error("no latency is tracked")
		}
	})

	t.Run("what a creation stores next is stored at once", func(t *testing.T) {
		stored := make(chan kubernetes.PutResponse, 1)
		creations, _ := e.creations("b/beside-second")
		errs := Together(t.Context(), append(creations, func(ctx context.Context) error {
			if _, err := e.create(ctx, "a/first"); err != nil {
				return err
			}
			response, err := e.create(ctx, "a/second")
			stored <- response
			return err
		})...)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		e.assertStored(t, "a/second", <-stored)
	})

	t.Run("a creation that takes long does not delay the others for ever", func(t *testing.T) {
		stored := make(chan struct{})
		errs := Together(t.Context(), func(ctx context.Context) error {
			defer close(stored)
			_, err := e.create(ctx, "a/quick")
			return err
		}, func(ctx context.Context) error {
			memberOf(ctx).group.expire() // as after MaxTogetherWait
			<-stored
			response, err := e.create(ctx, "b/slow")
			e.assertStored(t, "b/slow", response)
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("a creation that is cancelled stores nothing and delays nothing", func(t *testing.T) {
		cancelled := make(chan struct{})
		errs := Together(t.Context(), func(ctx context.Context) error {
			defer close(cancelled)
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := e.create(ctx, "a/cancelled")
			return err
		}, func(ctx context.Context) error {
			<-cancelled
			response, err := e.create(ctx, "b/beside-cancelled")
			e.assertStored(t, "b/beside-cancelled", response)
			return err
		})
		if !errors.Is(errs[0], context.Canceled) || errs[1] != nil {
			t.Errorf("got %v", errs)
		}
		if found, err := e.etcd.Get(t.Context(), "a/cancelled"); err != nil || len(found.Kvs) > 0 {
			t.Errorf("got %v, %v", found, err)
		}
	})
}
