// Package movestate decodes the annotations of a LogicalCluster that say what a shard serves of a logical cluster that moves between
// shards: all code that acts on that state reads it here. Who writes the annotations, and what the other ones of a move mean, does not
// belong here (shardserver/migration).
package movestate

import corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"

// State is what a shard serves of a logical cluster.
type State int

const (
	// Open is the state of a logical cluster that does not move, or whose content is only copied yet.
	Open State = iota
	// WritesPaused is the state at the origin while the rest is copied: only reads are served.
	WritesPaused
	// MovedAway is the state of the remainder at the origin: nothing is served.
	MovedAway
	// Arriving is the state at the destination until the content is complete: nothing is served.
	Arriving
)

// Of returns the state that the annotations of a LogicalCluster express. Their values do not matter, so that no value opens a logical
// cluster by accident.
func Of(annotations map[string]string) State {
	for _, one := range []struct {
		annotation string
		state      State
	}{
		{corev1alpha1.MovedToAnnotationKey, MovedAway},
		{corev1alpha1.ArrivingAnnotationKey, Arriving},
		{corev1alpha1.WritesPausedAnnotationKey, WritesPaused},
	} {
		if _, set := annotations[one.annotation]; set {
			return one.state
		}
	}
	return Open
}

// IsHidden reports whether the shard serves nothing of the logical cluster. Lists and watches over all leave it out.
func (s State) IsHidden() bool { return s == MovedAway || s == Arriving }
