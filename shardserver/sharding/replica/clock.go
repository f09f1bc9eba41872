package replica

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

const (
	// clockInterval is how often clocks are compared, clockTolerance by how much they may differ without a word. Nothing here
	// depends on them, but what stands in objects, tokens and certificates does.
	clockInterval  = 10 * time.Second
	clockTolerance = 5 * time.Second
)

// warnOfClocks tells when the clock of this process and the cache's begin to differ, and when they agree again, until the
// context ends.
func warnOfClocks(ctx context.Context, ahead func() time.Duration) {
	ticker := time.NewTicker(clockInterval)
	defer ticker.Stop()
	for told := false; ; {
		by := ahead()
		switch differ := by.Abs() > clockTolerance; {
		case differ && !told:
			klog.FromContext(ctx).Info("The clock of this process is not that of the cache server: see to the time synchronization of both machines", "ahead", by)
			told = true
		case !differ && told:
			klog.FromContext(ctx).Info("The clock of this process is that of the cache server again")
			told = false
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
