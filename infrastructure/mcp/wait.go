package mcp

import (
	"context"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

// wait reads an instance until it is done or gone, or the time is over, and reports progress. It returns the last state, nil for one that is gone, and
// whether it is done. What cannot be read is read again: the change has been made. Above the limit of calls that wait, it does not wait.
func (c *call) wait(ctx context.Context, k kind, object *unstructured.Unstructured, limit time.Duration, done func(*instanceDetails) bool) (last *instanceDetails, ended bool) {
	last = describe(k, object)
	select {
	case c.server.waits <- struct{}{}:
		defer func() { <-c.server.waits }()
	default:
		return last, false
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	ticker := time.NewTicker(c.server.cfg.Limits.Poll)
	defer ticker.Stop()
	for {
		found, err := c.instances(k).Get(ctx, object.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && found.GetUID() != object.GetUID() {
			return nil, true
		}
		if err == nil {
			last = describe(k, found)
			if done(last) {
				return last, true
			}
		}
		c.report(ctx, last.sentence(), time.Since(start), limit)
		select {
		case <-ctx.Done():
			return last, false
		case <-ticker.C:
		}
	}
}

// report sends progress to a client that has asked for it.
func (c *call) report(ctx context.Context, message string, elapsed, total time.Duration) {
	token := c.request.Params.GetProgressToken()
	if token == nil {
		return
	}
	// A client that cannot be reached is noticed when the call ends.
	_ = c.request.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
		ProgressToken: token, Message: message, Progress: elapsed.Seconds(), Total: total.Seconds(),
	})
}

// hasFailed reports whether the platform has given a generation up.
func (d *instanceDetails) hasFailed(generation int64) bool {
	if d.Phase == string(infrastructurev1alpha1.PhaseTemplateRemoved) {
		return true
	}
	return d.Phase == string(infrastructurev1alpha1.PhaseFailed) && d.observedGeneration >= generation
}
