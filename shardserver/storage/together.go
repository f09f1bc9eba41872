package storage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	endpointsrequest "k8s.io/apiserver/pkg/endpoints/request"
)

const (
	// MaxTogetherWait bounds how long a creation waits for the others. Admission of one may take long, for instance because a webhook
	// does not answer. The wait is within the fence and after admission: it must be clearly shorter than fence.PauseTimeout, within which
	// a pause waits for the writes that are under way, and than the settle period of namespaces (package lifecycle), within which
	// creations that were admitted before the deletion end.
	MaxTogetherWait = time.Second
	// transactionTimeout bounds a transaction.
	transactionTimeout = 30 * time.Second
	// maxTransactionBytes bounds the values of a transaction, because etcd refuses larger requests than 1.5 MiB by default. A larger value
	// has a request of its own.
	maxTransactionBytes = 512 << 10
)

// Together calls creations concurrently, and returns their errors in their order. Each creation is a request of its own, with its own
// admission, audit and result. What they store in resources with Transactions is sent to etcd in few transactions, once each of them
// has reached its storage or has ended. Nothing is atomic: a creation that fails does not affect the others, and a crash
// may leave some of them.
func Together(ctx context.Context, creations ...func(context.Context) error) []error {
	g := &group{ctx: ctx, open: len(creations)}
	expiry := time.AfterFunc(MaxTogetherWait, g.expire)
	defer expiry.Stop()
	errs := make([]error, len(creations))
	var running sync.WaitGroup
	for i, create := range creations {
		running.Go(func() {
			m := &member{group: g, index: i}
			defer m.leave()
			errs[i] = recovered(context.WithValue(ctx, memberKey{}, m), create)
		})
	}
	running.Wait()
	return errs
}

// recovered returns a panic as an error, as controller-runtime does for a reconcile, which does not see this goroutine.
func recovered(ctx context.Context, create func(context.Context) error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			for _, handle := range utilruntime.PanicHandlers {
				handle(ctx, reason)
			}
			err = fmt.Errorf("panic: %v [recovered]", reason)
		}
	}()
	return create(ctx)
}

type memberKey struct{}

// InheritTogether returns ctx as a context of the same creation of Together as from, if that is one.
func InheritTogether(ctx, from context.Context) context.Context {
	if m := memberOf(from); m != nil {
		return context.WithValue(ctx, memberKey{}, m)
	}
	return ctx
}

func memberOf(ctx context.Context) *member {
	m, _ := ctx.Value(memberKey{}).(*member)
	return m
}

// group is the state of one call of Together.
type group struct {
	ctx context.Context

	mu sync.Mutex
	// open counts the members that have neither stored anything nor ended.
	open    int
	waiting []*put
	expired bool
}

// member is one creation of a group. The first object that it stores is part of a transaction.
type member struct {
	group *group
	index int
	done  bool // guarded by the group
}

// put is the write of one object.
type put struct {
	member   *member
	client   *transactionClient
	key      string
	value    []byte
	revision int64

	done     chan struct{} // closed when the others are set
	took     time.Duration // by the transaction, without the wait for others
	response kubernetes.PutResponse
	err      error
}

// join adds a put to the group of its member, and sends all puts if this is the last. It returns false if the put has to be sent alone.
func (p *put) join() bool {
	g := p.member.group
	g.mu.Lock()
	if p.member.done || g.expired {
		g.mu.Unlock()
		return false
	}
	p.member.done = true
	g.open--
	g.waiting = append(g.waiting, p)
	g.sendIfComplete()
	return true
}

// withdraw removes a put that has not been sent. It returns false if it has been.
func (p *put) withdraw() bool {
	g := p.member.group
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.Index(g.waiting, p)
	if at < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, at, at+1)
	return true
}

// leave is called when a member has ended: the others do not wait for it.
func (m *member) leave() {
	g := m.group
	g.mu.Lock()
	if m.done {
		g.mu.Unlock()
		return
	}
	m.done = true
	g.open--
	g.sendIfComplete()
}

// expire ends the waiting.
func (g *group) expire() {
	g.mu.Lock()
	g.expired = true
	g.send()
}

// sendIfComplete sends the waiting puts if there is no member left to wait for. It unlocks the group.
func (g *group) sendIfComplete() {
	if g.open > 0 {
		g.mu.Unlock()
		return
	}
	g.send()
}

// send sends the waiting puts. It unlocks the group.
func (g *group) send() {
	puts := g.waiting
	g.waiting = nil
	g.mu.Unlock()
	for _, transaction := range transactionsOf(puts) {
		go transaction.send(g.ctx)
	}
}

// transaction is a set of puts of different resources.
type transaction []*put

// transactionsOf distributes puts to transactions, in the order of their members. Two objects of one resource must not share a
// transaction: they would have the same resource version, and a watch that resumes after the first would miss the second.
func transactionsOf(puts []*put) []transaction {
	slices.SortFunc(puts, func(a, b *put) int { return a.member.index - b.member.index })
	var all []transaction
	for _, p := range puts {
		at := slices.IndexFunc(all, func(t transaction) bool { return t.accepts(p) })
		if at < 0 {
			all = append(all, transaction{p})
			continue
		}
		all[at] = append(all[at], p)
	}
	return all
}

func (t transaction) accepts(p *put) bool {
	size := len(p.value)
	for _, other := range t {
		if other.client.resource == p.client.resource || other.client.etcd != p.client.etcd {
			return false
		}
		size += len(other.value)
	}
	return size <= maxTransactionBytes
}

// send stores the objects. Each is a transaction within the transaction, because another writer may have created one of them.
func (t transaction) send(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	ops := make([]clientv3.Op, 0, len(t))
	for _, p := range t {
		ops = append(ops, clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(p.key), "=", p.revision)},
			[]clientv3.Op{clientv3.OpPut(p.key, string(p.value))}, nil))
	}
	begun := time.Now()
	response, err := t[0].client.etcd.Txn(ctx).Then(ops...).Commit()
	took := time.Since(begun)
	for i, p := range t {
		p.took = took
		if p.err = err; err == nil {
			p.response = kubernetes.PutResponse{Succeeded: response.Responses[i].GetResponseTxn().Succeeded, Revision: response.Header.Revision}
		}
		close(p.done)
	}
}

// transactionClient is the etcd client of the stock storage of a resource. It sends puts of groups together.
type transactionClient struct {
	kubernetes.Interface
	etcd     *clientv3.Client
	resource schema.GroupResource
}

// OptimisticPut implements kubernetes.Interface.
func (c *transactionClient) OptimisticPut(ctx context.Context, key string, value []byte, revision int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	p := &put{member: memberOf(ctx), client: c, key: key, value: value, revision: revision, done: make(chan struct{})}
	if p.member == nil || opts != (kubernetes.PutOptions{}) || !p.join() {
		begun := time.Now()
		defer func() { endpointsrequest.TrackStorageLatency(ctx, time.Since(begun)) }()
		return c.Interface.OptimisticPut(ctx, key, value, revision, opts)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		if p.withdraw() {
			return kubernetes.PutResponse{}, ctx.Err()
		}
		<-p.done // soon, because the transaction has a timeout
	}
	endpointsrequest.TrackStorageLatency(ctx, p.took)
	return p.response, p.err
}
