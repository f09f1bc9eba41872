package shardserver

import (
	"context"
	"slices"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/shardserver/admission/dynamic/policystatus"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/lifecycle"
	"github.com/atoll-dev/atoll/shardserver/sharding/identitystore"
	"github.com/atoll-dev/atoll/shardserver/sharding/topology"
	"github.com/atoll-dev/atoll/shardserver/tenancy"
)

// hookStopControllers is the name of the pre-shutdown hook.
const hookStopControllers = "kcp-stop-controllers"

// addControllers creates the controllers and ties them to the life of the API server: they start when the bootstrap is
// done, and end before the server refuses requests. Controllers write through the API, and a leader gives its lease
// back through it; without that the next replica would wait for the lease to run out.
func (s *Server) addControllers() error {
	if !s.options.Controllers.Enable {
		s.Generic.AddPostStartHookOrDie(hookControllers, func(genericapiserver.PostStartHookContext) error { return nil })
		return nil
	}
	var err error
	s.manager, err = controller.NewManager(controller.Config{
		Registry: s.Registry,
		Controllers: slices.Concat(
			s.definitionControllers(),
			tenancy.Controllers(s.tenancyConfig()),
			lifecycle.Controllers(s.lifecycleConfig()),
			s.exportControllers(),
			s.cacheControllers(),
			s.sharingControllers(),
			s.healthControllers(),
			s.replicationControllers(),
			[]controller.Controller{
				policystatus.Controller(s.policyStatusConfig()),
				identitystore.Controller(s.identityCacheConfig()),
				topology.Controller(topology.Config{Registry: s.Registry, Clients: s.config.clients}),
			},
		),
		Tasks:    slices.Concat(lifecycle.Tasks(s.lifecycleConfig()), s.replicationTasks(), s.copyTasks(), s.routingTasks()),
		Election: s.election(),
	})
	if err != nil {
		return err
	}
	s.Generic.AddPostStartHookOrDie(hookControllers, s.startControllers)
	s.Generic.AddPreShutdownHookOrDie(hookStopControllers, s.stopControllers)
	return nil
}

func (s *Server) startControllers(hook genericapiserver.PostStartHookContext) error {
	ctx, cancel := context.WithCancel(hook)
	s.running.Go(func() {
		defer close(s.controlled)
		defer cancel()
		select {
		case <-s.booted:
		case <-s.ending:
			return
		case <-ctx.Done():
			return
		}
		if err := s.manager.Run(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Controllers stopped")
		}
	})
	s.running.Go(func() {
		select {
		case <-s.ending:
			cancel()
		case <-ctx.Done():
		}
	})
	return nil
}

// stopControllers returns when the controllers have ended. The server calls it once, while it still serves.
func (s *Server) stopControllers() error {
	close(s.ending)
	<-s.controlled
	return nil
}
