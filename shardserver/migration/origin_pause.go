package migration

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
)

const (
	// maxPause is the longest time for which writes are refused. A destination that has not taken over by then pauses again later.
	maxPause = 5 * time.Second
	// pauseInterval is the time from the beginning of the first pause to that of the next one. It is longer than the lease of a replica,
	// so that one that has ended delays only one pause. It doubles with each further pause of a migration, up to maxPauseInterval: a
	// destination that never takes over does not keep tenants from writing.
	pauseInterval    = 10 * time.Second
	maxPauseInterval = 10 * time.Minute
	// resumeTimeout bounds the attempt to end a pause in time. The controller of the origin repeats it.
	resumeTimeout = 10 * time.Second
	// tokenSeparator separates the end of the pause from the reference of the migration in a token.
	tokenSeparator = " "
)

// tooEarlyError is returned for a pause that follows the previous one too soon.
type tooEarlyError struct{ wait time.Duration }

// Error implements error.
func (e *tooEarlyError) Error() string {
	return fmt.Sprintf("writes were refused a moment ago, and the destination has not taken over: the next attempt is possible in %s", e.wait.Round(time.Second))
}

// Fence pauses writes in all replicas of this shard (package fence).
type Fence interface {
	// Pause returns when no replica writes to a logical cluster, whose stored LogicalCluster of that revision says so. It returns an
	// error if that takes long.
	Pause(ctx context.Context, cluster logicalcluster.Name, revision int64) error
	// Hides reports whether this replica serves nothing of a logical cluster.
	Hides(cluster logicalcluster.Name) bool
	// Confirm lets a restored shard serve its logical clusters, and IsConfirmed reports whether it does.
	Confirm()
	IsConfirmed() bool
	// Outdated returns the number of logical clusters with OutdatedAnnotationKey.
	Outdated() int
}

// beginPause sets the annotations of a pause, and returns its token and its end.
func beginPause(annotations map[string]string, reference string, now time.Time) (token string, until time.Time, err error) {
	after, interval := nextPause(annotations)
	if wait := after.Sub(now); wait > 0 && wait <= interval { // a later time is one of another clock
		return "", time.Time{}, &tooEarlyError{wait}
	}
	if interval = min(2*interval, maxPauseInterval); interval == 0 {
		interval = pauseInterval
	}
	until = now.Add(maxPause)
	token = until.UTC().Format(time.RFC3339Nano) + tokenSeparator + reference
	annotations[corev1alpha1.WritesPausedAnnotationKey] = token
	annotations[corev1alpha1.PauseAfterAnnotationKey] = now.Add(interval).UTC().Format(time.RFC3339Nano) + tokenSeparator + interval.String()
	return token, until, nil
}

// nextPause returns when the next pause of a migration may begin, and how long that was after the beginning of the last one; 0 if there was none.
func nextPause(annotations map[string]string) (time.Time, time.Duration) {
	text, length, _ := strings.Cut(annotations[corev1alpha1.PauseAfterAnnotationKey], tokenSeparator)
	after, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, 0
	}
	interval, err := time.ParseDuration(length)
	if err != nil || interval < pauseInterval || interval > maxPauseInterval {
		interval = pauseInterval
	}
	return after, interval
}

// pause refuses writes, and returns the token of the pause when no write is in flight. Writes are accepted again at the end of the
// pause, whatever the destination does, and at once after an error.
func (o *originService) pause(ctx context.Context, cluster logicalcluster.Name, key controller.Request) (string, error) {
	reference := Reference(key.ClusterName, key.Name)
	var token string
	var until time.Time
	stored, err := o.stored.update(ctx, cluster, func(stored *storedCluster, annotations map[string]string) (err error) {
		if annotations[corev1alpha1.MigratingAnnotationKey] != reference || movestate.Of(annotations) == movestate.MovedAway || stored.isDeleting() {
			return errConflict
		}
		token, until, err = beginPause(annotations, reference, time.Now())
		return err
	})
	if err != nil {
		return "", err
	}
	time.AfterFunc(time.Until(until), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resumeTimeout)
		defer cancel()
		_ = o.resume(ctx, cluster, key, token)
	})
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if err := o.cfg.Fence.Pause(waiting, cluster, stored.revision); err != nil {
		_ = o.resume(context.WithoutCancel(ctx), cluster, key, token) // otherwise the pause ends later
		return "", fmt.Errorf("waiting for writes in flight: %w", err)
	}
	return token, nil
}

// resume ends the pause with a token, or any if the token is empty.
func (o *originService) resume(ctx context.Context, cluster logicalcluster.Name, key controller.Request, token string) error {
	_, err := o.stored.update(ctx, cluster, func(_ *storedCluster, annotations map[string]string) error {
		if annotations[corev1alpha1.MigratingAnnotationKey] != Reference(key.ClusterName, key.Name) || movestate.Of(annotations) == movestate.MovedAway {
			return errConflict
		}
		if token == "" || annotations[corev1alpha1.WritesPausedAnnotationKey] == token {
			delete(annotations, corev1alpha1.WritesPausedAnnotationKey)
		}
		return nil
	})
	return err
}

// pausedUntil returns the end of the pause of a logical cluster. A value without a time has ended.
func pausedUntil(cluster *corev1alpha1.LogicalCluster) (time.Time, bool) {
	if cluster == nil {
		return time.Time{}, false
	}
	value, paused := cluster.Annotations[corev1alpha1.WritesPausedAnnotationKey]
	text, _, _ := strings.Cut(value, tokenSeparator)
	until, _ := time.Parse(time.RFC3339Nano, text)
	return until, paused
}

// endPause ends the pause of a destination that does not take over, if the replica that began it has not.
func (o *originService) endPause(ctx context.Context, state Origin, until time.Time) (controller.Result, error) {
	if wait := time.Until(until); wait > 0 {
		return controller.Result{RequeueAfter: wait}, nil
	}
	reference, ok := ParseReference(state.Reference)
	if !ok {
		return controller.Result{}, nil
	}
	return controller.Result{}, o.resume(ctx, logicalcluster.Of(state.Cluster), reference, "")
}
