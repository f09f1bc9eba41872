package shardserver

import (
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// hookConnections is the name of the post-start hook that begins to follow logical clusters.
const hookConnections = "kcp-follow-logical-clusters"

// followConnections ends connections to logical clusters that go out of service.
func (s *Server) followConnections(hook genericapiserver.PostStartHookContext) error {
	s.running.Go(func() { s.config.connections.Run(hook, s.Registry) })
	return nil
}
