package join

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
)

// Waiting answers at the port of the shard while it has nothing to serve yet, so that whoever asks hears why: the process
// is alive, it is not ready for this reason, and requests are to be sent again.
type Waiting struct {
	mu     sync.Mutex
	reason string

	server *http.Server
	ended  chan struct{}
	port   *borrowed
}

// Wait begins to answer on the port, which remains open when Stop gives it back.
func Wait(serving *genericapiserver.SecureServingInfo) (*Waiting, error) {
	port, ok := serving.Listener.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("the secure port is a %T, want a TCP listener", serving.Listener)
	}
	w := &Waiting{ended: make(chan struct{}), port: &borrowed{TCPListener: port}, reason: "starting"}
	w.server = &http.Server{
		Handler:           w,
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				pair, err := tls.X509KeyPair(serving.Cert.CurrentCertKeyContent())
				return &pair, err
			},
		},
	}
	go func() {
		defer close(w.ended)
		if err := w.server.ServeTLS(w.port, "", ""); !errors.Is(err, http.ErrServerClosed) {
			klog.ErrorS(err, "Answering on the secure port while the shard starts")
		}
	}()
	return w, nil
}

// Because sets the reason that who asks is told.
func (w *Waiting) Because(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reason = err.Error()
}

// Stop ends the answers and gives the port back. Connections are closed: a client makes a new one, to what serves then.
func (w *Waiting) Stop() error {
	_ = w.server.Close()
	<-w.ended
	return w.port.giveBack()
}

// ServeHTTP answers about health as the shard does, and refuses all else: the shard takes the port over when it has joined.
func (w *Waiting) ServeHTTP(response http.ResponseWriter, req *http.Request) {
	path := strings.TrimSuffix(req.URL.Path, "/")
	switch {
	case path == "/livez" || strings.HasPrefix(path, "/livez/"):
		fmt.Fprint(response, "ok")
	case path == "/readyz" || path == "/healthz":
		http.Error(response, "[-]identities failed: "+w.because(), http.StatusInternalServerError)
	default:
		response.Header().Set("Retry-After", "1")
		http.Error(response, "the shard is starting", http.StatusServiceUnavailable)
	}
}

func (w *Waiting) because() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reason
}

// borrowed is a listener that a server may close without the port being closed.
type borrowed struct{ *net.TCPListener }

// Close makes Accept return.
func (b *borrowed) Close() error { return b.SetDeadline(time.Unix(0, 1)) }

// giveBack makes Accept wait again.
func (b *borrowed) giveBack() error { return b.SetDeadline(time.Time{}) }
