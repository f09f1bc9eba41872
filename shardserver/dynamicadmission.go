package shardserver

import (
	"fmt"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/dynamic"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	dynamicadmission "github.com/atoll-dev/atoll/shardserver/admission/dynamic"
	"github.com/atoll-dev/atoll/shardserver/admission/dynamic/policystatus"
	"github.com/atoll-dev/atoll/shardserver/loopback"
)

// hookConfigurations is the name of the post-start hook.
const hookConfigurations = "kcp-follow-admission-configurations"

// newDynamicAdmission prepares webhooks and admission policies.
func (c *Config) newDynamicAdmission() (*dynamicadmission.Plugins, error) {
	client, err := dynamic.NewForConfigAndClient(dynamic.ConfigFor(loopback.Clusterize(c.Generic.LoopbackClientConfig)), c.clients.HTTP)
	if err != nil {
		return nil, fmt.Errorf("building the loopback client of admission: %w", err)
	}
	return dynamicadmission.New(dynamicadmission.Config{
		Registry:   c.registry,
		Bound:      c.bindings,
		Authorizer: c.authorizer,
		Custom:     client,
		Scheme:     legacyscheme.Scheme,
		OpenAPI:    c.Generic.OpenAPIV3Config,
	})
}

// followConfigurations keeps admission informed about who has webhooks and policies.
func (s *Server) followConfigurations(hook genericapiserver.PostStartHookContext) error {
	s.running.Go(func() { s.config.dynamic.Run(hook) })
	return nil
}

// policyStatusConfig is what the controller of the status of policies gets.
func (s *Server) policyStatusConfig() policystatus.Config {
	return policystatus.Config{Registry: s.Registry, Kubernetes: s.config.clients.Kubernetes, Schemas: s.config.dynamic.Schemas()}
}
