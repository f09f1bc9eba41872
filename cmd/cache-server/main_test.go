package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/internal/testpki"
)

func TestHelpHasExamplesAndAllFlags(t *testing.T) {
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cache-server --client-ca-file=", "--parent-kubeconfig", "--etcd-prefix", "--embedded-etcd-directory", "--tls-cert-file", "--v "} {
		if !strings.Contains(strings.ReplaceAll(out.String(), "-v, ", ""), want) {
			t.Errorf("help does not mention %s", want)
		}
	}
}

func TestCommandServes(t *testing.T) {
	directory := t.TempDir()
	authority, err := testpki.New(directory, "clients", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue("localhost")
	if err != nil {
		t.Fatal(err)
	}
	listener, port, err := genericoptions.CreateListener("tcp", "127.0.0.1:0", net.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close() // the command needs a port number
	cmd := newCommand()
	cmd.SetArgs([]string{
		"--root-directory=" + filepath.Join(directory, "root"), "--client-ca-file=" + authority.CertFile, "--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port), "--tls-cert-file=" + pair.CertFile, "--tls-private-key-file=" + pair.KeyFile,
		"--embedded-etcd-client-port=0", "--embedded-etcd-peer-port=0", "--embedded-etcd-wal-size-bytes=5000",
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: authority.CertFile}})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("the command ended: %v", err)
		default:
		}
		response, err := client.Get("https://127.0.0.1:" + strconv.Itoa(port) + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not become ready: %v", err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the command ended with %v", err)
	}
}
