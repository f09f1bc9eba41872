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
	// maxKeys bounds the keys of a logical cluster: moves between the same shards add none, unless a shard has a new key.
	maxKeys = 16
	// maxKeyBytes is the size of the largest RSA keys that are in use.
	maxKeyBytes = 1200
	// maxLifetime is that of the tokens of a shard without a limit (validation of TokenRequests).
	maxLifetime = (1 << 32) * time.Second
)

// key is a public key of an earlier shard.
type key struct {
	// Until is when the last bound token has expired that the shard can have signed while it had the logical cluster.
	Until time.Time `json:"until"`
	// DER is the key in the format SubjectPublicKeyInfo.
	DER []byte `json:"key"`
}

// HandOver returns the annotation for the next shard: the keys of this shard, whose bound tokens last for at most maxExpiration (0
// means no limit), and those that the logical cluster has brought here.
func HandOver(annotation string, own []serviceaccount.PublicKey, maxExpiration time.Duration, now time.Time) string {
	if maxExpiration <= 0 {
		maxExpiration = maxLifetime
	}
	var keys []key
	for _, public := range own {
		if der, err := x509.MarshalPKIXPublicKey(public.PublicKey); err == nil {
			keys = append(keys, key{Until: now.Add(maxExpiration).UTC().Truncate(time.Second), DER: der})
		}
	}
	return encode(append(keys, decode(annotation)...))
}

// Receive returns the annotation for this shard, of what another one has handed over: without keys that this shard has itself, and
// within the limits. No shard can have signed a token that lasts longer than the longest.
func Receive(annotation string, own []serviceaccount.PublicKey, now time.Time) string {
	keys := slices.DeleteFunc(decode(annotation), func(k key) bool {
		return slices.ContainsFunc(own, func(public serviceaccount.PublicKey) bool {
			der, err := x509.MarshalPKIXPublicKey(public.PublicKey)
			return err == nil && bytes.Equal(der, k.DER)
		})
	})
	latest := now.Add(maxLifetime).UTC().Truncate(time.Second)
	for i := range keys {
		if keys[i].Until.After(latest) {
			keys[i].Until = latest
		}
	}
	return encode(keys)
}

// Find returns the keys of the annotation that a token with the given key ID may be signed with; "" means any. Keys whose time is
// over are left out if now is not zero.
func Find(annotation, keyID string, now time.Time) []serviceaccount.PublicKey {
	var found []serviceaccount.PublicKey
	for _, k := range decode(annotation) {
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

// decode returns the keys of an annotation. An annotation in another format has none.
func decode(annotation string) []key {
	var keys []key
	if annotation == "" || json.Unmarshal([]byte(annotation), &keys) != nil {
		return nil
	}
	return keys
}
