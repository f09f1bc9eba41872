package storage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// MaxTogetherWait bounds how long a creation waits for the others. Admission of one may take long, for instance because a webhook
// does not answer. The wait is within the fence and after admission: it must be clearly shorter than fence.PauseTimeout, within which
// a pause waits for the writes that are under way, and than the settle period of namespaces (package lifecycle), within which
// creations that were admitted before the deletion end.
const MaxTogetherWait = time.Second

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

// InNewNamespace returns a creation of Together for an object in a namespace that another creation of the same call creates. The object is
// stored if the transaction that it is part of creates the namespace; otherwise nothing is stored, and the error is a Conflict. Admission
// therefore need not find the namespace.
func InNewNamespace(create func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if m := memberOf(ctx); m != nil {
			m.inNewNamespace = true
		}
		return create(ctx)
	}
}

// IsInNewNamespace reports whether ctx is that of a creation of InNewNamespace. Requests from outside the process never are.
func IsInNewNamespace(ctx context.Context) bool {
	m := memberOf(ctx)
	return m != nil && m.inNewNamespace
}

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
	// inNewNamespace is whether what it stores requires a namespace that is created in the same transaction. It is set before the creation begins.
	inNewNamespace bool
}

// put is the write of one object.
type put struct {
	member   *member
	client   *transactionClient
	key      string
	value    []byte
	revision int64
	// content are objects in the namespace that this put creates.
	content []*put

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
	transactions, separate := transactionsOf(puts)
	for _, p := range separate {
		p.end(nil, 0, 0, p.namespaceConflict())
	}
	for _, transaction := range transactions {
		go transaction.send(g.ctx)
	}
}
