package replica

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrTermEnded is returned when another replica of the shard has acquired the term.
var ErrTermEnded = errors.New("another replica of the shard writes these keys")

// Term is the right of one replica of a shard to write the keys below a segment. A replica that has lost the lease of
// controllers may not know it yet, for example because its machine was suspended.
type Term struct {
	etcd *clientv3.Client
	key  string
	// revision is that in which the key was written.
	revision int64
}

// AcquireTerm ends the term of the previous replica.
func (s *SnapshotStore) AcquireTerm(ctx context.Context, segment string) (*Term, error) {
	key := path.Join("/", s.Prefix, segment+"-writer")
	response, err := s.Etcd.Put(ctx, key, uuid.NewString())
	if err != nil {
		return nil, fmt.Errorf("acquiring %s: %w", key, err)
	}
	return &Term{etcd: s.Etcd, key: key, revision: response.Header.Revision}, nil
}

// holds is the condition of a transaction that the term has not ended.
func (t *Term) holds() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(t.key), "=", t.revision)
}

// Check returns ErrTermEnded if the term has ended. It is for writes that take no condition of etcd.
func (t *Term) Check(ctx context.Context) error {
	response, err := t.etcd.Txn(ctx).If(t.holds()).Commit()
	if err == nil && !response.Succeeded {
		err = ErrTermEnded
	}
	if err != nil {
		return fmt.Errorf("checking %s: %w", t.key, err)
	}
	return nil
}
