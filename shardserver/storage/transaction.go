package storage

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	endpointsrequest "k8s.io/apiserver/pkg/endpoints/request"
)

const (
	// transactionTimeout bounds a transaction.
	transactionTimeout = 30 * time.Second
	// maxTransactionBytes bounds the values of a transaction, because etcd refuses larger requests than 1.5 MiB by default. A larger value
	// has a request of its own.
	maxTransactionBytes = 512 << 10
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// transaction is a set of puts of different resources. Those of objects in a new namespace are the content of the put of the namespace.
type transaction []*put

// transactionsOf distributes puts to transactions, in the order of their members. Two objects of one resource must not share a
// transaction: they would have the same resource version, and a watch that resumes after the first would miss the second.
// separate are those that require a namespace that no transaction creates with them.
func transactionsOf(puts []*put) (all []transaction, separate []*put) {
	slices.SortFunc(puts, func(a, b *put) int { return a.member.index - b.member.index })
	var content []*put
	for _, p := range puts {
		if p.member.inNewNamespace {
			content = append(content, p)
			continue
		}
		at := slices.IndexFunc(all, func(t transaction) bool { return t.accepts(p) })
		if at < 0 {
			all = append(all, transaction{p})
			continue
		}
		all[at] = append(all[at], p)
	}
	for _, p := range content {
		at := slices.IndexFunc(all, func(t transaction) bool { return t.namespaceOf(p) != nil && t.accepts(p) })
		if at < 0 {
			separate = append(separate, p)
			continue
		}
		namespace := all[at].namespaceOf(p)
		namespace.content = append(namespace.content, p)
	}
	return all, separate
}

func (t transaction) accepts(p *put) bool {
	size := len(p.value)
	for _, root := range t {
		for _, other := range append([]*put{root}, root.content...) {
			if other.client.resource == p.client.resource || other.client.etcd != p.client.etcd {
				return false
			}
			size += len(other.value)
		}
	}
	return size <= maxTransactionBytes
}

// namespaceOf returns the put of the namespace of an object, in the same logical cluster, or nil. Keys end with the logical cluster, then
// the name of the namespace, then the name of an object in it.
func (t transaction) namespaceOf(object *put) *put {
	for _, p := range t {
		cluster, namespace := path.Split(p.key)
		if p.client.resource == namespaces && strings.HasSuffix(path.Dir(object.key), "/"+path.Join(path.Base(cluster), namespace)) {
			return p
		}
	}
	return nil
}

// send stores the objects.
func (t transaction) send(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	ops := make([]clientv3.Op, 0, len(t))
	for _, p := range t {
		ops = append(ops, p.operation())
	}
	begun := time.Now()
	response, err := t[0].client.etcd.Txn(ctx).Then(ops...).Commit()
	took := time.Since(begun)
	for i, p := range t {
		if err != nil {
			p.end(nil, 0, took, err)
			continue
		}
		p.end(response.Responses[i].GetResponseTxn(), response.Header.Revision, took, nil)
	}
}

// operation returns a transaction within a transaction, because another writer may have created the object. The content of a namespace is
// within that of the namespace: it is stored only if the namespace is created.
func (p *put) operation() clientv3.Op {
	then := []clientv3.Op{clientv3.OpPut(p.key, string(p.value))}
	for _, object := range p.content {
		then = append(then, object.operation())
	}
	return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(p.key), "=", p.revision)}, then, nil)
}

// end sets the result of the operation, and returns it to the creation.
func (p *put) end(result *etcdserverpb.TxnResponse, revision int64, took time.Duration, err error) {
	if err == nil {
		p.response = kubernetes.PutResponse{Succeeded: result.Succeeded, Revision: revision}
	}
	for i, object := range p.content {
		switch {
		case err != nil:
			object.end(nil, 0, took, err)
		case !result.Succeeded:
			object.end(nil, 0, took, object.namespaceConflict())
		default:
			object.end(result.Responses[1+i].GetResponseTxn(), revision, took, nil)
		}
	}
	p.took, p.err = took, err
	close(p.done)
}

// namespaceConflict is the error of an object that is not stored because its namespace is not created with it.
func (p *put) namespaceConflict() error {
	return newNamespaceConflict(p.client.resource, path.Base(p.key))
}

func newNamespaceConflict(resource schema.GroupResource, name string) error {
	return apierrors.NewConflict(resource, name, errors.New("its namespace is not created in the same transaction"))
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
		if IsInNewNamespace(ctx) {
			return kubernetes.PutResponse{}, p.namespaceConflict()
		}
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
