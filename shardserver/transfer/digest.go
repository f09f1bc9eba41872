package transfer

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
)

// Sum is the SHA-256 of a key, or the sum of those of many keys modulo 2^256, which a change of one key changes without the others. It
// finds what is damaged, missing or too much. It does not need to resist an attacker who chooses the content: only a shard that has the
// content anyway could choose what the destination stores.
type Sum [sha256.Size]byte

// sumOf returns the sum of one key: of the length of its name as 8 bytes in network order, the name, one byte that is 1 if the key has a
// lease, and the value before encryption.
func sumOf(name string, leased bool, plaintext []byte) Sum {
	header := append(binary.BigEndian.AppendUint64(make([]byte, 0, 9+len(name)), uint64(len(name))), name...)
	if leased {
		header = append(header, 1)
	} else {
		header = append(header, 0)
	}
	hash := sha256.New()
	hash.Write(header)
	hash.Write(plaintext)
	return Sum(hash.Sum(nil))
}

// plus returns s + other.
func (s Sum) plus(other Sum) Sum { return s.combine(other, bits.Add64) }

// minus returns s - other.
func (s Sum) minus(other Sum) Sum { return s.combine(other, bits.Sub64) }

func (s Sum) combine(other Sum, word func(x, y, carry uint64) (result, carryOut uint64)) Sum {
	var carry uint64
	for at := len(s) - 8; at >= 0; at -= 8 {
		var result uint64
		result, carry = word(binary.BigEndian.Uint64(s[at:]), binary.BigEndian.Uint64(other[at:]), carry)
		binary.BigEndian.PutUint64(s[at:], result)
	}
	return s
}

// MarshalText implements encoding.TextMarshaler.
func (s Sum) MarshalText() ([]byte, error) {
	return base64.RawStdEncoding.AppendEncode(nil, s[:]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Sum) UnmarshalText(text []byte) error {
	if base64.RawStdEncoding.DecodedLen(len(text)) != len(s) {
		return errors.New("a sum has another length")
	}
	_, err := base64.RawStdEncoding.Decode(s[:], text)
	return err
}

// Digest is the digest of the content of a logical cluster by storage prefix, without storages that have no keys.
type Digest map[string]ResourceDigest

// ResourceDigest is the digest of the keys of one storage.
type ResourceDigest struct {
	Keys int64 `json:"keys"`
	Sum  Sum   `json:"sum"`
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
