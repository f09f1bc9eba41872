package shardserver

import (
	"runtime/debug"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/heartbeat"
)

// hookBeats is the name of the post-start hook that begins to listen to other shards.
const hookBeats = "kcp-follow-shard-reports"

// addHealth makes what says how this shard is, and what hears how others are.
func (s *Server) addHealth() {
	s.reporter = heartbeat.NewReporter(heartbeat.ReporterConfig{
		Registry:           s.Registry,
		Keys:               s.config.keys,
		MaxLogicalClusters: s.options.Shard.MaxLogicalClusters,
		MaxObjects:         s.options.Shard.MaxObjects,
		MemoryLimit:        debug.SetMemoryLimit(-1),
		Healthy: func() error {
			if s.registration == nil {
				return nil
			}
			return s.registration.Healthy()
		},
	})
	s.beats = heartbeat.NewBeats(s.Registry)
	s.Generic.AddPostStartHookOrDie(hookBeats, func(hook genericapiserver.PostStartHookContext) error {
		s.running.Go(func() { s.beats.Run(hook) })
		return nil
	})
}

// healthControllers keep the status of Shard objects, on the root shard.
func (s *Server) healthControllers() []controller.Controller {
	if !s.options.IsRoot() {
		return nil
	}
	return []controller.Controller{heartbeat.Controller(heartbeat.ControllerConfig{
		Registry: s.Registry, Client: s.config.clients.Typed, Own: s.options.Shard.Name, Reporter: s.reporter, Beats: s.beats,
	})}
}
