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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	endpointsrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/internal/etcdtest"
)

func TestTransactionsOf(t *testing.T) {
	for name, tc := range map[string]struct {
		// puts are those of each member, "<resource>:<bytes>"; of namespaces "namespaces/<cluster>/<name>:<bytes>", and of objects in a new
		// namespace "<resource>/<cluster>/<namespace>/<name>:<bytes>".
		puts []string
		// want are the members of transactions, with the content of a namespace in parentheses, and after a bar those of none.
		want string
	}{
		"none":                               {nil, ""},
		"objects of different resources":     {[]string{"a:1", "b:1", "c:1"}, "0 1 2"},
		"two objects of one resource":        {[]string{"a:1", "a:1"}, "0; 1"},
		"a mixture":                          {[]string{"a:1", "b:1", "b:1", "c:1", "a:1", "a:1"}, "0 1 3; 2 4; 5"},
		"objects that are large together":    {[]string{"a:1", fmt.Sprint("b:", maxTransactionBytes), "c:1"}, "0 2; 1"},
		"an object that is large by itself":  {[]string{"a:1", fmt.Sprint("b:", maxTransactionBytes+1)}, "0; 1"},
		"a namespace with its content":       {[]string{"a/c/one/x:1", "b/c/one/x:1", "namespaces/c/one:1", "d:1"}, "2(0 1) 3"},
		"two namespaces with their content":  {[]string{"namespaces/c/one:1", "namespaces/c/two:1", "a/c/two/x:1", "b/c/one/x:1", "a/c/one/x:1"}, "0(3 4); 1(2)"},
		"content without its namespace":      {[]string{"a/c/one/x:1", "namespaces/c/two:1"}, "1 | 0"},
		"a namespace that another ends with": {[]string{"a/c/one/x:1", "namespaces/c/e:1", "namespaces/c/some-one:1"}, "1; 2 | 0"},
		"a namespace of another cluster":     {[]string{"a/c/one/x:1", "namespaces/cc/one:1", "namespaces/d/one:1"}, "1; 2 | 0"},
		"two objects of one resource in it":  {[]string{"namespaces/c/one:1", "a/c/one/x:1", "a/c/one/y:1"}, "0(1) | 2"},
		"content of a resource beside it":    {[]string{"namespaces/c/one:1", "a:1", "a/c/one/x:1"}, "0 1 | 2"},
		"content that is too large for it":   {[]string{"namespaces/c/one:1", fmt.Sprintf("a/c/one/x:%d", maxTransactionBytes)}, "0 | 1"},
	} {
		t.Run(name, func(t *testing.T) {
			clients := map[string]*transactionClient{}
			var puts []*put
			for i, described := range tc.puts {
				key, text, _ := strings.Cut(described, ":")
				resource, _, _ := strings.Cut(key, "/")
				var size int
				if _, err := fmt.Sscan(text, &size); err != nil {
					t.Fatal(err)
				}
				if clients[resource] == nil {
					clients[resource] = &transactionClient{resource: schema.GroupResource{Resource: resource}}
				}
				puts = append(puts, &put{
					member: &member{index: i, inNewNamespace: strings.Count(key, "/") == 3}, client: clients[resource],
					key: "/registry/" + key, value: make([]byte, size),
				})
			}
			slices.Reverse(puts) // they arrive in any order
			all, separate := transactionsOf(puts)
			var got []string
			for _, transaction := range all {
				got = append(got, indexes(transaction))
			}
			text := strings.Join(got, "; ")
			if len(separate) > 0 {
				text += " | " + indexes(separate)
			}
			if diff := cmp.Diff(tc.want, text); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// indexes returns the indexes of the members of puts.
func indexes(puts []*put) string {
	var all []string
	for _, p := range puts {
		text := fmt.Sprint(p.member.index)
		if len(p.content) > 0 {
			text += "(" + indexes(p.content) + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
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
	e.clients["n"] = &transactionClient{Interface: e.clients["a"].Interface, etcd: e.etcd, resource: namespaces}
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

// TestTogetherInNewNamespace: what a namespace contains is stored with the namespace, or not at all.
func TestTogetherInNewNamespace(t *testing.T) {
	e := newTogetherEnv(t)
	together := func(t *testing.T, keys ...string) ([]error, map[string]kubernetes.PutResponse) {
		t.Helper()
		creations, responses := e.creations(keys...)
		for i, key := range keys {
			if key[0] != 'n' {
				creations[i] = InNewNamespace(creations[i])
			}
		}
		return Together(t.Context(), creations...), responses
	}
	assertConflict := func(t *testing.T, key string, err error) {
		t.Helper()
		stored, getErr := e.etcd.Get(t.Context(), key)
		if getErr != nil {
			t.Fatal(getErr)
		}
		if !apierrors.IsConflict(err) || len(stored.Kvs) > 0 {
			t.Errorf("%s: got %v, want a conflict; stored %v", key, err, stored.Kvs)
		}
	}

	t.Run("one transaction for each namespace", func(t *testing.T) {
		before := e.revision(t)
		errs, responses := together(t, "a/c/one/x", "b/c/one/x", "a/c/two/x", "b/c/two/x", "n/c/one", "n/c/two")
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for key, response := range responses {
			e.assertStored(t, key, response)
		}
		if got := e.revision(t) - before; got != 2 {
			t.Errorf("%d writes, want 2", got)
		}
	})

	t.Run("an object that exists does not affect the others", func(t *testing.T) {
		if _, err := e.create(t.Context(), "a/c/orphan/x"); err != nil {
			t.Fatal(err)
		}
		errs, responses := together(t, "n/c/orphan", "a/c/orphan/x", "b/c/orphan/x")
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if responses["a/c/orphan/x"].Succeeded {
			t.Error("the existing object is created")
		}
		e.assertStored(t, "n/c/orphan", responses["n/c/orphan"])
		e.assertStored(t, "b/c/orphan/x", responses["b/c/orphan/x"])
	})

	t.Run("a namespace that exists already may be terminating", func(t *testing.T) {
		if _, err := e.create(t.Context(), "n/c/existing"); err != nil {
			t.Fatal(err)
		}
		errs, responses := together(t, "n/c/existing", "a/c/existing/x")
		if responses["n/c/existing"].Succeeded {
			t.Error("the existing namespace is created")
		}
		assertConflict(t, "a/c/existing/x", errs[1])
	})

	t.Run("a namespace that is not created", func(t *testing.T) {
		errs, _ := together(t, "a/c/missing/x")
		assertConflict(t, "a/c/missing/x", errs[0])
	})

	t.Run("a transaction that fails", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		creations, _ := e.creations("n/c/failed", "a/c/failed/x")
		creations[1] = InNewNamespace(creations[1])
		for i, create := range creations {
			creations[i] = func(ctx context.Context) error { return create(context.WithoutCancel(ctx)) }
		}
		for i, err := range Together(ctx, creations...) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%d: got %v", i, err)
			}
		}
	})

	t.Run("content that is late", func(t *testing.T) {
		creations, responses := e.creations("n/c/late", "a/c/late/x")
		stored := make(chan struct{})
		errs := Together(t.Context(), func(ctx context.Context) error {
			defer close(stored)
			return creations[0](ctx)
		}, InNewNamespace(func(ctx context.Context) error {
			memberOf(ctx).group.expire() // as after MaxTogetherWait
			<-stored
			return creations[1](ctx)
		}))
		if errs[0] != nil {
			t.Fatal(errs[0])
		}
		e.assertStored(t, "n/c/late", responses["n/c/late"])
		assertConflict(t, "a/c/late/x", errs[1])
	})

	t.Run("a creation that is not one of several", func(t *testing.T) {
		if err := InNewNamespace(func(ctx context.Context) error {
			if IsInNewNamespace(ctx) {
				t.Error("it is taken for one of several")
			}
			return nil
		})(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
