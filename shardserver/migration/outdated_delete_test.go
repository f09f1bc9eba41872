package migration

import (
	"strconv"
	"testing"

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
