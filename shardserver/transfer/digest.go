package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Digest is the digest of the content of a logical cluster by storage prefix, without storages that have no keys.
type Digest map[string]ResourceDigest

// ResourceDigest is the digest of the keys of one storage.
type ResourceDigest struct {
	Keys int64 `json:"keys"`
	// SHA256 is that of the keys in order: of each the length of the name as 8 bytes in network order, the name, one byte that is 1 if the
	// key has a lease, and the SHA-256 of the value before encryption. It is in hexadecimal.
	SHA256 string `json:"sha256"`
}

// Keys returns the number of keys of all storages.
func (d Digest) Keys() int64 {
	var sum int64
	for _, resource := range d {
		sum += resource.Keys
	}
	return sum
}

// Difference describes the first storage, in order, in which the destination of a move differs from the origin d, or returns "".
func (d Digest) Difference(destination Digest) string {
	resources := slices.AppendSeq(slices.Collect(maps.Keys(d)), maps.Keys(destination))
	slices.Sort(resources)
	for _, resource := range resources {
		origin, copied := d[resource], destination[resource]
		switch {
		case origin.Keys != copied.Keys:
			return fmt.Sprintf("%s has %d keys at the origin and %d at the destination", resource, origin.Keys, copied.Keys)
		case origin != copied:
			return fmt.Sprintf("%s has other content at the destination than at the origin", resource)
		}
	}
	return ""
}

// digester computes a Digest of keys in order.
type digester struct {
	digest   Digest
	resource string
	keys     int64
	hash     hash.Hash
}

func newDigester() *digester { return &digester{digest: Digest{}, hash: sha256.New()} }

func (d *digester) add(key Key, leased bool, plaintext []byte) {
	if key.Resource != d.resource {
		d.finish()
		d.resource = key.Resource
	}
	d.keys++
	header := append(binary.BigEndian.AppendUint64(nil, uint64(len(key.Name))), key.Name...)
	if leased {
		header = append(header, 1)
	} else {
		header = append(header, 0)
	}
	value := sha256.Sum256(plaintext)
	d.hash.Write(append(header, value[:]...))
}

// finish ends a storage and returns the digest so far.
func (d *digester) finish() Digest {
	if d.keys > 0 {
		d.digest[d.resource] = ResourceDigest{Keys: d.keys, SHA256: hex.EncodeToString(d.hash.Sum(nil))}
	}
	d.keys = 0
	d.hash.Reset()
	return d.digest
}

// Digest returns the digest of a logical cluster at a revision, that of a Manifest; 0 is the latest one.
func (t *Transfer) Digest(ctx context.Context, cluster logicalcluster.Name, revision int64) (Digest, error) {
	digest, err := t.digest(ctx, cluster, revision)
	if err != nil {
		return nil, fmt.Errorf("computing the digest of logical cluster %q: %w", cluster, err)
	}
	return digest, nil
}

func (t *Transfer) digest(ctx context.Context, cluster logicalcluster.Name, revision int64) (Digest, error) {
	versions, revision, err := t.manifest(ctx, cluster, revision)
	if err != nil {
		return nil, err
	}
	digest := newDigester()
	for page := range slices.Chunk(versions, keysPerPage) {
		keys := make([]string, 0, len(page))
		for _, version := range page {
			keys = append(keys, t.clusterKey(cluster, version.Key))
		}
		err := t.eachValue(ctx, keys, revision, func(i int, kv *mvccpb.KeyValue) (bool, error) {
			if kv == nil {
				return false, fmt.Errorf("a key of %s is missing at revision %d", page[i].Resource, revision)
			}
			plaintext, err := t.decrypt(ctx, page[i].Resource, kv)
			if err != nil {
				return false, err
			}
			digest.add(page[i].Key, kv.Lease != 0, plaintext)
			return true, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return digest.finish(), nil
}
