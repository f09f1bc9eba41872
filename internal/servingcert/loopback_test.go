package servingcert

import (
	"crypto/ecdsa"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
)

// TestApply connects with the client that a server has for itself.
func TestApply(t *testing.T) {
	options := genericoptions.NewSecureServingOptions()
	options.BindAddress, options.ServerCert.CertDirectory = net.IPv4(127, 0, 0, 1), ""
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	options.Listener = listener
	if err := Default(options, "localhost", nil, nil); err != nil {
		t.Fatal(err)
	}
	config := server.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))
	if err := Apply(options, config); err != nil {
		t.Fatal(err)
	}
	presented := make(chan any, 1)
	config.LoopbackClientConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(req)
			if err == nil {
				presented <- response.TLS.PeerCertificates[0].PublicKey
			}
			return response, err
		})
	})
	stop := make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	stopped, _, err := config.SecureServing.Serve(handler, time.Second, stop)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		close(stop)
		<-stopped
	}()
	client, err := rest.HTTPClientFor(config.LoopbackClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	response, err := client.Get(config.LoopbackClientConfig.Host)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if key, ok := (<-presented).(*ecdsa.PublicKey); !ok {
		t.Errorf("the key is a %T", key)
	}
	found := false
	for _, check := range config.LivezChecks {
		found = found || check.Name() == "loopback-serving-certificate" && check.Check(httptest.NewRequest(http.MethodGet, "/livez", nil)) == nil
	}
	if !found {
		t.Error("no check of the server's life passes for the certificate")
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }
