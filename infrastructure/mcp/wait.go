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

// wait reads an instance until it is done or gone, or the limit has passed, and reports progress. It returns the last state, or nil if the
// instance is gone, and whether it is done. It retries after errors, because the change has been made. If too many calls wait already, it
// returns immediately.
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

// report sends progress to a client that has requested it.
func (c *call) report(ctx context.Context, message string, elapsed, total time.Duration) {
	token := c.request.Params.GetProgressToken()
	if token == nil {
		return
	}
	// If the client cannot be reached, the call fails when it sends the result.
	_ = c.request.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
		ProgressToken: token, Message: message, Progress: elapsed.Seconds(), Total: total.Seconds(),
	})
}

// hasFailed reports whether the platform has failed to provide the given generation.
func (d *instanceDetails) hasFailed(generation int64) bool {
	if d.Phase == string(infrastructurev1alpha1.PhaseTemplateRemoved) {
		return true
	}
	return d.Phase == string(infrastructurev1alpha1.PhaseFailed) && d.observedGeneration >= generation
}
