package movestate

import (
	"testing"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

func TestOf(t *testing.T) {
	const paused, moved, arriving = corev1alpha1.WritesPausedAnnotationKey, corev1alpha1.MovedToAnnotationKey, corev1alpha1.ArrivingAnnotationKey
	for _, tc := range []struct {
		annotations map[string]string
		want        State
	}{
		{nil, Open}, {map[string]string{corev1alpha1.MigratingAnnotationKey: "a:b", corev1alpha1.EpochAnnotationKey: "1"}, Open},
		{map[string]string{paused: "x"}, WritesPaused}, {map[string]string{paused: ""}, WritesPaused},
		{map[string]string{paused: "x", moved: "d"}, MovedAway}, {map[string]string{arriving: "x", paused: "x"}, Arriving},
		{map[string]string{arriving: "x", moved: "d"}, MovedAway},
	} {
		if got := Of(tc.annotations); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.annotations, got, tc.want)
		}
	}
}
