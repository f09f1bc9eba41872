package migration

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"

	"github.com/atoll-dev/atoll/internal/reservedkeys"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// maxReceipts and maxReceiptBytes bound the annotation with the receipts of a logical cluster, which other shards write, too.
	maxReceipts     = 32
	maxReceiptBytes = 16 << 10
	receiptKeyBytes = 32
)

// receipt is what a shard has signed when it handed a logical cluster over. It moves on with the logical cluster, and only that shard can check it:
// a restored shard accepts from others which shard has the logical cluster only with a receipt of its own.
type receipt struct {
	Shard string `json:"shard"`
	// Epoch is that of the logical cluster after the hand-over.
	Epoch int64  `json:"epoch"`
	MAC   string `json:"mac"`
}

// ReceiptKey returns the secret with which the shard of a prefix signs receipts, and creates it with the first start of the shard. It must not change:
// after the restore of a backup with another one, the shard does not accept the receipts that it has signed since.
func ReceiptKey(ctx context.Context, etcd clientv3.KV, prefix string) ([]byte, error) {
	key := reservedkeys.Receipts(prefix)
	for {
		// A transaction that may write is refused while the space of etcd is used up, and a shard has to start then.
		found, err := etcd.Get(ctx, key)
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", key, err)
		case len(found.Kvs) == 0:
		case len(found.Kvs[0].Value) == receiptKeyBytes:
			return found.Kvs[0].Value, nil
		default:
			return nil, fmt.Errorf("%s has no secret of %d bytes: delete the key; a shard that is restored from an earlier backup then does not know of moves", key, receiptKeyBytes)
		}
		secret := make([]byte, receiptKeyBytes)
		_, _ = rand.Read(secret) // never fails
		created, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(clientv3.OpPut(key, string(secret))).Commit()
		if err != nil {
			return nil, fmt.Errorf("creating %s: %w", key, err)
		}
		if created.Succeeded {
			return secret, nil
		}
	}
}

// sign returns the MAC of a receipt. The UID is that of the LogicalCluster: a later one may have the same name.
func sign(secret []byte, cluster logicalcluster.Name, uid types.UID, epoch int64) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s\n%s\n%d", cluster, uid, epoch)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// isSigned reports whether a MAC is that of sign.
func isSigned(secret []byte, cluster logicalcluster.Name, uid types.UID, epoch int64, mac string) bool {
	return hmac.Equal([]byte(sign(secret, cluster, uid, epoch)), []byte(mac))
}

// parseReceipts returns the receipts in an annotation, which another shard may have written.
func parseReceipts(value string) []receipt {
	var all []receipt
	if len(value) > maxReceiptBytes || json.Unmarshal([]byte(value), &all) != nil {
		return nil
	}
	return all[:min(len(all), maxReceipts)]
}

// receiptsAtHandOver returns the annotation with the receipt of a shard in place of its earlier one. It comes first: what others have written must not
// push it out.
func receiptsAtHandOver(value string, signed receipt) string {
	return encodeReceipts(append([]receipt{signed}, receiptsOfOthers(value, signed.Shard)...))
}

// receiptsAtArrival returns the annotation for a shard that has received the logical cluster, without the receipts of that shard: what it has
// handed over is here again.
func receiptsAtArrival(value, shard string) string {
	return encodeReceipts(receiptsOfOthers(value, shard))
}

// receiptsOfOthers returns the receipts of other shards, the newest first.
func receiptsOfOthers(value, shard string) []receipt {
	all := slices.DeleteFunc(parseReceipts(value), func(r receipt) bool { return r.Shard == shard })
	slices.SortStableFunc(all, func(a, b receipt) int { return cmp.Compare(b.Epoch, a.Epoch) })
	return all
}

// encodeReceipts returns the annotation with the first receipts that fit; "" without any.
func encodeReceipts(all []receipt) string {
	for all = all[:min(len(all), maxReceipts)]; len(all) > 0; all = all[:len(all)-1] {
		if value, err := json.Marshal(all); err == nil && len(value) <= maxReceiptBytes {
			return string(value)
		}
	}
	return ""
}

// receiptOf returns the receipt of a shard in an annotation.
func receiptOf(value, shard string) (receipt, bool) {
	all := parseReceipts(value)
	if i := slices.IndexFunc(all, func(r receipt) bool { return r.Shard == shard }); i >= 0 {
		return all[i], true
	}
	return receipt{}, false
}
