package backend

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"strings"
	"sync/atomic"

	"k8s.io/component-base/metrics"
)

// Metrics count what goes to and comes from each backend.
type Metrics struct {
	requestBytes  *metrics.CounterVec
	responseBytes *metrics.CounterVec
	tlsErrors     *metrics.CounterVec
}

// NewMetrics registers the series. Labels are shards and kinds of errors, never workspaces.
func NewMetrics(register func(...metrics.Registerable)) *Metrics {
	counter := func(name, help string, labels ...string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	}
	m := &Metrics{
		requestBytes:  counter("kcp_backend_rq_body_bytes", "Bytes of request bodies sent to a shard.", "shard"),
		responseBytes: counter("kcp_backend_rs_body_bytes", "Bytes of response bodies received from a shard.", "shard"),
		tlsErrors:     counter("kcp_listener_tls_connection_error", "TLS failures of connections to a shard, by kind.", "shard", "error_type"),
	}
	register(m.requestBytes, m.responseBytes, m.tlsErrors)
	return m
}

func (m *Metrics) failed(shard string, err error) {
	if kind := tlsErrorKind(err); kind != "" {
		m.tlsErrors.WithLabelValues(shard, kind).Inc()
	}
}

// tlsErrorKind returns "" for what is no TLS failure.
func tlsErrorKind(err error) string {
	var (
		unknown  x509.UnknownAuthorityError
		invalid  x509.CertificateInvalidError
		hostname x509.HostnameError
		verify   *tls.CertificateVerificationError
		record   tls.RecordHeaderError
		alert    tls.AlertError
	)
	switch {
	case errors.As(err, &unknown):
		return "unknown_ca"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "expired_cert"
	case errors.As(err, &hostname):
		return "hostname_mismatch"
	case errors.As(err, &alert) && strings.Contains(alert.Error(), "handshake failure"):
		return "cipher_mismatch"
	case errors.As(err, &invalid), errors.As(err, &verify), errors.As(err, &record), errors.As(err, &alert):
		return "other"
	}
	return ""
}

// countingBody counts what is read of a body. The bytes are added once, when the body is closed or ends, so that a
// stream of small events does not pay for a counter each. A transport closes the body of a request that was answered early
// while it still reads.
type countingBody struct {
	io.ReadCloser
	count  func(int64)
	bytes  atomic.Int64
	closed atomic.Bool
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.bytes.Add(int64(n)) >= 1<<20 || err != nil || b.closed.Load() {
		b.flush()
	}
	return n, err
}

func (b *countingBody) flush() {
	if bytes := b.bytes.Swap(0); bytes > 0 {
		b.count(bytes)
	}
}

func (b *countingBody) Close() error {
	b.closed.Store(true)
	b.flush()
	return b.ReadCloser.Close()
}
