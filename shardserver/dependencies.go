package shardserver

import (
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/lifecycle"
	"github.com/atoll-dev/atoll/shardserver/options"
	"github.com/atoll-dev/atoll/shardserver/tenancy"
)

// tenancyConfig is what the controllers of workspaces and logical clusters get.
func (s *Server) tenancyConfig() tenancy.Config {
	return tenancy.Config{
		Registry:  s.Registry,
		Clients:   s.config.clients,
		Types:     s.config.types,
		Defaults:  s.defaultBindings(),
		ShardName: s.options.Shard.Name,
		Health:    s.reporter,
		Beats:     s.beats,
		Mounts:    s.options.FeatureEnabled(options.GateWorkspaceMounts),
		Keys:      s.config.keys,
		Leftovers: s.config.keys.RemoveLeftovers,
	}
}

// lifecycleConfig is what the controllers of namespaces and service accounts get.
func (s *Server) lifecycleConfig() lifecycle.Config {
	return lifecycle.Config{
		Registry:  s.Registry,
		Clients:   s.config.clients,
		Tokens:    s.config.tokenIssuer,
		Keys:      s.config.keys,
		InFlight:  s.config.inFlight,
		Observers: []func() lifecycle.Observer{s.claimsObserver},
		RootCA: func() []byte {
			bundle, err := s.config.rootCA()
			if err != nil {
				klog.ErrorS(err, "Reading the root CA bundle")
			}
			return bundle
		},
	}
}

// election returns how replicas agree on who runs the controllers, or nil when each runs its own.
func (s *Server) election() *controller.Election {
	if !s.options.Controllers.EnableLeaderElection {
		return nil
	}
	return &controller.Election{
		Client:    s.config.clients.Kubernetes.CoordinationV1(),
		Namespace: s.options.Controllers.LeaderElectionNamespace,
		Name:      s.options.Controllers.LeaderElectionName,
	}
}
