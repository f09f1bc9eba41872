package controller

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Config configures a Manager.
type Config struct {
	Registry *storage.Registry
	// Controllers run together, share their informers, and have different names.
	Controllers []Controller
	// Tasks run with the controllers, in the same replica, until their context ends. They watch sets of resources that
	// are determined at run time.
	Tasks []func(context.Context)
	// Election restricts the controllers to one replica of the shard at a time; nil disables the election.
	Election *Election
}

// Manager runs a set of controllers.
type Manager struct {
	cfg Config
}

// NewManager returns a manager. Controllers must be valid and have unique names.
func NewManager(cfg Config) (*Manager, error) {
	names := sets.New[string]()
	for _, c := range cfg.Controllers {
		if c.Name == "" || names.Has(c.Name) {
			return nil, fmt.Errorf("controller name %q is empty or used twice", c.Name)
		}
		if len(c.Sources) == 0 || c.Reconcile == nil {
			return nil, fmt.Errorf("controller %q has no sources or no reconciler", c.Name)
		}
		names.Insert(c.Name)
	}
	if cfg.Election != nil {
		if err := cfg.Election.validate(); err != nil {
			return nil, err
		}
	}
	return &Manager{cfg: cfg}, nil
}

// Run blocks until the context ends and every goroutine it started has returned. With an election the controllers run
// while this replica is the leader.
func (m *Manager) Run(ctx context.Context) error {
	if m.cfg.Election == nil {
		m.runControllers(ctx)
		return nil
	}
	return m.cfg.Election.run(ctx, m.runControllers)
}

// runControllers runs every controller until the context ends. It can be called again.
func (m *Manager) runControllers(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	var all []*runningController
	for _, c := range m.cfg.Controllers {
		all = append(all, newRunningController(c))
	}
	replays := &replays{registry: m.cfg.Registry, pending: map[replay]struct{}{}}
	informers := newInformers(ctx, m.cfg.Registry, all, replays)
	for _, informer := range informers {
		group.Go(func() { informer.run(ctx) })
	}
	for _, c := range all {
		group.Go(func() { c.Run(ctx, sourcesOf(m.cfg.Registry, c, informers)...) })
	}
	for _, task := range m.cfg.Tasks {
		group.Go(func() { task(ctx) })
	}
	group.Wait()
	replays.group.Wait()
}
