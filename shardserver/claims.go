package shardserver

import (
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/atoll-dev/atoll/shardserver/apiexport/claims"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/lifecycle"
	"github.com/atoll-dev/atoll/shardserver/sharding/replicatelabel"
)

// hookClaims is the name of the post-start hook.
const hookClaims = "kcp-follow-permission-claims"

// followClaims keeps admission informed about the permission claims of all logical clusters.
func (s *Server) followClaims(hook genericapiserver.PostStartHookContext) error {
	s.running.Go(func() { s.config.claims.Run(hook) })
	return nil
}

// claimsConfig is what labels objects when claims change.
func (s *Server) claimsConfig() claims.Config {
	clients := s.config.clients
	return claims.Config{Registry: s.Registry, Index: s.config.claims, Objects: clients.Metadata, Bindings: clients.Typed}
}

// claimsObserver makes what finds objects that a change of claims has missed.
func (s *Server) claimsObserver() lifecycle.Observer { return claims.NewWatcher(s.claimsConfig()) }

// sharingControllers mark what others are shown: providers, by the labels of claims, and other shards.
func (s *Server) sharingControllers() []controller.Controller {
	return []controller.Controller{
		claims.Controller(s.claimsConfig()),
		replicatelabel.Controller(replicatelabel.Config{Registry: s.Registry, Objects: s.config.clients.Metadata}),
	}
}
