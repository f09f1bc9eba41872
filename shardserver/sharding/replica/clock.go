package replica

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

const (
	// skewCheckInterval is how often clocks are compared, maxClockSkew the difference that is not logged. Informers do not
	// depend on clocks; tokens, certificates and leases do.
	skewCheckInterval = 10 * time.Second
	maxClockSkew      = 5 * time.Second
)

// reportClockSkew logs when the clocks of this process and the cache start to differ and when they agree again, until
// the context ends.
func reportClockSkew(ctx context.Context, skew func() time.Duration) {
	ticker := time.NewTicker(skewCheckInterval)
	defer ticker.Stop()
	for logged := false; ; {
		current := skew()
		switch exceeded := current.Abs() > maxClockSkew; {
		case exceeded && !logged:
			klog.FromContext(ctx).Info("The clocks of this process and of the cache server differ: check the time synchronization of both machines", "skew", current)
			logged = true
		case !exceeded && logged:
			klog.FromContext(ctx).Info("The clocks of this process and of the cache server agree again")
			logged = false
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
