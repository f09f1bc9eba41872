package migration

import (
	"strconv"
	"testing"
	"time"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// TestIsProven: only the receipt of this shard for the hand-over, or for a later one, proves that another one has got the logical cluster.
func TestIsProven(t *testing.T) {
	secret, name := []byte("secret"), logicalcluster.MustParseName("moving")
	const epoch = 3
	stored := &storedCluster{object: map[string]any{"metadata": map[string]any{
		"uid": "u", "annotations": map[string]any{corev1alpha1.EpochAnnotationKey: strconv.Itoa(epoch)},
	}}}
	signed := func(epoch int64) claim {
		return claim{Cluster: "moving", UID: "u", Holder: "beta", Epoch: epoch, MAC: sign(secret, name, "u", epoch)}
	}
	for what, tc := range map[string]struct {
		claim func() claim
		want  bool
	}{
		"the shard that got it":                {func() claim { return signed(epoch) }, true},
		"one that got it later":                {func() claim { return signed(epoch + 2) }, true},
		"one that got it before":               {func() claim { return signed(epoch - 1) }, false},
		"one that has another logical cluster": {func() claim { c := signed(epoch); c.Cluster = "other"; return c }, false},
		"one that has another of its name":     {func() claim { c := signed(epoch); c.UID = "v"; return c }, false},
		"one without a receipt":                {func() claim { c := signed(epoch); c.MAC = ""; return c }, false},
		"one with the receipt of another":      {func() claim { c := signed(epoch); c.MAC = sign([]byte("other"), name, "u", epoch); return c }, false},
		"one with another epoch":               {func() claim { c := signed(epoch); c.Epoch++; return c }, false},
	} {
		if got := isProven(secret, name, stored, tc.claim()); got != tc.want {
			t.Errorf("%s: got %t", what, got)
		}
	}
}

// TestNoteHolder: the time from which others can learn where a logical cluster is begins again with another shard, and with another clock.
func TestNoteHolder(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for what, tc := range map[string]struct {
		holder string
		since  string
		want   time.Time
	}{
		"the same shard":               {"beta", "2030-01-02T03:00:00Z", now.Add(-4*time.Minute - 5*time.Second)},
		"this very second":             {"beta", "2030-01-02T03:04:05Z", now},
		"another shard":                {"gamma", "2030-01-02T03:00:00Z", now},
		"a clock that was set back":    {"beta", "2031-01-02T03:04:05Z", now},
		"what is no time":              {"beta", "yes", now},
		"a time with another timezone": {"beta", "2030-01-02T05:00:00+02:00", now.Add(-4*time.Minute - 5*time.Second)},
	} {
		annotations := map[string]string{corev1alpha1.MovedToAnnotationKey: "beta", corev1alpha1.ShardAnnotationKey: "beta", corev1alpha1.OutdatedAnnotationKey: tc.since}
		noteHolder(annotations, tc.holder, now)
		if annotations[corev1alpha1.MovedToAnnotationKey] != tc.holder || annotations[corev1alpha1.ShardAnnotationKey] != tc.holder || !outdatedSince(annotations).Equal(tc.want) {
			t.Errorf("%s: got %v", what, annotations)
		}
	}
}
