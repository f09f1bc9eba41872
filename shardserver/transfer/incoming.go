package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// record is what is stored about a key that was copied to this shard, besides its value.
type record struct {
	Version
	Expires time.Time `json:"expires,omitzero"`
}

// Incoming names what one migration copies to this shard.
type Incoming struct {
	Cluster logicalcluster.Name
	UID     types.UID
}

// incomingPrefix is the prefix of all records.
func (t *Transfer) incomingPrefix() string { return t.prefix + "/" + incomingSegment + "/" }

// records returns the prefix of the records of a migration, whose UID comes from another shard.
func (t *Transfer) records(in Incoming) (string, error) {
	if err := checkCluster(in.Cluster); err != nil {
		return "", err
	}
	if !uidPattern.MatchString(string(in.UID)) {
		return "", errors.New("the UID of the migration is invalid")
	}
	return t.incomingPrefix() + in.Cluster.String() + "/" + string(in.UID), nil
}

// recordOf returns the key of a record.
func recordOf(prefix string, key Key) string {
	return prefix + key.Resource + "/" + nameSegment + "/" + key.Name
}

// Copied returns the keys that were copied, with the versions of the origin. It reads no values.
func (t *Transfer) Copied(ctx context.Context, in Incoming) ([]Version, error) {
	var versions []Version
	err := t.eachRecords(ctx, in, func(records []record) error {
		for _, r := range records {
			versions = append(versions, r.Version)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the copied keys of logical cluster %q: %w", in.Cluster, err)
	}
	return versions, nil
}

// eachRecords visits the records of a migration in pages, ordered by storage and name.
func (t *Transfer) eachRecords(ctx context.Context, in Incoming, visit func([]record) error) error {
	prefix, err := t.records(in)
	if err != nil {
		return err
	}
	return t.eachKey(ctx, prefix+"/", 0, false, func(page []*mvccpb.KeyValue) error {
		records := make([]record, len(page))
		for i, kv := range page {
			if err := json.Unmarshal(kv.Value, &records[i]); err != nil || string(kv.Key) != recordOf(prefix, records[i].Key) {
				return errors.New("the record of a copied key is invalid")
			}
		}
		return visit(records)
	})
}

// Incoming returns the migrations that have records. Its cost follows their number.
func (t *Transfer) Incoming(ctx context.Context) ([]Incoming, error) {
	root := t.incomingPrefix()
	var found []Incoming
	for from, end := root, clientv3.GetPrefixRangeEnd(root); ; {
		page, err := t.cfg.Client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
		if err != nil {
			return nil, fmt.Errorf("listing copied logical clusters: %w", err)
		}
		if len(page.Kvs) == 0 {
			return found, nil
		}
		segments := strings.SplitN(string(page.Kvs[0].Key[len(root):]), "/", 3)
		cluster, err := logicalcluster.ParseName(segments[0])
		if err != nil || len(segments) < 3 {
			return nil, fmt.Errorf("listing copied logical clusters: a key below %s has another form", root)
		}
		found = append(found, Incoming{cluster, types.UID(segments[1])})
		from = clientv3.GetPrefixRangeEnd(root + segments[0] + "/" + segments[1] + "/")
	}
}

// Forget deletes the records of a migration. What it has copied remains. A migration without records is no error.
func (t *Transfer) Forget(ctx context.Context, in Incoming) error {
	op, err := t.ForgetOp(in)
	if err == nil {
		_, err = t.cfg.Client.Do(ctx, op)
	}
	if err != nil {
		return fmt.Errorf("deleting the records of the copy of logical cluster %q: %w", in.Cluster, err)
	}
	return nil
}

// ForgetOp is the operation of Forget, for a transaction.
func (t *Transfer) ForgetOp(in Incoming) (clientv3.Op, error) {
	prefix, err := t.records(in)
	return clientv3.OpDelete(prefix+"/", clientv3.WithPrefix()), err
}
