package servingcert

import (
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
)

// loopbackValidity is upstream's. A server that has run longer is not live, so that it is restarted, and has a new certificate then.
const loopbackValidity = (3*365 + 1) * 24 * time.Hour

// Apply replaces ApplyToConfig of the options: it opens the port, and creates the client of the server for itself. The certificate that
// the server presents to this client has an ECDSA key, which takes no time at the start.
func Apply(s *genericoptions.SecureServingOptions, config *genericapiserver.Config) error {
	if err := s.ApplyTo(&config.SecureServing); err != nil || config.SecureServing == nil {
		return err
	}
	serving, now := config.SecureServing, time.Now()
	cert, key, err := generate(genericapiserver.LoopbackClientServerNameOverride, nil, nil, now, loopbackValidity)
	if err != nil {
		return fmt.Errorf("creating the loopback certificate: %w", err)
	}
	provider, err := dynamiccertificates.NewStaticSNICertKeyContent("self-signed loopback", cert, key, genericapiserver.LoopbackClientServerNameOverride)
	if err != nil {
		return fmt.Errorf("loading the loopback certificate: %w", err)
	}
	serving.SNICerts = append([]dynamiccertificates.SNICertKeyContentProvider{provider}, serving.SNICerts...) // precedes others with its name
	if config.LoopbackClientConfig, err = serving.NewLoopbackClientConfig(uuid.NewString(), cert); err != nil {
		return fmt.Errorf("creating the loopback client: %w", err)
	}
	expires := now.Add(loopbackValidity)
	check := healthz.NamedCheck("loopback-serving-certificate", func(*http.Request) error {
		if time.Now().After(expires) {
			return genericoptions.LoopbackCertificateExpiredError{}
		}
		return nil
	})
	config.AddHealthzChecks(check)
	config.AddLivezChecks(check)
	return nil
}
