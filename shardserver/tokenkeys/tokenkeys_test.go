package tokenkeys

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/serviceaccount"
)

// newKeys returns the public keys of a shard as its authenticator has them. They are of the first generation.
func newKeys(t *testing.T, count int) Shard {
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
	return Shard{Keys: getter.GetPublicKeys(t.Context(), "")}
}

// finds reports which of the shards' keys an annotation has.
func finds(annotation string, now time.Time, shards ...Shard) []bool {
	var found []bool
	for _, shard := range shards {
		found = append(found, len(Find(annotation, shard.Keys[0].KeyID, 1, now)) == 1)
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
	if all := Find(atB, "", 1, now); len(all) != 1 || all[0].KeyID != a.Keys[0].KeyID {
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

// TestGenerations: keys move with their generation. Those that are retired at the next shard end there, and end with a record of them that
// logical clusters have brought before.
func TestGenerations(t *testing.T) {
	now := time.Now()
	first, second, other := newKeys(t, 1), newKeys(t, 1), newKeys(t, 1)
	both := Shard{Keys: slices.Concat(first.Keys, second.Keys), Generations: map[string]int32{second.Keys[0].KeyID: 2}}
	retired := Shard{Keys: second.Keys, Generations: both.Generations}
	for name, tc := range map[string]struct {
		shard Shard
		want  int32
	}{"no keys": {Shard{}, 1}, "the first": {first, 1}, "both": {both, 1}, "the second": {retired, 2}} {
		if got := tc.shard.Oldest(); got != tc.want {
			t.Errorf("%s: the oldest is %d, want %d", name, got, tc.want)
		}
	}
	before := HandOver("", first, time.Hour, now) // by a shard that knows no generations
	during := HandOver("", both, time.Hour, now)
	if got := finds(during, now, first, second); !slices.Equal(got, []bool{true, true}) {
		t.Errorf("both are handed over: %v", got)
	}
	otherRetired := Shard{Keys: other.Keys, Generations: map[string]int32{other.Keys[0].KeyID: 2}}
	for name, tc := range map[string]struct {
		annotation string
		want       []bool
	}{
		"received before the re-keying, by a shard that retires":  {Receive(before, otherRetired, now), []bool{false, false}},
		"received during the re-keying, by a shard that retires":  {Receive(during, otherRetired, now), []bool{false, true}},
		"received during the re-keying, by a shard that does not": {Receive(during, other, now), []bool{true, true}},
		"handed over by a shard that retires":                     {HandOver(during, otherRetired, time.Hour, now), []bool{false, true}},
		"handed over with its own retired key":                    {HandOver(before, retired, time.Hour, now), []bool{false, true}},
	} {
		if got := finds(tc.annotation, now, first, second); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	for _, at := range []time.Time{now, {}} { // also tokens without expiry
		if keys := Find(during, "", 2, at); len(keys) != 1 || keys[0].KeyID != second.Keys[0].KeyID {
			t.Errorf("after the retirement: %+v", keys)
		}
	}
}

func TestLimits(t *testing.T) {
	now := time.Now()
	old, many := newKeys(t, 1), newKeys(t, maxKeys)
	text := HandOver(HandOver("", old, time.Minute, now), many, time.Hour, now)
	if all := Find(text, "", 1, now); len(all) != maxKeys || len(Find(text, old.Keys[0].KeyID, 1, now)) != 0 {
		t.Errorf("%d keys", len(all))
	}
	forever := HandOver("", old, time.Minute, time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC))
	if got := finds(Receive(forever, Shard{}, now), now.Add(maxLifetime+time.Minute), old); got[0] {
		t.Error("a key outlives the longest token")
	}
	received := Receive(HandOver("", Shard{Keys: old.Keys, Generations: map[string]int32{old.Keys[0].KeyID: math.MaxInt32}}, time.Hour, now), newKeys(t, 1), now)
	if got := finds(received, now, old); !got[0] || len(Find(received, "", 2, now)) != 0 {
		t.Errorf("a key of a generation that does not exist here is not retired: %s", received)
	}
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	large := &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 8*maxKeyBytes), E: 65537}
	if got := HandOver("", Shard{Keys: []serviceaccount.PublicKey{{PublicKey: edwards}, {PublicKey: large}, {PublicKey: "x"}}}, time.Hour, now); got != "" {
		t.Errorf("unusable keys: %s", got)
	}
	garbage, err := json.Marshal([]key{{Until: now, DER: []byte("x")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "x", "{}", "null", `[{"key":1}]`, string(garbage)} {
		if got := Receive(text, Shard{}, now); got != "" || Find(text, "", 1, now) != nil {
			t.Errorf("%q: got %q", text, got)
		}
	}
}
