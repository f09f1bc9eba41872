// Package certexpiry contains the metric of the expiration times of a server's certificates, so that an alert precedes the outage. It
// covers the certificates that a server presents, to its clients and to other servers: apiserver_client_certificate_expiration_seconds of
// Kubernetes covers those that clients present to it.
package certexpiry

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
)

// Collector reads the files at each scrape: it reports the time of a renewed certificate immediately, and has no state.
type Collector struct {
	metrics.BaseStableCollector
	description *metrics.Desc
	sources     map[string][]source
}

// source is a certificate in a file, or in memory.
type source struct {
	file string
	data []byte
}

// New returns a collector without certificates.
func New() *Collector {
	return &Collector{sources: map[string][]source{}, description: metrics.NewDesc(
		"atoll_certificate_expiration_timestamp_seconds",
		"Time at which a certificate that this server presents expires, in seconds since 1970, by the flag that names it: the earliest if these are several. Absent for a file that cannot be read.",
		[]string{"flag"}, nil, metrics.ALPHA, "")}
}

// AddFile adds a certificate in PEM; "" is none. The flag, without dashes, is the label.
func (c *Collector) AddFile(flag, file string) {
	if file != "" {
		c.sources[flag] = append(c.sources[flag], source{file: file})
	}
}

// AddClient adds the certificate of a client configuration, if it has one. The configuration may be nil.
func (c *Collector) AddClient(flag string, config *rest.Config) {
	switch {
	case config == nil:
	case len(config.CertData) > 0: // takes precedence, as it does for connections
		c.sources[flag] = append(c.sources[flag], source{data: config.CertData})
	default:
		c.AddFile(flag, config.CertFile)
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *Collector) DescribeWithStability(to chan<- *metrics.Desc) { to <- c.description }

// CollectWithStability implements metrics.StableCollector.
func (c *Collector) CollectWithStability(to chan<- metrics.Metric) {
	for flag, sources := range c.sources {
		expiry, err := earliest(sources)
		if err != nil {
			klog.ErrorS(err, "Failed to read when a certificate expires", "flag", flag)
			continue
		}
		to <- metrics.NewLazyConstMetric(c.description, metrics.GaugeValue, float64(expiry.Unix()), flag)
	}
}

func earliest(sources []source) (time.Time, error) {
	var out time.Time
	for _, s := range sources {
		expiry, err := s.expiry()
		if err != nil {
			return time.Time{}, err
		}
		if out.IsZero() || expiry.Before(out) {
			out = expiry
		}
	}
	return out, nil
}

// expiry returns when the chain expires: when its first certificate to expire does.
func (s source) expiry() (time.Time, error) {
	data := s.data
	if s.file != "" {
		var err error
		if data, err = os.ReadFile(s.file); err != nil {
			return time.Time{}, err
		}
	}
	var out time.Time
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return time.Time{}, fmt.Errorf("certificate in %q: %w", s.file, err)
		}
		if out.IsZero() || certificate.NotAfter.Before(out) {
			out = certificate.NotAfter
		}
	}
	if out.IsZero() {
		return out, fmt.Errorf("no certificate in %q", s.file)
	}
	return out, nil
}
