package backend

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/internal/testpki"
)

// TestFilesThatChangeTogether changes the CA and the pair at once, as the renewal of a Secret does: each file has a reader
// of its own, and what one of them makes of both must not bring back what the other has replaced.
func TestFilesThatChangeTogether(t *testing.T) {
	directory := t.TempDir()
	files := Files{CA: filepath.Join(directory, "ca"), Cert: filepath.Join(directory, "cert"), Key: filepath.Join(directory, "key")}
	var states [2]map[string][]byte // contents by file
	for i, name := range []string{"one", "other"} {
		authority, err := testpki.New(directory, name, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := authority.Issue("proxy")
		if err != nil {
			t.Fatal(err)
		}
		states[i] = map[string][]byte{}
		for file, from := range map[string]string{files.CA: authority.CertFile, files.Cert: pair.CertFile, files.Key: pair.KeyFile} {
			if states[i][file], err = os.ReadFile(from); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(state map[string][]byte) {
		for file, content := range state {
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(states[1])
	transport, err := NewTransport("test", files)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 300 {
		state := states[round%2]
		write(state)
		var readers sync.WaitGroup
		readers.Go(func() { _ = transport.ca.RunOnce(t.Context()) })
		readers.Go(func() { _ = transport.pair.RunOnce(t.Context()) })
		readers.Wait()
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(state[files.CA])
		cert, err := tls.X509KeyPair(state[files.Cert], state[files.Key])
		if err != nil {
			t.Fatal(err)
		}
		used := transport.now.Load().requests.TLSClientConfig
		if !used.RootCAs.Equal(roots) || !slices.EqualFunc(used.Certificates[0].Certificate, cert.Certificate, slices.Equal) {
			t.Fatalf("change %d: files are in use as they were before", round)
		}
	}
}
