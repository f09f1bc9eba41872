package migration

import (
	"maps"
	"testing"
	"time"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

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

// TestNoteParentShard: the report of a restored shard goes to the shard that has the Workspace now, as the shard that has the logical cluster knows.
func TestNoteParentShard(t *testing.T) {
	for what, tc := range map[string]struct{ before, parentShard, want string }{
		"the parent stays":                          {"gamma", "gamma", "gamma"},
		"the parent has moved":                      {"gamma", "delta", "delta"},
		"the parent has moved away from this shard": {"", "delta", "delta"},
		"the parent has moved to this shard":        {"gamma", "alpha", ""},
		"the parent stays on this shard":            {"", "alpha", ""},
		"an older version":                          {"gamma", "", "gamma"},
		"no shard":                                  {"gamma", "nobody", "gamma"},
	} {
		annotations := map[string]string{corev1alpha1.MovedToAnnotationKey: "beta"}
		setOrDelete(annotations, corev1alpha1.OwnerShardAnnotationKey, tc.before)
		want := maps.Clone(annotations)
		setOrDelete(want, corev1alpha1.OwnerShardAnnotationKey, tc.want)
		if noteParentShard(annotations, "alpha", tc.parentShard, []string{"beta", "delta", "gamma"}); !maps.Equal(annotations, want) {
			t.Errorf("%s: got %v, want %v", what, annotations, want)
		}
	}
}

// TestPlaceOfParent: a restored shard does not wait for a Workspace that nobody changes.
func TestPlaceOfParent(t *testing.T) {
	local := func(annotations map[string]any) *storedCluster {
		return &storedCluster{object: map[string]any{"metadata": map[string]any{"annotations": annotations}}}
	}
	const movedTo, outdated, arriving, paused = corev1alpha1.MovedToAnnotationKey, corev1alpha1.OutdatedAnnotationKey, corev1alpha1.ArrivingAnnotationKey, corev1alpha1.WritesPausedAnnotationKey
	for what, tc := range map[string]struct {
		remote, exists bool
		local          *storedCluster
		want           parentPlace
	}{
		"on another shard":         {remote: true, exists: true, want: parentServed},
		"on a shard that is gone":  {remote: true, want: parentGone},
		"on this shard":            {local: local(nil), want: parentServed},
		"it does not exist here":   {want: parentServed},
		"writes to it are refused": {local: local(map[string]any{paused: "t"}), want: parentServed},
		"it was handed over":       {local: local(map[string]any{movedTo: "beta"}), want: parentMoves},
		"it arrives":               {local: local(map[string]any{arriving: "m"}), want: parentMoves},
		"it is outdated, too":      {local: local(map[string]any{movedTo: "beta", outdated: "2030-01-02T03:04:05Z"}), want: parentOutdated},
	} {
		if got := placeOfParent(tc.remote, tc.exists, tc.local); got != tc.want {
			t.Errorf("%s: got %s", what, got)
		}
	}
}
