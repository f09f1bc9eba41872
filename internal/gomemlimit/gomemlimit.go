// Package gomemlimit sets the memory limit of the Go runtime from that of the container, so that garbage is collected
// more often near the limit, instead of the kernel killing the process.
package gomemlimit

import (
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"k8s.io/klog/v2"
)

// Set limits the Go runtime to 90 % of the memory limit of the process's control group. GOMEMLIMIT in the environment
// takes precedence; AUTOMEMLIMIT sets another ratio, or "off".
func Set() {
	limit, err := memlimit.Set()
	if err != nil {
		klog.V(2).InfoS("Failed to read the container's memory limit; GOMEMLIMIT is unchanged", "err", err)
		return
	}
	if limit < math.MaxInt64 { // otherwise the control group has no limit
		klog.V(2).InfoS("Memory limit of the Go runtime", "GOMEMLIMIT", limit)
	}
}
