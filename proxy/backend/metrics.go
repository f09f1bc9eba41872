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

// Metrics count the bytes to and from each backend, and failed TLS connections.
type Metrics struct {
	requestBytes  *metrics.CounterVec
	responseBytes *metrics.CounterVec
	tlsErrors     *metrics.CounterVec
}

// NewMetrics registers the metrics. Their labels are shards and types of errors, never workspaces.
func NewMetrics(register func(...metrics.Registerable)) *Metrics {
	counter := func(name, help string, labels ...string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	}
	m := &Metrics{
		requestBytes:  counter("kcp_backend_rq_body_bytes", "Bytes of request bodies sent to a shard.", "shard"),
		responseBytes: counter("kcp_backend_rs_body_bytes", "Bytes of response bodies received from a shard.", "shard"),
		tlsErrors:     counter("kcp_listener_tls_connection_error", "TLS errors of connections to a shard, by type.", "shard", "error_type"),
	}
	register(m.requestBytes, m.responseBytes, m.tlsErrors)
	return m
}

// recordError counts an error if it is a TLS error.
func (m *Metrics) recordError(shard string, err error) {
	if errorType := tlsErrorType(err); errorType != "" {
		m.tlsErrors.WithLabelValues(shard, errorType).Inc()
	}
}

// tlsErrorType returns the label of a TLS error, "" for any other error.
func tlsErrorType(err error) string {
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

// flushBytes is how many bytes a countingBody reads before it adds them to its counter.
const flushBytes = 1 << 20

// countingBody counts the bytes that are read of a body. It adds them to the counter when the body ends or is closed
// and every flushBytes, so that a stream of small events does not update the counter for each of them. A transport
// may close the request body of an early response while it still reads.
type countingBody struct {
	io.ReadCloser
	counter metrics.CounterMetric
	bytes   atomic.Int64
	closed  atomic.Bool
}

func newCountingBody(body io.ReadCloser, counter metrics.CounterMetric) *countingBody {
	return &countingBody{ReadCloser: body, counter: counter}
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.bytes.Add(int64(n)) >= flushBytes || err != nil || b.closed.Load() {
		b.flush()
	}
	return n, err
}

func (b *countingBody) flush() {
	if bytes := b.bytes.Swap(0); bytes > 0 {
		b.counter.Add(float64(bytes))
	}
}

// Close implements io.Closer.
func (b *countingBody) Close() error {
	b.closed.Store(true)
	b.flush()
	return b.ReadCloser.Close()
}
