package tokenkeys

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"math/big"
	"slices"
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/serviceaccount"
)

// newKeys returns the public keys of a shard as its authenticator has them.
func newKeys(t *testing.T, count int) []serviceaccount.PublicKey {
	t.Helper()
	var keys []any
	for range count {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, private.Public())
	}
	getter, err := serviceaccount.StaticPublicKeysGetter(keys)
	if err != nil {
		t.Fatal(err)
	}
	return getter.GetPublicKeys(t.Context(), "")
}

// finds reports which of the shards' keys an annotation has.
func finds(annotation string, now time.Time, shards ...[]serviceaccount.PublicKey) []bool {
	var found []bool
	for _, keys := range shards {
		found = append(found, len(Find(annotation, keys[0].KeyID, now)) == 1)
	}
	return found
}

func TestMoves(t *testing.T) {
	now := time.Now()
	a, b, c := newKeys(t, 1), newKeys(t, 1), newKeys(t, 1)
	atB := Receive(HandOver("", a, time.Hour, now), b, now)
	if got := finds(atB, now, a, b, c); !slices.Equal(got, []bool{true, false, false}) {
		t.Errorf("at B: %v", got)
	}
	if all := Find(atB, "", now); len(all) != 1 || all[0].KeyID != a[0].KeyID {
		t.Errorf("without a key ID: %+v", all)
	}
	atC := Receive(HandOver(atB, b, 2*time.Hour, now), c, now)
	if got := finds(atC, now, a, b, c); !slices.Equal(got, []bool{true, true, false}) {
		t.Errorf("at C: %v", got)
	}
	if got := finds(atC, now.Add(90*time.Minute), a, b, c); !slices.Equal(got, []bool{false, true, false}) {
		t.Errorf("at C, when all tokens of A have expired: %v", got)
	}
	if got := finds(atC, time.Time{}, a, b, c); !slices.Equal(got, []bool{true, true, false}) {
		t.Errorf("at C, for tokens without expiry: %v", got)
	}
	back := Receive(HandOver(atB, b, 0, now), a, now)
	if got := finds(back, now.AddDate(100, 0, 0), a, b, c); !slices.Equal(got, []bool{false, true, false}) {
		t.Errorf("back at A, from a shard that limits no tokens: %v", got)
	}
	text := atB
	for range 20 {
		text = HandOver(Receive(HandOver(text, b, time.Hour, now), a, now), a, time.Hour, now)
		text = Receive(text, b, now)
	}
	if text != atB {
		t.Errorf("after many moves: %s, want %s", text, atB)
	}
}

func TestLimits(t *testing.T) {
	now := time.Now()
	old, many := newKeys(t, 1), newKeys(t, maxKeys)
	text := HandOver(HandOver("", old, time.Minute, now), many, time.Hour, now)
	if all := Find(text, "", now); len(all) != maxKeys || len(Find(text, old[0].KeyID, now)) != 0 {
		t.Errorf("%d keys", len(all))
	}
	forever := HandOver("", old, time.Minute, time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC))
	if got := finds(Receive(forever, nil, now), now.Add(maxLifetime+time.Minute), old); got[0] {
		t.Error("a key outlives the longest token")
	}
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	large := &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 8*maxKeyBytes), E: 65537}
	if got := HandOver("", []serviceaccount.PublicKey{{PublicKey: edwards}, {PublicKey: large}, {PublicKey: "x"}}, time.Hour, now); got != "" {
		t.Errorf("unusable keys: %s", got)
	}
	garbage, err := json.Marshal([]key{{Until: now, DER: []byte("x")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "x", "{}", "null", `[{"key":1}]`, string(garbage)} {
		if got := Receive(text, nil, now); got != "" || Find(text, "", now) != nil {
			t.Errorf("%q: got %q", text, got)
		}
	}
}
