// Package unknown describes a metric by a name that only a running program knows.
package unknown

import (
	"os"

	"github.com/prometheus/client_golang/prometheus"
)

var _ = prometheus.NewGauge(prometheus.GaugeOpts{Name: os.Args[0], Help: "What has this name?"})
