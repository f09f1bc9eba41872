// Package tokenkeys is the format in which a logical cluster keeps the public keys of the shards that had it before: those with which
// tokens of its service accounts may have been signed. They are in an annotation of the LogicalCluster, so that they move with it, hold
// for no other logical cluster, and end with it.
//
// Which keys a shard has itself, and what a token has to fulfil besides its signature, does not belong here
// (shardserver/authentication).
package tokenkeys

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"slices"
	"time"

	"k8s.io/kubernetes/pkg/serviceaccount"
)

const (
	// maxKeys bounds the keys of a logical cluster: moves between the same shards add none. It has room for those of sixteen shards during a
	// re-keying, in which each has two. With the largest keys, the annotation has a fifth of the size that all annotations of an object may have.
	maxKeys = 32
	// maxKeyBytes is the size of the largest RSA keys that are in use.
	maxKeyBytes = 1200
	// maxLifetime is that of the tokens of a shard without a limit (validation of TokenRequests).
	maxLifetime = (1 << 32) * time.Second
)

// firstGeneration is that of the keys of an installation that has never re-keyed them.
const firstGeneration = 1

// Shard is what a shard verifies the tokens of its own logical clusters with.
type Shard struct {
	// Keys are its public keys.
	Keys []serviceaccount.PublicKey
	// Generations are those of its keys, by key ID, in the re-keyings of the installation. A key that is not in it is of the first.
	Generations map[string]int32
}

// Oldest returns the lowest generation of the shard's keys. Keys of earlier generations are retired in the whole installation, also
// those that logical clusters bring from other shards.
func (s Shard) Oldest() int32 {
	oldest := int32(0)
	for _, public := range s.Keys {
		if generation := s.generationOf(public); oldest == 0 || generation < oldest {
			oldest = generation
		}
	}
	return max(oldest, firstGeneration)
}

// newest returns the highest generation of the shard's keys.
func (s Shard) newest() int32 {
	newest := int32(firstGeneration)
	for _, public := range s.Keys {
		newest = max(newest, s.generationOf(public))
	}
	return newest
}

func (s Shard) generationOf(public serviceaccount.PublicKey) int32 {
	return max(s.Generations[public.KeyID], firstGeneration)
}

// key is a public key of an earlier shard.
type key struct {
	// Until is when the last bound token has expired that the shard can have signed while it had the logical cluster.
	Until time.Time `json:"until"`
	// DER is the key in the format SubjectPublicKeyInfo.
	DER []byte `json:"key"`
	// Generation is that of the key in the re-keyings of the installation; 0 means the first.
	Generation int32 `json:"generation,omitempty"`
}

// HandOver returns the annotation for the next shard: the keys of this shard, whose bound tokens last for at most maxExpiration (0
// means no limit), and those that the logical cluster has brought here.
func HandOver(annotation string, own Shard, maxExpiration time.Duration, now time.Time) string {
	if maxExpiration <= 0 {
		maxExpiration = maxLifetime
	}
	var keys []key
	for _, public := range own.Keys {
		if der, err := x509.MarshalPKIXPublicKey(public.PublicKey); err == nil {
			keys = append(keys, key{Until: now.Add(maxExpiration).UTC().Truncate(time.Second), DER: der, Generation: own.generationOf(public)})
		}
	}
	return encode(append(keys, decodeSince(annotation, own.Oldest())...))
}

// Receive returns the annotation for this shard, of what another one has handed over: without keys that this shard has itself or that
// are retired, and within the limits. No shard can have signed a token that lasts longer than the longest, nor with a key of a
// generation that this shard does not accept yet: else a key that a shard gives a high number would never be retired.
func Receive(annotation string, own Shard, now time.Time) string {
	keys := slices.DeleteFunc(decodeSince(annotation, own.Oldest()), func(k key) bool {
		return slices.ContainsFunc(own.Keys, func(public serviceaccount.PublicKey) bool {
			der, err := x509.MarshalPKIXPublicKey(public.PublicKey)
			return err == nil && bytes.Equal(der, k.DER)
		})
	})
	latest := now.Add(maxLifetime).UTC().Truncate(time.Second)
	for i := range keys {
		if keys[i].Until.After(latest) {
			keys[i].Until = latest
		}
		keys[i].Generation = min(keys[i].Generation, own.newest())
	}
	return encode(keys)
}

// Find returns the keys of the annotation that a token with the given key ID may be signed with; "" means any. Keys of
// generations before the oldest are retired and left out, and so are keys whose time is over, if now is not zero.
func Find(annotation, keyID string, oldest int32, now time.Time) []serviceaccount.PublicKey {
	var found []serviceaccount.PublicKey
	for _, k := range decodeSince(annotation, oldest) {
		id := k.id()
		if keyID != "" && id != keyID || !now.IsZero() && now.After(k.Until) {
			continue
		}
		if public, ok := k.parse(); ok {
			found = append(found, serviceaccount.PublicKey{KeyID: id, PublicKey: public, ExcludeFromOIDCDiscovery: true})
		}
	}
	return found
}

// id is the key ID that stock token generators write.
func (k key) id() string {
	sum := sha256.Sum256(k.DER)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func (k key) parse() (any, bool) {
	public, err := x509.ParsePKIXPublicKey(k.DER)
	if err != nil {
		return nil, false
	}
	switch public.(type) {
	case *rsa.PublicKey, *ecdsa.PublicKey:
		return public, true
	}
	return nil, false
}

// encode leaves out what nothing can be verified with, and repetitions. Of too many keys, those that expire last remain.
func encode(keys []key) string {
	keys = slices.DeleteFunc(keys, func(k key) bool {
		_, ok := k.parse()
		return !ok || len(k.DER) > maxKeyBytes
	})
	slices.SortStableFunc(keys, func(a, b key) int { return b.Until.Compare(a.Until) })
	var kept []key
	for _, k := range keys {
		if k.Generation <= firstGeneration {
			k.Generation = 0
		}
		if len(kept) < maxKeys && !slices.ContainsFunc(kept, func(other key) bool { return bytes.Equal(other.DER, k.DER) }) {
			kept = append(kept, k)
		}
	}
	if len(kept) == 0 {
		return ""
	}
	encoded, err := json.Marshal(kept)
	if err != nil { // a year of five digits
		return ""
	}
	return string(encoded)
}

// decodeSince returns the keys of an annotation that are of a generation or later.
func decodeSince(annotation string, oldest int32) []key {
	return slices.DeleteFunc(decode(annotation), func(k key) bool { return max(k.Generation, firstGeneration) < oldest })
}

// decode returns the keys of an annotation. An annotation in another format has none.
func decode(annotation string) []key {
	var keys []key
	if annotation == "" || json.Unmarshal([]byte(annotation), &keys) != nil {
		return nil
	}
	return keys
}
