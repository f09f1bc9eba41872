package runner

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// maxState bounds the compressed state: a Secret has at most one MiB.
	maxState = 1_000_000
	// maxPlainState bounds the state before it is compressed.
	maxPlainState = 64 << 20
	// stateRetry is how long the run retries to save the state while the API server is unavailable, before it returns an error to tofu.
	stateRetry = 5 * time.Minute
)

// stateServer serves the state to tofu's http backend. Writes use the resource version of the last read or write, so that only one of two
// runs that both assume to hold the lease can write.
type stateServer struct {
	secrets  typedcorev1.SecretInterface
	password string

	mu     sync.Mutex
	secret *corev1.Secret
}

func newStateServer(ctx context.Context, secrets typedcorev1.SecretInterface, name string) (*stateServer, error) {
	secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	return &stateServer{secrets: secrets, password: rand.Text(), secret: secret}, nil
}

// serve serves on the loopback interface until stop is called, and returns environment variables that configure tofu with the address.
func (s *stateServer) serve(ctx context.Context) (environment []string, stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("serving the state: %w", err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends when stop closes the server
	}()
	stop = func() {
		_ = server.Close()
		<-done
	}
	// Retries of tofu are disabled, because the server retries longer.
	return []string{"TF_HTTP_ADDRESS=http://" + listener.Addr().String(), "TF_HTTP_USERNAME=tofu", "TF_HTTP_PASSWORD=" + s.password, "TF_HTTP_RETRY_MAX=0"}, stop, nil
}

// ServeHTTP implements http.Handler.
func (s *stateServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, password, ok := r.BasicAuth(); !ok || subtle.ConstantTimeCompare([]byte(password), []byte(s.password)) == 0 {
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	switch r.Method {
	case http.MethodGet:
		err = s.read(w)
	case http.MethodPost:
		// Save the state even if tofu is interrupted.
		err = s.write(context.WithoutCancel(r.Context()), http.MaxBytesReader(w, r.Body, maxPlainState))
	default:
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// EncodeState compresses a state for its Secret.
func EncodeState(state io.Reader) ([]byte, error) {
	var compressed bytes.Buffer
	writer := gzip.NewWriter(&compressed)
	_, err := io.Copy(writer, state)
	if err := errors.Join(err, writer.Close()); err != nil {
		return nil, fmt.Errorf("compressing the state: %w", err)
	}
	if compressed.Len() > maxState {
		return nil, fmt.Errorf("the state is too large: %d bytes compressed, at most %d can be saved", compressed.Len(), maxState)
	}
	return compressed.Bytes(), nil
}

// DecodeState returns the state in a Secret, or nil if it has none yet.
func DecodeState(secret *corev1.Secret) ([]byte, error) {
	compressed := secret.Data[StateKey]
	if len(compressed) == 0 {
		return nil, nil
	}
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	state, err := io.ReadAll(io.LimitReader(reader, maxPlainState))
	if err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	return state, nil
}

func (s *stateServer) read(w http.ResponseWriter) error {
	state, err := DecodeState(s.secret)
	if err != nil {
		return err
	}
	if len(state) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	_, err = w.Write(state)
	return err
}

func (s *stateServer) write(ctx context.Context, body io.Reader) error {
	compressed, err := EncodeState(body)
	if err != nil {
		return err
	}
	wanted := s.secret.DeepCopy()
	wanted.Data = map[string][]byte{StateKey: compressed}
	err = persistently(ctx, func(ctx context.Context) error {
		written, err := s.secrets.Update(ctx, wanted, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			// An earlier attempt may have succeeded although its response did not arrive.
			current, readErr := s.secrets.Get(ctx, wanted.Name, metav1.GetOptions{})
			if readErr != nil {
				return readErr
			}
			if bytes.Equal(current.Data[StateKey], compressed) {
				written, err = current, nil
			}
		}
		if err == nil {
			s.secret = written
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("saving the state: %w", err)
	}
	return nil
}

// persistently retries a call while the API server is unavailable. A server that has just started forbids everything until it has loaded roles.
func persistently(ctx context.Context, call func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, time.Second, stateRetry, true, func(ctx context.Context) (bool, error) {
		last = call(ctx)
		switch {
		case last == nil:
			return true, nil
		case apierrors.IsConflict(last), apierrors.IsNotFound(last), apierrors.IsInvalid(last), apierrors.IsRequestEntityTooLargeError(last):
			return false, last
		}
		return false, nil
	})
	return errors.Join(err, last)
}
